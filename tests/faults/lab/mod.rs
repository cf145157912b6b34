//! One case's part of a broker: a namespace, a record, and what is expected of the messages that
//! were sent.

mod closing;
mod parking;
mod progress;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rehop::Topology;
use rehop::topology::{ExchangeKind, Role};
use rehop_testing::{Broker, Client, Proxy, Publish, eventually};
use serde_json::json;

use crate::expectation::{Expected, Fate, Policy};
use crate::ground::{SOON, connect};
use crate::load::Load;
use crate::record::Reader;
use crate::service::{Config, Does, QueueConfig, Service, Supervised};

/// One case's part of a broker.
#[derive(Clone)]
pub(crate) struct Lab {
    pub(crate) admin_url: String,
    pub(crate) config: Config,
    directory: PathBuf,
    book: Arc<Mutex<Book>>,
    next: Arc<AtomicU64>,
    services: Arc<AtomicUsize>,
    _broker: Option<Arc<Broker>>,
}

/// What is known of the case's messages.
struct Book {
    expected: BTreeMap<u64, Expected>,
    /// By queue, over all services that ran.
    policies: Vec<Policy>,
    /// All queues that services have declared, with their roles. Wait queues of an earlier
    /// configuration stay.
    queues: BTreeMap<String, Role>,
    record: Reader,
    recovery: Option<Duration>,
    /// What went wrong before the account was made.
    complaints: Vec<String>,
}

impl Lab {
    pub(crate) fn new(admin_url: &str, config: Config, directory: PathBuf) -> Self {
        let book = Book {
            expected: BTreeMap::new(),
            policies: Vec::new(),
            queues: BTreeMap::new(),
            record: Reader::new(&config.record),
            recovery: None,
            complaints: Vec::new(),
        };
        Self {
            admin_url: admin_url.to_owned(),
            config,
            directory,
            book: Arc::new(Mutex::new(book)),
            next: Arc::new(AtomicU64::new(1)),
            services: Arc::default(),
            _broker: None,
        }
    }

