//! One test's part of the broker: its names, its settings, a client, and the services that it
//! starts.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rehop::settings::{ConsumeSettings, RetrySettings, Secret};
use rehop::{Consumer, Failure, Message, Raw, Service, Settings, Status, Topology};
use rehop_testing::{
    Broker, Client, ClientError, Management, Namespace, Proxy, Publish, Received, eventually,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::frame_hold::{FrameHold, Held};
use super::{Log, Running, SOON, millis};

/// One test's part of a broker.
pub(crate) struct Fixture {
    /// `None` for a fixture that knows only the broker's address.
    broker: Option<&'static Broker>,
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) queue: String,
    pub(crate) namespace: Namespace,
}

impl Fixture {
    /// The body of the messages with which [`fill_parked`](Self::fill_parked) fills the parked
    /// queue.
    pub(crate) const FILLS: &str = "fills";

    /// A namespace with one queue on the shared broker, and waits of 100 and 200 ms.
    pub(crate) async fn new(test: &str) -> Self {
        Self::on(Broker::shared().await, test).await
    }

    pub(crate) async fn on(broker: &'static Broker, test: &str) -> Self {
        Self { broker: Some(broker), ..Self::at(test, broker.amqp_url()).await }
    }

    pub(crate) async fn at(test: &str, url: &str) -> Self {
        let namespace = Namespace::new(test);
        let mut settings = Settings::default();
        settings.namespace = namespace.name().to_owned();
        settings.broker.url = Secret::from(url);
        settings.retry.delays = millis([100, 200]);
        settings.retry.immediate = Some(0);
        let (client, queue) = (Client::connect(url).await.unwrap(), namespace.queue("orders"));
        Self { broker: None, client, settings, queue, namespace }
    }

