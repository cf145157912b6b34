//! The configuration of one service process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rehop::settings::{
    Declare, Loader, Order, QueueType, Secret, TopologyMode, WaitQueues, WaitStrategy,
};
use rehop::{Backoff, Settings};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;

/// The configuration of a service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) url: String,
    pub(crate) namespace: String,
    pub(crate) queues: Vec<QueueConfig>,
    /// The topology is only checked, not declared.
    pub(crate) only_checks: bool,
    /// Uses the settings in the repository's `config/` with this profile, and the environment. Then
    /// only the names of the queues in this configuration count.
    pub(crate) shipped: Option<Shipped>,
    /// The process has this wall clock, and not the machine's.
    pub(crate) clock: Option<Clock>,
    pub(crate) grace: Duration,
    /// The time limit for one answer of the broker.
    pub(crate) answer: Duration,
    pub(crate) heartbeat: Duration,
    /// The broker's ack timeout, as the service is told.
    pub(crate) ack_timeout: Duration,
    pub(crate) startup: Duration,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) cert_file: Option<PathBuf>,
    pub(crate) key_file: Option<PathBuf>,
    /// Each step of each handler is appended to this file.
    pub(crate) record: PathBuf,
}

/// One of the queues of a service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct QueueConfig {
    pub(crate) name: String,
    /// The queue is an existing one of this type.
    pub(crate) existing: Option<QueueType>,
    pub(crate) parked: Option<String>,
    pub(crate) delays: Vec<u64>,
    pub(crate) immediate: u32,
    pub(crate) delivery_limit: u32,
    pub(crate) prefetch: u16,
    pub(crate) concurrency: u16,
    pub(crate) handler_timeout: Duration,
    pub(crate) strategy: WaitStrategy,
    pub(crate) order: Order,
}

/// Settings as users have them: files, and variables over them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Shipped {
    /// `None` means the built-in defaults with `config/default.toml`.
    pub(crate) profile: Option<String>,
    pub(crate) environment: Vec<(String, String)>,
}

impl QueueConfig {
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            existing: None,
            parked: None,
            delays: vec![200, 400],
            immediate: 0,
            delivery_limit: 10,
            prefetch: 100,
            concurrency: 10,
            handler_timeout: Duration::from_secs(60),
            strategy: WaitStrategy::Tiers,
            order: Order::None,
        }
    }

    pub(crate) fn parked(&self) -> String {
        self.parked.clone().unwrap_or_else(|| format!("{}.parked", self.name))
    }

    pub(crate) fn waits(&self) -> u32 {
        self.delays.len() as u32
    }
}

impl Config {
    /// The first queue. Most services have only one.
    pub(crate) fn work(&self) -> &QueueConfig {
        &self.queues[0]
    }

    pub(crate) fn settings(&self) -> Settings {
        match &self.shipped {
            Some(shipped) => shipped.settings(),
            None => self.own_settings(),
        }
    }

    fn longest_delay(&self) -> Duration {
        let delays = self.queues.iter().flat_map(|queue| &queue.delays);
        Duration::from_millis(delays.max().copied().unwrap_or_default())
    }

    fn own_settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.namespace.clone_from(&self.namespace);
        settings.broker.url = Secret::from(self.url.as_str());
        settings.broker.timeout = self.answer;
        settings.broker.heartbeat = self.heartbeat;
        settings.broker.consumer_timeout = self.ack_timeout;
        settings.broker.startup_timeout = self.startup;
        settings.broker.tls.ca_file.clone_from(&self.ca_file);
        settings.broker.tls.cert_file.clone_from(&self.cert_file);
        settings.broker.tls.key_file.clone_from(&self.key_file);
        settings.shutdown.grace = self.grace;
        // Each rung is a quorum queue, so there are only the three shortest, unless a delay needs
        // more.
        settings.ladder.max = self.longest_delay().max(Duration::from_secs(7));
        settings.topology =
            if self.only_checks { TopologyMode::Check } else { TopologyMode::Declare };
        // The default has to fit the ack timeout, too.
        settings.consume.handler_timeout = Some(self.work().handler_timeout);
        for config in &self.queues {
            let queue = settings.queue_mut(&config.name);
            queue.declare =
                if config.existing.is_some() { Declare::Existing } else { Declare::Own };
            queue.queue_type = config.existing;
            queue.parked.clone_from(&config.parked);
            let delays = config.delays.iter().copied().map(Duration::from_millis).collect();
            queue.retry.delays = Some(Backoff::List(delays));
            queue.retry.immediate = Some(config.immediate);
            queue.retry.delivery_limit = Some(config.delivery_limit);
            queue.consume.prefetch = Some(config.prefetch);
            queue.consume.concurrency = Some(config.concurrency);
            queue.consume.handler_timeout = Some(config.handler_timeout);
            queue.retry.strategy = Some(config.strategy);
            if self.only_checks {
                // As declared by a service to which the queue belongs.
                queue.retry.wait_queues = Some(WaitQueues::Shared);
            }
            queue.consume.order = Some(config.order.clone());
        }
        settings
    }

    /// Further variables in the environment of the service.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let mut environment: Vec<_> = self.clock.iter().flat_map(Clock::environment).collect();
        if let Some(shipped) = &self.shipped {
            environment.extend(shipped.environment.clone());
            environment.push(("REHOP_BROKER__URL".to_owned(), self.url.clone()));
            environment.push(("REHOP_NAMESPACE".to_owned(), self.namespace.clone()));
        }
        environment
    }
}

impl Shipped {
    /// Runs in the service's own process, which has the right environment.
    fn settings(&self) -> Settings {
        let loader =
            Loader::new().directory(Path::new(env!("CARGO_MANIFEST_DIR")).join("../config"));
        let loader = match &self.profile {
            Some(profile) => loader.profile(profile),
            None => loader,
        };
        loader.load().unwrap()
    }
}
