//! The topology as a plain value: what is declared, checked, printed and drawn.

mod consumer_arguments;
mod delayed;
mod dot;
mod ladder;
mod names;
mod parts;

use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) use consumer_arguments::consumer_arguments;
pub use consumer_arguments::{CONSUMER_TIMEOUT, NAMESPACE, WAITS_IN, ask_for};
pub use names::Names;
pub use parts::{
    Argument, Arguments, Binding, Exchange, ExchangeBinding, ExchangeKind, Queue, Role, Topology,
};

use crate::retry::policy::RetryPolicy;
use crate::settings::{Declare, QueueConfig, QueueType, Resolved};
use crate::wait::WaitStrategy;
use crate::wire::names::{RETURN_TO, WAIT_FOR};

/// Everything that these queues need.
pub fn build(names: &Names, configs: &[QueueConfig]) -> Topology {
    let mut topology = shared(names, configs);
    for config in configs {
        let Topology { exchanges, queues, bindings, exchange_bindings } = own(names, config);
        topology.exchanges.extend(exchanges);
        topology.queues.extend(queues);
        topology.bindings.extend(bindings);
        topology.exchange_bindings.extend(exchange_bindings);
    }
    topology
}

/// What these queues share: the exchanges, the stray queue and the wait queues of every strategy
/// that one of them has.
pub(crate) fn shared(names: &Names, configs: &[QueueConfig]) -> Topology {
    let mut topology = Topology { exchanges: exchanges(names), ..Topology::default() };
    topology.stray(names);
    let sharing = configs.iter().filter(|config| !config.has_own_wait_queues());
    topology.wait_queues(names, sharing.map(|config| &config.policy));
    let mut policies = configs.iter().map(|config| &config.policy);
    if policies.any(|policy| policy.strategy() == WaitStrategy::DelayedExchange) {
        topology.delayed(names);
    }
    topology
}

/// Where a service that consumes these queues publishes copies.
pub fn copies_go_to(names: &Names, configs: &[QueueConfig]) -> BTreeSet<String> {
    let topology = build(names, configs);
    let leads_on = |name: &String| {
        topology.bindings.iter().any(|binding| binding.exchange == *name)
            || topology.exchange_bindings.iter().any(|binding| binding.source == *name)
    };
    let waits = configs.iter().flat_map(|config| {
        let names = names.waits_of(config);
        [names.wait(), names.ladder(), names.delay()]
    });
    waits.filter(leads_on).chain([names.park()]).collect()
}

/// What one queue needs in addition: itself, its parked queue, its own wait queues, and their
/// bindings.
pub(crate) fn own(names: &Names, config: &QueueConfig) -> Topology {
    let mut topology = Topology::default();
    if config.has_own_wait_queues() {
        let names = names.waits_of(config);
        if config.policy.strategy.tiers().next().is_some() {
            topology.exchanges.push(wait_exchange(&names));
        }
        topology.wait_queues(&names, [&config.policy].into_iter());
    }
    topology.work_queue(names, config);
    topology
}

/// What an operator needs to discard messages: not part of a service's topology, because only
/// operators publish there.
pub fn discarded(names: &Names) -> Topology {
    let (name, to_stray) = (names.discarded(), Argument::Text(names.stray()));
    let mut arguments = resting(names);
    // What has expired is gone: it has been discarded.
    for argument in ["x-dead-letter-exchange", "x-dead-letter-strategy"] {
        arguments.remove(argument);
    }
    arguments.insert("x-message-ttl".to_owned(), DISCARDED_FOR.into());
    let exchange = Exchange {
        name: name.clone(),
        kind: ExchangeKind::Fanout,
        arguments: Arguments::from([("alternate-exchange".to_owned(), to_stray)]),
    };
    let mut topology = Topology { exchanges: vec![exchange], ..Topology::default() };
    topology.queue(&name, Role::Discarded, Declare::Own, arguments);
    topology.bind(&name, &name, "", Arguments::new());
    topology
}

/// Discarded messages are kept for seven days, in milliseconds.
const DISCARDED_FOR: i64 = 7 * 24 * 60 * 60 * 1000;

