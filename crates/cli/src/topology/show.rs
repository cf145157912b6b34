//! `rehop topology show`: what a configuration needs, without a broker.

use std::time::Duration;

use comfy_table::Table;
use rehop::settings::{Declare, Order, QueueSettings, WaitStrategy};
use rehop::topology::{Arguments, Role};
use rehop::{Settings, Topology};

use crate::output;

/// The topology, and what the policies allow.
#[derive(serde::Serialize)]
pub(super) struct Needs {
    namespace: String,
    #[serde(flatten)]
    pub(super) topology: Topology,
    limits: Vec<MessageLimits>,
    /// How many queues there are in all.
    queue_count: usize,
}

/// The upper limits for one message of a queue.
#[derive(serde::Serialize)]
struct MessageLimits {
    queue: String,
    /// How its messages wait.
    strategy: WaitStrategy,
    /// If its handler always fails.
    max_attempts: u32,
    /// If its consumer also crashes, as often as the broker allows.
    max_deliveries: u32,
    /// How long the waits of the policy last in all, if its handler always fails and asks for no
    /// other delays.
    max_wait_ms: u64,
    /// The same with its attempts, if each of them lasts for `consume.handler_timeout`.
    longest_chain_ms: u64,
    /// How many of the queues it waits in.
    wait_queues: usize,
    /// Whether other queues of the namespace may share them.
    shares_wait_queues: bool,
    /// How many messages the process that consumes it holds at most, if it is ordered.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_unsettled: Option<u16>,
}

impl Needs {
    pub(super) fn of(settings: &Settings) -> anyhow::Result<Self> {
        let limits = settings.queues.iter().map(|queue| {
            let policy = settings.policy(&queue.queue)?;
            Ok(MessageLimits {
                queue: queue.queue.clone(),
                max_attempts: policy.max_attempts(),
                max_deliveries: policy.max_deliveries(),
                strategy: policy.strategy(),
                max_wait_ms: millis(policy.total_wait()),
                longest_chain_ms: millis(settings.longest_chain(&queue.queue)?),
                wait_queues: wait_queues_of(settings, queue)?,
                shares_wait_queues: !settings.resolve()?.queue(&queue.queue)?.has_own_wait_queues(),
                max_unsettled: is_ordered(settings, queue)
                    .then(|| settings.max_unsettled(&queue.queue))
                    .transpose()?,
            })
        });
        let topology = Topology::of(settings)?;
        Ok(Self {
            namespace: settings.namespace.clone(),
            queue_count: topology.queues.len(),
            topology,
            limits: limits.collect::<anyhow::Result<_>>()?,
        })
    }

    pub(super) fn to_text(&self) -> String {
        let tables =
            [self.exchange_table(), self.queue_table(), self.binding_table(), self.limit_table()];
        let ordered = self.limits.iter().filter_map(|limit| {
            let held = match limit.max_unsettled? {
                1 => "one message".to_owned(),
                most => format!("{most} messages"),
            };
            Some(format!(
                "{}: one process at a time consumes it in order, and holds {held} at most",
                limit.queue
            ))
        });
        let count = format!("{} queues in all", self.queue_count);
        tables
            .iter()
            .map(Table::trim_fmt)
            .chain(ordered)
            .chain([count])
            .collect::<Vec<_>>()
            .join("\n\n")
    }

    fn exchange_table(&self) -> Table {
        let mut exchanges = output::table(["EXCHANGE", "TYPE", "ARGUMENTS"]);
        for exchange in &self.topology.exchanges {
            exchanges.add_row([
                &exchange.name,
                exchange.kind.as_str(),
                &lines(&exchange.arguments),
            ]);
        }
        exchanges
    }

    fn queue_table(&self) -> Table {
        let mut queues = output::table(["QUEUE", "ROLE", "DECLARED BY", "ARGUMENTS"]);
        for queue in &self.topology.queues {
            let owner = if queue.declare == Declare::Existing { "its owner" } else { "rehop" };
            queues.add_row([&queue.name, queue.role.as_str(), owner, &lines(&queue.arguments)]);
        }
        queues
    }

    fn binding_table(&self) -> Table {
        let mut bindings =
            output::table(["BINDING OF QUEUE", "TO EXCHANGE", "ROUTING KEY", "ARGUMENTS"]);
        for binding in &self.topology.bindings {
            let arguments = lines(&binding.arguments);
            bindings.add_row([&binding.queue, &binding.exchange, &binding.routing_key, &arguments]);
        }
        for binding in &self.topology.exchange_bindings {
            bindings.add_row([
                &format!("exchange {}", binding.destination),
                &binding.source,
                "",
                "",
            ]);
        }
        bindings
    }

    fn limit_table(&self) -> Table {
        let mut limits = output::table([
            "LIMITS OF QUEUE",
            "STRATEGY",
            "MAX ATTEMPTS",
            "MAX DELIVERIES, WITH CRASHES",
            "MAX WAIT IN ALL",
            "LONGEST CHAIN, WITH ATTEMPTS",
            "WAIT QUEUES",
        ]);
        for limit in &self.limits {
            limits.add_row([
                limit.queue.clone(),
                limit.strategy.to_string(),
                limit.max_attempts.to_string(),
                limit.max_deliveries.to_string(),
                text(limit.max_wait_ms),
                text(limit.longest_chain_ms),
                match limit.shares_wait_queues || limit.wait_queues == 0 {
                    true => limit.wait_queues.to_string(),
                    false => format!("{}, its own", limit.wait_queues),
                },
            ]);
        }
        limits
    }
}

/// How many wait queues there are if this is the only work queue.
fn wait_queues_of(settings: &Settings, queue: &QueueSettings) -> anyhow::Result<usize> {
    let mut alone = settings.clone();
    alone.queues = vec![queue.clone()];
    Ok(Topology::of(&alone)?.queues.iter().filter(|queue| queue.role == Role::Wait).count())
}

fn is_ordered(settings: &Settings, queue: &QueueSettings) -> bool {
    let order = queue.consume.order.as_ref().or(settings.consume.order.as_ref());
    order.is_some_and(Order::is_kept)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn text(millis: u64) -> String {
    humantime::format_duration(Duration::from_millis(millis)).to_string()
}

fn lines(arguments: &Arguments) -> String {
    arguments.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join("\n")
}
