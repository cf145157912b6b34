//! One case's corner: a broker, a namespace, a record, and the messages that were sent.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::Rng as _;
use rehop::testing::{Broker, BrokerBuilder, Client, Cluster, Namespace, Proxy, Publish, Received, eventually};
use rehop::{ExchangeKind, Topology};
use serde_json::json;
use tokio::sync::{OnceCell, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::ledger::{Account, Found, Place, Record};
use crate::service::{Config, Does, Job, Service};

/// How long anything may take that should happen by itself.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// What all cases on one version share.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) tag: Option<String>,
    pub(crate) long: bool,
    pub(crate) directory: PathBuf,
    /// Of the user that all services are; it must show up nowhere.
    pub(crate) password: Arc<str>,
    shared: Arc<OnceCell<Arc<Broker>>>,
}

impl Ground {
    pub(crate) fn new(tag: Option<String>, long: bool, directory: PathBuf, password: Arc<str>) -> Self {
        Self { tag, long, directory, password, shared: Arc::default() }
    }

    /// A number of repetitions.
    pub(crate) fn times(&self, quick: usize, long: usize) -> usize {
        if self.long { long } else { quick }
    }

    /// A broker that is not disturbed.
    pub(crate) async fn shared_broker(&self) -> Arc<Broker> {
        self.shared.get_or_init(|| self.own_broker(|builder| builder)).await.clone()
    }

    pub(crate) async fn version(&self) -> String {
        self.shared_broker().await.version().to_owned()
    }

    /// A broker for one case, with the services' user.
    pub(crate) async fn own_broker(&self, wishes: impl FnOnce(BrokerBuilder) -> BrokerBuilder) -> Arc<Broker> {
        let mut builder = Broker::builder().own();
        if let Some(tag) = &self.tag {
            builder = builder.tag(tag);
        }
        let broker = wishes(builder).start().await.unwrap();
        broker.rabbitmqctl(&["add_user", USER, &self.password]).await.unwrap();
        broker.rabbitmqctl(&["set_permissions", USER, ".*", ".*", ".*"]).await.unwrap();
        Arc::new(broker)
    }

    pub(crate) async fn cluster(&self) -> Cluster {
        let cluster = match &self.tag {
            Some(tag) => Cluster::start_tag(3, tag).await.unwrap(),
            None => Cluster::start(3).await.unwrap(),
        };
        cluster.rabbitmqctl(0, &["add_user", USER, &self.password]).await.unwrap();
        cluster.rabbitmqctl(0, &["set_permissions", USER, ".*", ".*", ".*"]).await.unwrap();
        cluster
    }

    /// A URL for services, in place of the administrator's.
    pub(crate) fn url(&self, admin_url: &str) -> String {
        self.url_of(admin_url, USER)
    }

    pub(crate) fn url_of(&self, admin_url: &str, user: &str) -> String {
        admin_url.replace("guest:guest@", &format!("{user}:{}@", self.password))
    }

    /// A corner of the shared broker.
    pub(crate) async fn lab(&self, name: &str) -> Lab {
        self.lab_on(name, self.shared_broker().await).await
    }

    pub(crate) async fn lab_on(&self, name: &str, broker: Arc<Broker>) -> Lab {
        let url = broker.amqp_url().to_owned();
        Lab { _broker: Some(broker), ..self.lab_at(name, &url).await }
    }