/// If a message matches no binding of these exchanges, it goes to the stray queue. So a confirm
/// means that it is kept, and confirms can be pipelined. Dead-lettering follows alternate exchanges
/// too (3.10, 4.0 and 4.3).
fn exchanges(names: &Names) -> Vec<Exchange> {
    let to_stray = || alternate(names.stray());
    let exchange = |name, kind, arguments| Exchange { name, kind, arguments };
    vec![
        exchange(names.stray(), ExchangeKind::Fanout, Arguments::new()),
        wait_exchange(names),
        exchange(names.return_(), ExchangeKind::Headers, to_stray()),
        exchange(names.park(), ExchangeKind::Direct, to_stray()),
    ]
}

/// The exchange that routes to tiers.
fn wait_exchange(names: &Names) -> Exchange {
    let (kind, arguments) = (ExchangeKind::Headers, alternate(names.stray()));
    Exchange { name: names.wait(), kind, arguments }
}

/// The arguments of an exchange that passes on to another one what it cannot route.
fn alternate(exchange: String) -> Arguments {
    Arguments::from([("alternate-exchange".to_owned(), Argument::Text(exchange))])
}

fn arguments<const N: usize>(arguments: [(&str, Argument); N]) -> Arguments {
    arguments.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A delivery limit that is never reached. Messages in parked and stray queues are fetched and
/// returned by people who inspect them. RabbitMQ 4.0 and 4.3 count each return, and without a limit
/// they delete a message at the 21st. This limit works on 3.10, 4.0 and 4.3; -1, which means no
/// limit on 4.x, deletes at the first return on 3.10.
const OUT_OF_REACH: i64 = 1 << 31;

/// The arguments of a queue that keeps its messages. A policy's lower delivery limit or TTL would
/// still delete messages, so the queue dead-letters: a parked message to the stray queue. A stray
/// message would return to the queue that dead-lettered it. That is a cycle, and at-least-once
/// dead-lettering then holds the message (3.10, 4.0 and 4.3).
fn resting(names: &Names) -> Arguments {
    arguments([
        ("x-queue-type", "quorum".into()),
        ("x-delivery-limit", OUT_OF_REACH.into()),
        ("x-dead-letter-exchange", (&names.stray()).into()),
        ("x-dead-letter-strategy", "at-least-once".into()),
        ("x-overflow", "reject-publish".into()),
    ])
}

fn whole_millis(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)
}

/// The arguments of a binding that takes the messages in which this header names this TTL.
fn matching(header: &str, ttl: Duration) -> Arguments {
    arguments([("x-match", "all".into()), (header, whole_millis(ttl).into())])
}

/// What `x-delayed-retry-type` is called.
pub(crate) const DELAYED_RETRY_TYPE: &str = "x-delayed-retry-type";

/// The arguments of a queue in which what is nacked waits for this long (4.3 and later; before,
/// they are accepted and ignored). The broker multiplies the least delay by the delivery count, up
/// to the longest one: both are the same, so that a crash does not make waits longer. `returned`,
/// because `failed` would delay what a crash gave back, and count each wait towards the delivery
/// limit.
fn delayed_retry(delay: Duration) -> Arguments {
    let millis = || Argument::Number(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX));
    arguments([
        (DELAYED_RETRY_TYPE, "returned".into()),
        ("x-delayed-retry-min", millis()),
        ("x-delayed-retry-max", millis()),
    ])
}

impl Topology {
    /// The topology of all queues in the settings.
    ///
    /// # Errors
    ///
    /// When the settings contradict themselves.
    pub fn of(settings: &crate::Settings) -> Result<Self, crate::SettingsError> {
        let Resolved { settings, queues } = settings.resolve()?;
        Ok(build(&Names::new(&settings.namespace), &queues))
    }

    fn queue(&mut self, name: &str, role: Role, declare: Declare, arguments: Arguments) {
        self.queues.push(Queue {
            name: name.to_owned(),
            role,
            declare,
            queue_type: None,
            arguments,
        });
    }

