//! What the tests share.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rehop::testing::{Broker, Client, Namespace, Proxy, Publish, Received, eventually};
use rehop::{
    Backoff, ConsumeSettings, Failure, Message, Raw, Rehop, RetrySettings, Settings, Summary, Timestamp, Topology,
};
use secrecy::SecretString;
use tokio::sync::{MutexGuard, OnceCell, Semaphore, oneshot};
use tokio::task::JoinHandle;

pub(crate) const SOON: Duration = Duration::from_secs(20);

/// One test's own corner of the shared broker.
pub(crate) struct Fixture {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) queue: String,
    pub(crate) namespace: Namespace,
}

impl Fixture {
    /// A namespace with one queue, and waits of 100 and 200 ms.
    pub(crate) async fn new(test: &str) -> Self {
        Self::at(test, Broker::shared().await.amqp_url()).await
    }

    pub(crate) async fn at(test: &str, url: &str) -> Self {
        let namespace = Namespace::new(test);
        let mut settings = Settings::default();
        settings.namespace = namespace.name().to_owned();
        settings.broker.url = SecretString::from(url);
        settings.retry.delays = Some(Backoff::List([100, 200].map(Duration::from_millis).to_vec()));
        settings.retry.immediate = Some(0);
        settings.shutdown.grace = Duration::from_secs(5);
        Self { client: Client::connect(url).await.unwrap(), settings, queue: namespace.queue("orders"), namespace }
    }

    /// A fixture whose services reach the shared broker through a proxy. Its client does not.
    pub(crate) async fn behind_proxy(test: &str) -> (Self, Proxy) {
        let mut fixture = Self::new(test).await;
        let proxy = fixture.put_behind_proxy().await;
        (fixture, proxy)
    }

    /// Whatever service is started from now on has this proxy before it.
    pub(crate) async fn put_behind_proxy(&mut self) -> Proxy {
        let url = Broker::shared().await.amqp_url();
        let proxy = Proxy::start(url).await.unwrap();
        self.settings.broker.url = SecretString::from(proxy.url_for(url).unwrap());
        proxy
    }

    pub(crate) fn parked(&self) -> String {
        format!("{}.parked", self.queue)
    }

    pub(crate) fn stray(&self) -> String {
        format!("{}.stray", self.namespace.name())
    }

    pub(crate) async fn connect(&self) -> Rehop {
        rehop::connect(&self.settings).await.unwrap()
    }

    /// What is parked, once there are so many.
    pub(crate) async fn drain_parked(&self, count: usize) -> Vec<Received> {
        self.client.drain(&self.parked(), count, SOON).await.unwrap()
    }

    /// Starts a service on the queue that takes bodies as they are, and waits until the queue is there.
    pub(crate) async fn serve<R>(&self, handler: impl Fn(Message<Bytes>) -> R + Send + Sync + 'static) -> Running
    where
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let run = Running::start(self.connect().await.consumer_with(self.queue.clone(), Raw, handler));
        self.is_declared(&self.queue).await;
        run
    }

    /// A service whose handler gives the same answer each time.
    pub(crate) async fn serve_always(&self, result: Result<(), Failure>) -> Running {
        self.serve(move |_| std::future::ready(result.clone())).await
    }

    /// A service that notes something of each message before it gives the same answer.
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

    /// A service whose handlers note that they have started, and each wait for a permit before they answer.
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
        eventually(SOON, &what, async || self.client.depth(queue).await.map(|_| true)).await.unwrap();
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

    /// Straight to the queue.
    pub(crate) async fn publish(&self, body: &str) {
        self.client.publish(self.to_queue().body(body)).await.unwrap();
    }

    pub(crate) fn to_queue(&self) -> Publish {
        Publish::to_queue(&self.queue)
    }

    /// To an exchange whose binding may still have to be declared.
    pub(crate) async fn publish_when_bound(&self, message: Publish) {
        eventually(SOON, "a route for the message", async || self.client.publish(message.clone()).await.map(|()| true))
            .await
            .unwrap();
    }

    /// Declares everything, so that messages can be published before a service starts.
    pub(crate) async fn declare(&self) {
        let mut settings = self.settings.clone();
        settings.queue_mut(&self.queue);
        Topology::of(&settings).unwrap().declare(&settings).await.unwrap();
    }

    /// The retry settings of the queue.
    pub(crate) fn retry(&mut self) -> &mut RetrySettings {
        &mut self.settings.queue_mut(&self.queue).retry
    }

    pub(crate) fn consume(&mut self) -> &mut ConsumeSettings {
        &mut self.settings.queue_mut(&self.queue).consume
    }

    /// What a service that cannot start says.
    pub(crate) async fn start_error(&self) -> rehop::Error {
        let run = self.connect().await.consumer_with(self.queue.clone(), Raw, |_: Message<Bytes>| async { Ok(()) });
        tokio::time::timeout(SOON, run.into_future()).await.expect("the service ends in time").unwrap_err()
    }
}

pub(crate) fn millis(millis: impl IntoIterator<Item = u64>) -> Option<Backoff> {
    Some(Backoff::List(millis.into_iter().map(Duration::from_millis).collect()))
}

pub(crate) fn now_millis() -> i64 {
    Timestamp::from(SystemTime::now()).as_millis()
}

/// A service that runs until it is stopped.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Summary, rehop::Error>>,
}

impl Running {
    pub(crate) fn start(rehop: Rehop) -> Self {
        let (stop, stopped) = oneshot::channel();
        let run = rehop.with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        let task = tokio::spawn(async {
            let ended = run.await;
            if let Err(error) = &ended {
                // A test that waits for what the service should do would not learn why it waits in vain.
                eprintln!("a service ended: {error}");
            }
            ended
        });
        Self { stop, task }
    }

    pub(crate) async fn stop(self) -> Summary {
        let _ = self.stop.send(());
        tokio::time::timeout(SOON, self.task).await.expect("the service stops in time").unwrap().unwrap()
    }

    /// Tells it to stop and does not wait for it.
    pub(crate) fn begin_stop(self) -> Self {
        let _ = self.stop.send(());
        let (stop, _) = oneshot::channel();
        Self { stop, task: self.task }
    }

    /// Waits for a service that ends by itself.
    pub(crate) async fn ended(self) -> Result<Summary, rehop::Error> {
        tokio::time::timeout(SOON, self.task).await.expect("the service ends in time").unwrap()
    }
}

/// What handlers have seen, in order; it can be waited for.
pub(crate) struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Log<T> {
    /// How many hold this log.
    pub(crate) fn owners(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Returns how many there are now.
    pub(crate) fn push(&self, seen: T) -> usize {
        let mut log = self.0.lock().unwrap();
        log.push(seen);
        log.len()
    }
}

impl<T: Clone> Log<T> {
    pub(crate) fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }

    /// Everything, once there are so many.
    pub(crate) async fn reaches(&self, count: usize) -> Vec<T> {
        let what = format!("{count} things seen by handlers");
        eventually(SOON, &what, async || {
            let seen = self.all().len();
            if seen >= count { Ok(true) } else { Err(format!("{seen}")) }
        })
        .await
        .unwrap();
        self.all()
    }
}

/// A broker that tests restart and reconfigure, one after the other.
pub(crate) async fn fragile_broker() -> MutexGuard<'static, Broker> {
    static BROKER: OnceCell<tokio::sync::Mutex<Broker>> = OnceCell::const_new();
    let start = async || tokio::sync::Mutex::new(Broker::builder().own().start().await.unwrap());
    BROKER.get_or_init(start).await.lock().await
}
