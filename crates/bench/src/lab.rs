//! The broker, and a part of it for each run.

use std::error::Error;
use std::time::Duration;

use rehop::settings::Secret;
use rehop::topology::Role;
use rehop::{Backoff, Settings, Topology};
use rehop_testing::{Broker, Client, Namespace, Publish};
use serde_json::json;

use crate::corner::Corner;
use crate::effort::Effort;
use crate::job::{DELIVERY_LIMIT, Job};
use crate::progress::Progress;
use crate::side::Side;
use crate::way::Way;
use crate::{PREFETCH, Result};

pub(crate) type Failed = Box<dyn Error + Send + Sync>;

pub(crate) struct Lab {
    broker: Broker,
    pub(crate) client: Client,
    pub(crate) has_delayed_exchanges: bool,
    pub(crate) effort: Effort,
    pub(crate) progress: Progress,
}

impl Lab {
    pub(crate) async fn start(effort: Effort) -> Result<Self> {
        let broker = Broker::start().await?;
        let client = broker.client().await?;
        let has_delayed_exchanges = has_delayed_exchanges(&broker).await?;
        Ok(Self { broker, client, has_delayed_exchanges, effort, progress: Progress::start() })
    }

    pub(crate) fn version(&self) -> &str {
        self.broker.version()
    }

    pub(crate) fn url(&self) -> &str {
        self.broker.amqp_url()
    }

    /// RabbitMQ delays what is given back from 4.3 on.
    pub(crate) fn knows_delayed_retry(&self) -> bool {
        let mut numbers = self.version().split('.').map(|number| number.parse().unwrap_or(0));
        (numbers.next(), numbers.next()) >= (Some(4), Some(3))
    }

    /// The ways to wait that this broker offers.
    pub(crate) fn ways(&self) -> Vec<Way> {
        let mut ways = vec![Way::Tiers, Way::Ladder(1), Way::Ladder(2), Way::Ladder(4)];
        ways.extend(self.knows_delayed_retry().then_some(Way::Native));
        ways.push(Way::InProcess);
        ways.extend(self.has_delayed_exchanges.then_some(Way::DelayedExchange));
        ways
    }

    /// The broker's CPU time so far, its operating system's share included. `None` if the broker is
    /// not ours to ask.
    pub(crate) async fn broker_cpu(&self) -> Option<Duration> {
        let answer = self
            .broker
            .rabbitmqctl(&["eval", "element(1, erlang:statistics(runtime))."])
            .await
            .ok()?;
        answer.trim().parse().ok().map(Duration::from_millis)
    }

    /// Declares a namespace and an empty queue. Both sides work on rehop's own topology.
    pub(crate) async fn corner(&self, job: Job, side: Side) -> Result<Corner> {
        let namespace = Namespace::new(&format!("bench-{}", side.word()));
        let queue = namespace.queue("orders");
        let mut settings = Settings::default();
        settings.namespace = namespace.name().to_owned();
        settings.broker.url = Secret::from(self.url());
        settings.consume.prefetch = Some(PREFETCH);
        settings.consume.concurrency = Some(PREFETCH);
        settings.retry.delivery_limit = Some(DELIVERY_LIMIT);
        settings.retry.immediate = Some(if job == Job::Requeue { DELIVERY_LIMIT - 1 } else { 0 });
        settings.retry.delays =
            Some(Backoff::List(job.way().map(Way::longest_wait).into_iter().collect()));
        if let Job::Wait(way) = job {
            way.choose(&mut settings);
        }
        settings.queue_mut(&queue);
        let idle: Vec<_> = (0..side.idle_queues())
            .map(|number| namespace.queue(&format!("idle-{number}")))
            .collect();
        for queue in &idle {
            settings.queue_mut(queue);
        }
        let topology = Topology::of(&settings)?;
        topology.declare(&settings).await?;
        let mut queues: Vec<_> =
            topology.queues.iter().map(|queue| (queue.name.clone(), queue.role)).collect();
        let parked = queues
            .iter()
            .find(|(name, role)| *role == Role::Parked && name.starts_with(&queue))
            .ok_or("no parked queue")?
            .0
            .clone();
        let cheap_wait = side.is_on_the_default_exchange().then(|| namespace.queue("cheap"));
        if let Some(name) = &cheap_wait {
            self.declare_cheap_wait(name, &queue).await?;
            queues.push((name.clone(), Role::Wait));
        }
        let exchanges = topology.exchanges.into_iter().map(|exchange| exchange.name).collect();
        Ok(Corner { settings, queue, parked, idle, cheap_wait, queues, exchanges })
    }

    async fn declare_cheap_wait(&self, name: &str, back_to: &str) -> Result<()> {
        let arguments = json!({
            "x-queue-type": "quorum",
            "x-message-ttl": Way::TIERS.as_millis() as u64,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": back_to,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        });
        Ok(self.client.declare_queue(name, arguments).await?)
    }

    pub(crate) async fn fill(&self, corner: &Corner, messages: usize) -> Result<()> {
        let messages = (0..messages)
            .map(|id| Publish::to_queue(&corner.queue).body(BODY).message_id(id.to_string()));
        self.client.publish_many(messages).await?;
        Ok(())
    }

    /// Deletes what the run declared, for the sake of the next run and of the owner of an external
    /// broker.
    pub(crate) async fn remove(&self, corner: Corner) -> Result<()> {
        for (queue, _) in &corner.queues {
            self.client.delete_queue(queue).await?;
        }
        for exchange in &corner.exchanges {
            self.client.delete_exchange(exchange).await?;
        }
        Ok(())
    }
}

/// Whether the broker has the delayed-message plugin. Asked on a connection of its own: 3.10 closes
/// it if not.
async fn has_delayed_exchanges(broker: &Broker) -> Result<bool> {
    let (client, name) = (broker.client().await?, Namespace::new("bench").queue("delay"));
    let is_there = client
        .declare_exchange(&name, "x-delayed-message", json!({ "x-delayed-type": "fanout" }))
        .await
        .is_ok();
    if is_there {
        client.delete_exchange(&name).await?;
    }
    Ok(is_there)
}

/// The body of every message.
pub(crate) const BODY: [u8; 1024] = [b'x'; 1024];