    fn bind(&mut self, exchange: &str, queue: &str, routing_key: &str, arguments: Arguments) {
        self.bindings.push(Binding {
            exchange: exchange.to_owned(),
            queue: queue.to_owned(),
            routing_key: routing_key.to_owned(),
            arguments,
        });
    }

    fn stray(&mut self, names: &Names) {
        let stray = names.stray();
        self.queue(&stray, Role::Stray, Declare::Own, resting(names));
        self.bind(&stray, &stray, "", Arguments::new());
    }

    /// The wait queues that these policies need, under these names.
    fn wait_queues<'a>(
        &mut self,
        names: &Names,
        policies: impl Iterator<Item = &'a RetryPolicy> + Clone,
    ) {
        let tiers = policies.clone().flat_map(|policy| policy.strategy.tiers());
        for ttl in tiers.collect::<BTreeSet<_>>() {
            self.tier(names, ttl);
        }
        // All of a namespace's policies have the same ladder.
        if let Some(ladder) = policies.clone().find_map(RetryPolicy::used_ladder) {
            self.ladder(names, ladder);
        }
    }

    fn tier(&mut self, names: &Names, ttl: Duration) {
        let queue = names.tier(ttl);
        self.wait_queue(&queue, ttl, &names.return_());
        self.bind(&names.wait(), &queue, "", matching(WAIT_FOR, ttl));
    }

    /// A queue whose messages go to an exchange when they have waited this long. `at-least-once`
    /// works only together with `reject-publish`. Without it RabbitMQ accepts the strategy but
    /// falls back to `at-most-once` (3.10, 4.0 and 4.3).
    fn wait_queue(&mut self, queue: &str, ttl: Duration, then: &str) {
        let arguments = arguments([
            ("x-queue-type", "quorum".into()),
            ("x-message-ttl", whole_millis(ttl).into()),
            ("x-dead-letter-exchange", then.into()),
            ("x-dead-letter-strategy", "at-least-once".into()),
            ("x-overflow", "reject-publish".into()),
        ]);
        self.queue(queue, Role::Wait, Declare::Own, arguments);
    }

    /// The delivery limit leads only to the parked queue. If it led to a wait queue, that would be
    /// a dead-letter cycle, and the broker would drop the message or hold it forever (3.10, 4.0 and
    /// 4.3).
    fn work_queue(&mut self, names: &Names, config: &QueueConfig) {
        let mut own = arguments([
            ("x-queue-type", "quorum".into()),
            ("x-delivery-limit", i64::from(config.policy.delivery_limit).into()),
            ("x-dead-letter-exchange", (&names.park()).into()),
            ("x-dead-letter-routing-key", (&config.queue).into()),
            ("x-dead-letter-strategy", "at-least-once".into()),
            ("x-overflow", "reject-publish".into()),
        ]);
        if let Some(delay) = config.policy.strategy.delayed_return() {
            own.extend(delayed_retry(delay));
        }
        if config.order.is_kept() {
            own.insert("x-single-active-consumer".to_owned(), true.into());
        }
        let declared = match config.declare {
            Declare::Own => own,
            // Its owner declares it. What it must have is named, so that the broker is asked
            // whether it knows this.
            Declare::Existing => config
                .policy
                .strategy
                .delayed_return()
                .map(delayed_retry)
                .into_iter()
                .flatten()
                .collect(),
        };
        self.queue(&config.parked, Role::Parked, Declare::Own, resting(names));
        self.bind(&names.park(), &config.parked, &config.queue, Arguments::new());
        let is_quorum = config.declare == Declare::Existing && config.counts_deliveries;
        self.queues.push(Queue {
            name: config.queue.clone(),
            role: Role::Work,
            declare: config.declare,
            queue_type: is_quorum.then_some(QueueType::Quorum),
            arguments: declared,
        });
        let matching = arguments([("x-match", "all".into()), (RETURN_TO, (&config.queue).into())]);
        self.bind(&names.return_(), &config.queue, "", matching);
        for binding in &config.bindings {
            self.bind(&binding.exchange, &config.queue, &binding.routing_key, Arguments::new());
        }
    }
}

#[cfg(test)]
mod tests;