    pub(crate) async fn lab_at(&self, name: &str, admin_url: &str) -> Lab {
        let namespace = Namespace::new(name);
        let directory = self.directory.join(namespace.name());
        std::fs::create_dir_all(&directory).unwrap();
        let config = Config {
            url: self.url(admin_url),
            namespace: namespace.name().to_owned(),
            queue: namespace.queue("orders"),
            existing: false,
            parked: None,
            delays: vec![200, 400],
            immediate: 0,
            delivery_limit: 10,
            prefetch: 100,
            concurrency: 10,
            handler_timeout: Duration::from_secs(60),
            grace: Duration::from_secs(10),
            answer: Duration::from_secs(5),
            heartbeat: Duration::from_secs(2),
            startup: SOON,
            ca_file: None,
            cert_file: None,
            key_file: None,
            record: directory.join("record"),
        };
        Lab {
            admin_url: admin_url.to_owned(),
            config,
            old_tiers: Vec::new(),
            directory,
            sent: Arc::default(),
            next: Arc::new(AtomicU64::new(1)),
            services: Arc::default(),
            _broker: None,
        }
    }
}

/// The user that services are.
const USER: &str = "service";

/// One case's corner of a broker.
pub(crate) struct Lab {
    pub(crate) admin_url: String,
    pub(crate) config: Config,
    /// Wait queues that an earlier configuration has left.
    pub(crate) old_tiers: Vec<u64>,
    directory: PathBuf,
    sent: Arc<Mutex<BTreeSet<u64>>>,
    next: Arc<AtomicU64>,
    services: Arc<AtomicUsize>,
    _broker: Option<Arc<Broker>>,
}

impl Lab {
    /// A client of its own, as soon as the broker takes one.
    pub(crate) async fn client(&self) -> Client {
        connect(&self.admin_url).await
    }

    pub(crate) fn parked(&self) -> String {
        self.config.parked.clone().unwrap_or_else(|| format!("{}.parked", self.config.queue))
    }

    pub(crate) fn stray(&self) -> String {
        format!("{}.stray", self.config.namespace)
    }

    pub(crate) fn tier(&self, millis: u64) -> String {
        format!("{}.wait.{millis}", self.config.namespace)
    }

    pub(crate) fn exchange(&self, name: &str) -> String {
        format!("{}.{name}", self.config.namespace)
    }

    /// Declares everything, so that messages can be there before a service is.
    pub(crate) async fn declare(&self) {
        let topology = Topology::of(&self.config.settings()).unwrap();
        let client = self.client().await;
        for exchange in topology.exchanges {
            let kind = match exchange.kind {
                ExchangeKind::Headers => "headers",
                ExchangeKind::Direct => "direct",
                _ => "fanout",
            };
            client.declare_exchange(&exchange.name, kind, json!(exchange.arguments)).await.unwrap();
        }
        for queue in topology.queues {
            client.declare_queue(&queue.name, json!(queue.arguments)).await.unwrap();
        }
        for it in topology.bindings {
            client.bind(&it.queue, &it.exchange, &it.routing_key, json!(it.arguments)).await.unwrap();
        }
    }

    /// Publishes messages, all confirmed, and returns the number of the first.
    pub(crate) async fn send(&self, count: usize, does: Does) -> u64 {
        self.send_with(count, does, |message| message).await
    }

    pub(crate) async fn send_with(&self, count: usize, does: Does, change: impl Fn(Publish) -> Publish) -> u64 {
        let first = self.next.fetch_add(count as u64, Ordering::SeqCst);
        let ids = first..first + count as u64;
        let messages: Vec<_> = ids.clone().map(|id| change(self.message(id, does))).collect();
        self.client().await.publish_many(messages).await.unwrap();
        self.confirmed(ids);
        first
    }

    fn message(&self, id: u64, does: Does) -> Publish {
        let body = serde_json::to_value(Job { id, does }).unwrap();
        Publish::to_queue(&self.config.queue).json(&body).message_id(id.to_string())
    }

    fn confirmed(&self, ids: impl IntoIterator<Item = u64>) {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
    }