    fn broker(&self) -> &'static Broker {
        self.broker.expect("this fixture knows only an address")
    }

    /// Whether the broker has this version, such as `4.3`.
    pub(crate) fn is_version(&self, version: &str) -> bool {
        self.broker().version().starts_with(&format!("{version}."))
    }

    fn management(&self) -> Management {
        self.broker().management().unwrap()
    }

    /// A fixture whose services reach the shared broker through a proxy. Its client does not.
    pub(crate) async fn behind_proxy(test: &str) -> (Self, Proxy) {
        let mut fixture = Self::new(test).await;
        let proxy = fixture.put_behind_proxy().await;
        (fixture, proxy)
    }

    /// Services that are started from now on connect through this proxy.
    pub(crate) async fn put_behind_proxy(&mut self) -> Proxy {
        let url = self.broker().amqp_url();
        let proxy = Proxy::start(url).await.unwrap();
        self.settings.broker.url = Secret::from(proxy.url_for(url).unwrap());
        proxy
    }

    /// Services that are started from now on connect through a relay that holds a frame back, and
    /// then through this proxy.
    pub(crate) async fn put_behind_frame_hold(&mut self, held: Held) -> (Proxy, FrameHold) {
        let proxy = self.put_behind_proxy().await;
        let hold = FrameHold::start(proxy.address(), held).await;
        let url = proxy.url_for(self.broker().amqp_url()).unwrap();
        self.settings.broker.url = Secret::from(url.replace(&proxy.address(), hold.address()));
        (proxy, hold)
    }

    pub(crate) fn parked(&self) -> String {
        format!("{}.parked", self.queue)
    }

    pub(crate) fn stray(&self) -> String {
        format!("{}.stray", self.namespace.name())
    }

    pub(crate) fn service(&self) -> Service {
        Service::new(&self.settings)
    }

    /// Takes this many parked messages, waiting for them.
    pub(crate) async fn drain_parked(&self, count: usize) -> Vec<Received> {
        self.client.drain(&self.parked(), count, SOON).await.unwrap()
    }

    /// Takes parked messages until one has this body. After a connection was lost, some that were
    /// parked before may come first, again.
    pub(crate) async fn drain_parked_until(&self, body: &str, within: Duration) {
        let what = format!("{body:?} is parked");
        eventually(within, &what, async || {
            let parked =
                self.client.get_all(&self.parked()).await.map_err(|error| error.to_string())?;
            let bodies: Vec<_> = parked.iter().map(Received::text).collect();
            if bodies.iter().any(|parked| parked == body) {
                Ok(true)
            } else {
                Err(format!("{bodies:?}"))
            }
        })
        .await
        .unwrap();
    }

    /// Starts a service on the queue that takes raw bodies, and waits until it is connected, unless
    /// it ends, and the queue exists.
    pub(crate) async fn serve<R>(
        &self,
        handler: impl Fn(Message<Bytes>) -> R + Send + Sync + 'static,
    ) -> Running
    where
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let (run, status) = self.start(handler).await;
        let connected = async || {
            let connections = status.connections();
            let is_open = connections.is_consuming_open && connections.is_publishing_open;
            if is_open || run.has_ended() { Ok(true) } else { Err(format!("{status:?}")) }
        };
        eventually(SOON, "the service is connected", connected).await.unwrap();
        self.is_declared(&self.queue).await;
        run
    }

    /// Starts a service that takes raw bodies from the queue. Returns its status too, and does not
    /// wait until the queue is declared.
    pub(crate) async fn start<R>(
        &self,
        handler: impl Fn(Message<Bytes>) -> R + Send + Sync + 'static,
    ) -> (Running, Status)
    where
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let consumer = Consumer::new(self.queue.clone(), handler).decode(Raw);
        let service = self.service().with_consumer(consumer);
        let status = service.status();
        (Running::start(service), status)
    }

    /// A service whose handler always returns the same result.
    pub(crate) async fn serve_always(&self, result: Result<(), Failure>) -> Running {
        self.serve(move |_| std::future::ready(result.clone())).await
    }

    /// A service that records something of each message and then always returns the same result.
    pub(crate) async fn serve_noting<T: Send + 'static>(
        &self,
        note: impl Fn(&Message<Bytes>) -> T + Send + Sync + 'static,
        result: Result<(), Failure>,
    ) -> (Running, Log<T>) {
        let seen = Log::default();
        let log = seen.clone();
        let serving = self.serve(move |message| {
            log.push(note(&message));
            std::future::ready(result.clone())
        });
        (serving.await, seen)
    }

    /// A service whose handlers record that they have started, and each wait for a permit before
    /// they return.
    pub(crate) async fn serve_gated(
        &self,
        permits: usize,
        result: Result<(), Failure>,
    ) -> (Running, Log<()>, Arc<Semaphore>) {
        let (gate, started) = (Arc::new(Semaphore::new(permits)), Log::default());
        let (pass, log) = (gate.clone(), started.clone());
        let serving = self.serve(move |_| {
            let (pass, log, result) = (pass.clone(), log.clone(), result.clone());
            async move {
                log.push(());
                pass.acquire().await.unwrap().forget();
                result
            }
        });
        (serving.await, started, gate)
    }

    pub(crate) async fn is_declared(&self, queue: &str) {
        let what = format!("queue {queue} is declared");
        eventually(SOON, &what, async || self.client.depth(queue).await.map(|_| true))
            .await
            .unwrap();
    }

    pub(crate) async fn has_depth(&self, queue: &str, depth: u32) {
        let what = format!("{depth} messages in queue {queue}");
        eventually(SOON, &what, async || match self.client.depth(queue).await {
            Ok(seen) if seen == depth => Ok(true),
            Ok(seen) => Err(format!("{seen} messages")),
            Err(error) => Err(error.to_string()),
        })
        .await
        .unwrap();
    }

    /// Waits until the service has found its queue empty, and has subscribed to it.
    pub(crate) async fn is_subscribed(&self) {
        eventually(SOON, "the queue has a consumer", async || {
            self.client.consumers(&self.queue).await.map(|consumers| consumers > 0)
        })
        .await
        .unwrap();
    }

    /// A message directly to the queue.
    pub(crate) async fn publish(&self, body: &str) {
        self.client.publish(self.to_queue().body(body)).await.unwrap();
    }

    pub(crate) fn to_queue(&self) -> Publish {
        Publish::to_queue(&self.queue)
    }

    /// Publishes to an exchange whose binding may not be declared yet.
    pub(crate) async fn publish_when_bound(&self, message: Publish) {
        eventually(SOON, "a route for the message", async || {
            self.client.publish(message.clone()).await.map(|()| true)
        })
        .await
        .unwrap();
    }

    /// Declares everything, so that messages can be published before a service starts.
    pub(crate) async fn declare(&self) {
        let mut settings = self.settings.clone();
        settings.queue_mut(&self.queue);
        let topology = Topology::of(&settings).unwrap();
        topology.declare(&settings).await.unwrap();
        // A new quorum queue refuses messages until it has a leader (3.10).
        for queue in &topology.queues {
            let has_leader = async || self.client.depth(&queue.name).await.map(|_| true);
            eventually(SOON, "the queue has a leader", has_leader).await.unwrap();
        }
    }

    /// Sets a policy for one queue, until [`clear_policy`](Self::clear_policy).
    pub(crate) async fn set_policy(&self, queue: &str, definition: Value) {
        let pattern = format!("^{}$", queue.replace('.', "\\."));
        self.management().set_policy(queue, &pattern, definition).await.unwrap();
    }

    /// Waits until the broker counts so many unacked messages of the queue, none of them ready. Its
    /// counts are some seconds old.
    pub(crate) async fn has_unacked(&self, count: u64) {
        let management = self.management();
        let counted = async || {
            let queue = management.queue(&self.queue).await.map_err(|error| error.to_string())?;
            let counts =
                ["messages_unacknowledged", "messages_ready"].map(|name| queue[name].as_u64());
            if counts == [Some(count), Some(0)] { Ok(true) } else { Err(format!("{counts:?}")) }
        };
        eventually(SOON, "the broker counts what is unacked", counted).await.unwrap();
    }

    pub(crate) async fn clear_policy(&self, queue: &str) {
        self.management().delete_policy(queue).await.unwrap();
    }

    /// Fills the parked queue: it refuses messages until its policy is
    /// [cleared](Self::clear_policy).
    pub(crate) async fn fill_parked(&self) {
        self.set_policy(&self.parked(), json!({ "max-length": 1, "overflow": "reject-publish" }))
            .await;
        // A quorum queue accepts a few messages more than its limit.
        let fills = async || {
            let published =
                self.client.publish(Publish::to_queue(self.parked()).body(Self::FILLS)).await;
            matches!(published, Err(ClientError::Refused { .. }))
        };
        eventually(SOON, "the parked queue is full", fills).await.unwrap();
    }

    /// Services that are started from now on have a user with only these permissions: configure,
    /// write, read.
    pub(crate) async fn limit(&mut self, user: &str, permissions: [&str; 3]) {
        let user = format!("{user}-{}", self.namespace.name());
        self.management().add_user(&user, "pass").await.unwrap();
        self.settings.broker.username = Some(user);
        self.settings.broker.password = Some(Secret::from("pass"));
        self.allow(permissions).await;
    }

    /// Changes what this user may do.
    pub(crate) async fn allow(&self, permissions: [&str; 3]) {
        let user = self.settings.broker.username.as_deref().expect("the user is limited");
        self.management().set_permissions(user, permissions).await.unwrap();
    }

    /// The retry settings of the queue.
    pub(crate) fn retry(&mut self) -> &mut RetrySettings {
        &mut self.settings.queue_mut(&self.queue).retry
    }

    pub(crate) fn consume(&mut self) -> &mut ConsumeSettings {
        &mut self.settings.queue_mut(&self.queue).consume
    }

    /// The error of a service that cannot start.
    pub(crate) async fn start_error(&self) -> rehop::Error {
        let run = self.service().with_consumer(
            Consumer::new(self.queue.clone(), |_: Message<Bytes>| async { Ok::<_, Failure>(()) })
                .decode(Raw),
        );
        tokio::time::timeout(SOON, run.into_future())
            .await
            .expect("the service ends in time")
            .unwrap_err()
    }
}