    pub(crate) fn on(self, broker: Arc<Broker>) -> Self {
        Self { _broker: Some(broker), ..self }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn client(&self) -> Client {
        connect(&self.admin_url).await
    }

    /// Services notice after a few seconds that nothing comes from the broker, and the broker that
    /// nothing comes from them.
    pub(crate) fn notices_silence(&mut self) {
        self.config.heartbeat = Duration::from_secs(2);
    }

    /// The first queue's settings, to change before anything runs.
    pub(crate) fn work_mut(&mut self) -> &mut QueueConfig {
        &mut self.config.queues[0]
    }

    pub(crate) fn work(&self) -> &str {
        &self.config.work().name
    }

    pub(crate) fn parked(&self) -> String {
        self.config.work().parked()
    }

    pub(crate) fn stray(&self) -> String {
        self.exchange("stray")
    }

    pub(crate) fn tier(&self, millis: u64) -> String {
        format!("{}.wait.{millis}", self.config.namespace)
    }

    /// The wait queue of one rung of the ladder.
    pub(crate) fn rung(&self, millis: u64) -> String {
        format!("{}.ladder.{millis}", self.config.namespace)
    }

    pub(crate) fn exchange(&self, name: &str) -> String {
        format!("{}.{name}", self.config.namespace)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Declares everything, so that messages can be published before a service starts.
    pub(crate) async fn declare(&self) {
        let topology = self.topology_of(&self.config);
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
            // A new quorum queue refuses messages until it has a leader (3.10).
            let has_leader = async || client.depth(&queue.name).await.map(|_| true);
            eventually(SOON, "the queue has a leader", has_leader).await.unwrap();
        }
        for it in topology.bindings {
            client
                .bind(&it.queue, &it.exchange, &it.routing_key, json!(it.arguments))
                .await
                .unwrap();
        }
    }

    /// Declares what stands in for the plugin's exchange: the exchange, without the plugin's type,
    /// and a queue that keeps every message for this long. Services only check it, because they
    /// would declare it otherwise.
    pub(crate) async fn declare_with_stand_in(&mut self, millis: u64) {
        self.config.only_checks = true;
        self.declare().await;
        let (client, queue) = (self.client().await, self.stand_in());
        let arguments = json!({
            "x-queue-type": "quorum", "x-message-ttl": millis, "x-dead-letter-exchange": self.exchange("return"),
            "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
        });
        client.declare_queue(&queue, arguments).await.unwrap();
        client.bind(&queue, &self.exchange("delay"), "", json!({})).await.unwrap();
        self.book().queues.insert(queue, Role::Wait);
    }

    /// The queue that stands in for the plugin.
    pub(crate) fn stand_in(&self) -> String {
        self.exchange("stand-in")
    }

    /// The topology of a configuration. The ledger records it.
    fn topology_of(&self, config: &Config) -> Topology {
        // The shipped configuration has the same queues.
        let topology =
            Topology::of(&Config { shipped: None, ..config.clone() }.settings()).unwrap();
        let mut book = self.book();
        for queue in &topology.queues {
            book.queues.insert(queue.name.clone(), queue.role);
        }
        let queues = config.queues.len().max(book.policies.len());
        book.policies.resize_with(queues, Policy::default);
        for (policy, queue) in book.policies.iter_mut().zip(&config.queues) {
            policy.widen(queue);
        }
        topology
    }

    /// Publishes messages, waits for all confirms, and returns the number of the first.
    pub(crate) async fn send(&self, count: usize, does: Does) -> u64 {
        self.send_with(count, does, |message| message).await
    }

    pub(crate) async fn send_with(
        &self,
        count: usize,
        does: Does,
        change: impl Fn(Publish) -> Publish,
    ) -> u64 {
        self.send_to(0, count, does, change).await
    }

    /// The same, to one of several queues.
    pub(crate) async fn send_to(
        &self,
        queue: usize,
        count: usize,
        does: Does,
        change: impl Fn(Publish) -> Publish,
    ) -> u64 {
        let messages = self.offer(queue, std::iter::repeat_n(does, count));
        let ids: Vec<u64> = messages.iter().map(|(id, _)| *id).collect();
        self.client()
            .await
            .publish_many(messages.into_iter().map(|(_, message)| change(message)))
            .await
            .unwrap();
        self.confirmed(&ids);
        ids.first().copied().unwrap_or(0)
    }

    /// Messages with what is expected of them, before they are sent.
    pub(crate) fn offer(
        &self,
        queue: usize,
        kinds: impl IntoIterator<Item = Does>,
    ) -> Vec<(u64, Publish)> {
        let config = &self.config.queues[queue];
        let mut book = self.book();
        let mut messages = Vec::new();
        for does in kinds {
            let id = self.next.fetch_add(1, Ordering::SeqCst);
            let expected = Expected::new(id, queue, does, config);
            messages.push((id, expected.message(&config.name)));
            book.expected.insert(id, expected);
        }
        messages
    }

    pub(crate) fn confirmed(&self, ids: &[u64]) {
        let mut book = self.book();
        for id in ids {
            book.expected.get_mut(id).unwrap().confirmed = true;
        }
    }

    /// In this case, these messages end differently from others of their kind.
    pub(crate) fn expect(&self, ids: Range<u64>, fate: Fate) {
        for (_, expected) in self.book().expected.range_mut(ids) {
            (expected.fate, expected.diverted) = (fate, true);
        }
    }

    pub(crate) fn load(&self, per_second: u32) -> Load {
        Load::start(self.clone(), per_second)
    }

    pub(crate) fn service(&self) -> Service {
        self.service_with(&self.config)
    }

    pub(crate) fn service_with(&self, config: &Config) -> Service {
        self.topology_of(config);
        Service::start(config, &self.next_log())
    }

    fn next_log(&self) -> PathBuf {
        let number = self.services.fetch_add(1, Ordering::SeqCst);
        self.directory.join(format!("service-{number}.log"))
    }

    /// A service behind a proxy: its connections are number 0, which consumes, and 1, which
    /// publishes.
    pub(crate) async fn service_behind(&self) -> (Service, Proxy) {
        let proxy = Proxy::start(&self.admin_url).await.unwrap();
        (self.service_with(&self.behind(&proxy)), proxy)
    }

    pub(crate) fn behind(&self, proxy: &Proxy) -> Config {
        Config { url: proxy.url_for(&self.config.url).unwrap(), ..self.config.clone() }
    }

    /// A service that is restarted at once, however it ends.
    pub(crate) fn supervised(&self) -> Supervised {
        self.topology_of(&self.config);
        let lab = self.clone();
        Supervised::start(self.config.clone(), move || lab.next_log())
    }
}