    pub(crate) fn sent(&self) -> BTreeSet<u64> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Publishes without an end, a mix of everything that a message can be, and counts what was confirmed.
    pub(crate) fn load(&self, per_second: u32) -> Load {
        let (stop, lab) = (CancellationToken::new(), self.share());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            while !stopped.is_cancelled() {
                let round = async {
                    let Ok(client) = Client::connect(&lab.admin_url).await else {
                        tokio::time::sleep(Duration::from_millis(200)).await;
                        return;
                    };
                    let mut beat = tokio::time::interval(Duration::from_secs(10) / per_second.max(1));
                    loop {
                        beat.tick().await;
                        let ids: Vec<u64> = (0..10).map(|_| lab.next.fetch_add(1, Ordering::SeqCst)).collect();
                        let messages: Vec<_> = ids.iter().map(|id| lab.message(*id, mixed(*id))).collect();
                        if client.publish_many(messages).await.is_err() {
                            return;
                        }
                        lab.confirmed(ids);
                    }
                };
                tokio::select! {
                    () = round => {}
                    () = stopped.cancelled() => {}
                }
            }
        });
        Load { stop, task }
    }

    pub(crate) fn share(&self) -> Self {
        Self {
            admin_url: self.admin_url.clone(),
            config: self.config.clone(),
            old_tiers: self.old_tiers.clone(),
            directory: self.directory.clone(),
            sent: self.sent.clone(),
            next: self.next.clone(),
            services: self.services.clone(),
            _broker: self._broker.clone(),
        }
    }

    pub(crate) fn service(&self) -> Service {
        self.service_with(&self.config)
    }

    pub(crate) fn service_with(&self, config: &Config) -> Service {
        let number = self.services.fetch_add(1, Ordering::SeqCst);
        Service::start(config, &self.directory.join(format!("service-{number}.log")))
    }

    /// A service behind a proxy: its connections are number 0, which consumes, and 1, which publishes.
    pub(crate) async fn service_behind(&self) -> (Service, Proxy) {
        let proxy = Proxy::start(&self.admin_url).await.unwrap();
        (self.service_with(&self.behind(&proxy)), proxy)
    }

    pub(crate) fn behind(&self, proxy: &Proxy) -> Config {
        Config { url: proxy.url_for(&self.config.url).unwrap(), ..self.config.clone() }
    }

    /// A service that is started again at once, however it ends.
    pub(crate) fn supervised(&self) -> Supervised {
        let (orders, mut order) = mpsc::channel(1);
        let lab = self.share();
        let task = tokio::spawn(async move {
            let mut deaths = 0;
            loop {
                let mut service = lab.service();
                tokio::select! {
                    _ = service.ended(Duration::from_secs(24 * 3600)) => {}
                    order = order.recv() => match order {
                        Some(Kill) => service.kill().await,
                        None => {
                            service.stop().await;
                            return deaths;
                        }
                    },
                }
                deaths += 1;
                // One that cannot even start is not to be started in a hot loop.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Supervised { orders, task }
    }

    pub(crate) fn record(&self) -> Record {
        Record::read(&self.config.record)
    }

    /// Waits until handlers have begun so often.
    pub(crate) async fn started(&self, count: usize) {
        eventually(SOON, &format!("{count} handlers have started"), async || {
            let started = self.record().started.len();
            if started >= count { Ok(true) } else { Err(format!("{started} started")) }
        })
        .await
        .unwrap();
    }

    pub(crate) async fn done(&self, count: usize) {
        eventually(SOON, &format!("{count} handlers have succeeded"), async || {
            let done = self.record().done.len();
            if done >= count { Ok(true) } else { Err(format!("{done} succeeded")) }
        })
        .await
        .unwrap();
    }

    /// Waits until so many messages are ready in a queue.
    pub(crate) async fn depth(&self, queue: &str, wanted: u32) {
        let client = self.client().await;
        eventually(SOON, &format!("{wanted} messages in {queue}"), async || match client.depth(queue).await {
            Ok(depth) if depth == wanted => Ok(true),
            Ok(depth) => Err(format!("{depth} messages")),
            Err(error) => Err(error.to_string()),
        })
        .await
        .unwrap();
    }

    /// Waits until each message has ended, at a handler or in a queue where messages end. Duplicates may come later than
    /// that, so the queues from which messages come back have to be empty, too.
    pub(crate) async fn settled(&self, within: Duration) {
        let client = self.client().await;
        let tiers = self.config.delays.iter().chain(&self.old_tiers).map(|millis| self.tier(*millis));
        let passing: Vec<String> = tiers.chain([self.config.queue.clone()]).collect();
        let result = eventually(within, "every message has ended", async || {
            let ended = self.record().ended();
            let open = self.sent().difference(&ended).count();
            let mut resting = 0;
            for queue in [self.parked(), self.stray()] {
                resting += client.depth(&queue).await.unwrap_or(0) as usize;
            }
            let mut queued = 0;
            for queue in &passing {
                queued += client.depth(queue).await.unwrap_or(0);
            }
            let seen = format!("{open} open, {resting} parked or stray, {queued} queued");
            if open <= resting && queued == 0 { Ok(true) } else { Err(seen) }
        })
        .await;
        result.unwrap_or_else(|error| panic!("{error}; logs are in {}", self.directory.display()));
    }

    /// Finds every message. Whatever is somewhere turns up within some seconds after the last service has ended: the broker
    /// may still be taking back what a lost connection held.
    pub(crate) async fn account(&self) -> Account {
        self.account_and_messages().await.0
    }

    /// The same, with the messages that were found in queues.
    pub(crate) async fn account_and_messages(&self) -> (Account, Vec<Received>) {
        let mut messages = Vec::new();
        let client = self.client().await;
        let mut found = Found::default();
        found.recorded(&self.record());
        let settings = self.config.settings();
        let topology = Topology::of(&settings).unwrap();
        let mut queues: Vec<String> = topology.queues.into_iter().map(|queue| queue.name).collect();
        queues.extend(self.old_tiers.iter().map(|millis| self.tier(*millis)));
        let (sent, begun) = (self.sent(), Instant::now());
        loop {
            for queue in &queues {
                let place = match queue {
                    it if *it == self.parked() => Place::Parked,
                    it if *it == self.stray() => Place::Stray,
                    _ => Place::Queued,
                };
                // A queue that was deleted holds nothing.
                let received = client.get_all(queue).await.unwrap_or_default();
                found.received(&received, place);
                messages.extend(received);
            }
            let account = found.account(&sent);
            if account.lost.is_empty() || begun.elapsed() > Duration::from_secs(20) {
                return (account, messages);
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }
}

/// Most succeed; some fail once or twice, are parked, or discarded.
fn mixed(id: u64) -> Does {
    match id % 20 {
        3 | 9 => Does::Fail(1),
        7 => Does::Fail(2),
        13 => Does::Permanent,
        17 => Does::Discard,
        n if n % 4 == 0 => Does::Slow(5),
        _ => Does::Succeed,
    }
}

pub(crate) async fn connect(url: &str) -> Client {
    let mut connected = None;
    eventually(SOON, "the broker takes a client", async || match Client::connect(url).await {
        Ok(client) => {
            connected = Some(client);
            Ok(true)
        }
        Err(error) => Err(error.to_string()),
    })
    .await
    .unwrap();
    connected.unwrap()
}

/// A random duration.
pub(crate) fn between(least: u64, most: u64) -> Duration {
    Duration::from_millis(rand::rng().random_range(least..=most))
}

/// Messages that are published until it is stopped.
pub(crate) struct Load {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Load {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

struct Kill;

/// A service under a supervisor that restarts it at once.
pub(crate) struct Supervised {
    orders: mpsc::Sender<Kill>,
    task: JoinHandle<usize>,
}

impl Supervised {
    /// SIGKILL, and a new one.
    pub(crate) async fn kill(&self) {
        let _ = self.orders.send(Kill).await;
    }

    /// Stops it in good order; how often it died before.
    pub(crate) async fn stop(self) -> usize {
        drop(self.orders);
        self.task.await.unwrap()
    }
}
