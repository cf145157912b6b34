//! What is measured: three jobs on one broker.

use std::time::Duration;

use rehop::testing::{Broker, Client, Namespace, Publish};
use rehop::{Backoff, Settings};
use secrecy::SecretString;

use crate::{PREFETCH, Result};

/// How much of each job.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) rounds: usize,
    pub(crate) success: usize,
    pub(crate) wait: usize,
    pub(crate) requeue: usize,
}

impl Sizes {
    pub(crate) const FULL: Self = Self { rounds: 5, success: 50_000, wait: 20_000, requeue: 5_000 };
    pub(crate) const QUICK: Self = Self { rounds: 1, success: 5_000, wait: 2_000, requeue: 500 };
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    /// Preloaded messages, a handler that does nothing.
    Success,
    /// Each message waits once and then succeeds.
    Wait,
    /// Each message is requeued until the next time would pass the delivery limit, and then parked.
    Requeue,
}

/// How long each message waits.
pub(crate) const WAIT: Duration = Duration::from_secs(2);
/// The queue's delivery limit: this many deliveries, then the parked queue.
pub(crate) const DELIVERY_LIMIT: u32 = 4;

impl Job {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Wait => "wait",
            Self::Requeue => "requeue",
        }
    }

    pub(crate) fn messages(self, sizes: Sizes) -> usize {
        match self {
            Self::Success => sizes.success,
            Self::Wait => sizes.wait,
            Self::Requeue => sizes.requeue,
        }
    }

    pub(crate) fn title(self, sizes: Sizes) -> String {
        let messages = self.messages(sizes);
        match self {
            Self::Success => format!("{messages} messages are handled"),
            Self::Wait => format!("{messages} messages wait {} s once and are handled then", WAIT.as_secs()),
            Self::Requeue => {
                format!("{messages} messages are requeued, delivered {DELIVERY_LIMIT} times each, and parked")
            }
        }
    }
}

/// The broker, and what every run needs of it.
pub(crate) struct Bench {
    broker: Broker,
    client: Client,
    pub(crate) sizes: Sizes,
}

impl Bench {
    pub(crate) async fn start(sizes: Sizes) -> Result<Self> {
        let broker = Broker::start().await?;
        let client = broker.client().await?;
        Ok(Self { broker, client, sizes })
    }

    pub(crate) fn version(&self) -> &str {
        self.broker.version()
    }

    pub(crate) fn url(&self) -> &str {
        self.broker.amqp_url()
    }

    /// Declares a namespace and a queue of its own for one run, and fills the queue.
    pub(crate) async fn prepare(&self, job: Job, variant: &str) -> Result<Prepared> {
        let namespace = Namespace::new(&format!("bench-{}", variant.split(' ').next().unwrap_or("run")));
        let queue = namespace.queue("orders");
        let mut settings = Settings::default();
        settings.namespace = namespace.name().to_owned();
        settings.broker.url = SecretString::from(self.url());
        settings.consume.prefetch = Some(PREFETCH);
        settings.consume.concurrency = Some(PREFETCH);
        settings.retry.delivery_limit = Some(DELIVERY_LIMIT);
        settings.retry.immediate = Some(if job == Job::Requeue { DELIVERY_LIMIT - 1 } else { 0 });
        let delays = if job == Job::Wait { vec![WAIT] } else { Vec::new() };
        settings.retry.delays = Some(Backoff::List(delays));
        settings.queue_mut(&queue);
        rehop::Topology::of(&settings)?.declare(&settings).await?;
        let count = job.messages(self.sizes);
        let messages = (0..count).map(|id| Publish::to_queue(&queue).body(vec![b'x'; 1024]).message_id(id.to_string()));
        self.client.publish_many(messages).await?;
        Ok(Prepared { settings, namespace, queue, count })
    }

    /// How many messages of a run are in none of the places where they should be, and then removes its queues.
    pub(crate) async fn lost(&self, job: Job, run: &Prepared, handled: usize) -> Result<u64> {
        let parked = format!("{}.parked", run.queue);
        let in_parked = self.client.depth(&parked).await? as usize;
        let expected = if job == Job::Requeue { in_parked } else { handled };
        self.client.delete_queue(&run.queue).await?;
        self.client.delete_queue(&parked).await?;
        Ok(run.count.saturating_sub(expected) as u64)
    }
}

/// One run's own corner of the broker.
pub(crate) struct Prepared {
    pub(crate) settings: Settings,
    pub(crate) namespace: Namespace,
    pub(crate) queue: String,
    pub(crate) count: usize,
}
