//! The topology as a plain value: what is declared, checked, printed and drawn.

pub(crate) mod declare;
mod dot;
pub(crate) mod watch;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::settings::{Declare, QueuePlan};
use crate::tiers::Tiers;

/// The exchanges, queues and bindings that a configuration needs.
///
/// ```
/// let settings = rehop::Settings::default();
/// let topology = rehop::Topology::of(&settings)?;
/// assert!(topology.exchanges.iter().any(|exchange| exchange.name == "rehop.wait"));
/// # Ok::<(), rehop::SettingsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Topology {
    /// In the order in which they are declared.
    pub exchanges: Vec<Exchange>,
    /// In the order in which they are declared.
    pub queues: Vec<Queue>,
    /// Declared last.
    pub bindings: Vec<Binding>,
}

/// An exchange. All of rehop's are durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Exchange {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: ExchangeKind,
    /// Its arguments.
    pub arguments: Arguments,
}

/// The type of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ExchangeKind {
    /// Routes by headers, so that the routing key travels untouched.
    Headers,
    /// Routes by the whole routing key.
    Direct,
    /// Routes to every binding.
    Fanout,
}

impl ExchangeKind {
    /// The type's name in AMQP.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Headers => "headers",
            Self::Direct => "direct",
            Self::Fanout => "fanout",
        }
    }
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Whether rehop declares it, or takes it as somebody else declared it.
    pub declare: Declare,
    /// The arguments that it is declared with; empty when it is taken as it is.
    pub arguments: Arguments,
}

/// What a queue is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// Handlers consume from it.
    Work,
    /// Messages wait in it.
    Wait,
    /// Messages end in it.
    Parked,
    /// What matched no route is kept in it.
    Stray,
}

impl Role {
    /// The role in one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Wait => "wait",
            Self::Parked => "parked",
            Self::Stray => "stray",
        }
    }
}

/// A binding of a queue to an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Binding {
    /// The exchange.
    pub exchange: String,
    /// The queue.
    pub queue: String,
    /// The binding's routing key.
    pub routing_key: String,
    /// The binding's arguments.
    pub arguments: Arguments,
}

/// The arguments of an exchange, queue or binding, by name.
pub type Arguments = BTreeMap<String, Argument>;

/// The value of an argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Argument {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

impl From<&str> for Argument {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for Argument {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<i64> for Argument {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl std::fmt::Display for Argument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// The names of what belongs to a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    namespace: String,
}

impl Names {
    pub(crate) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned() }
    }

    /// Takes messages into the wait queues, by `wait-for`.
    pub(crate) fn wait(&self) -> String {
        format!("{}.wait", self.namespace)
    }

    /// The wait queue of one tier.
    pub(crate) fn tier(&self, ttl: Duration) -> String {
        format!("{}.wait.{}", self.namespace, ttl.as_millis())
    }

    /// Brings messages home, by `return-to`.
    pub(crate) fn return_(&self) -> String {
        format!("{}.return", self.namespace)
    }

    /// Takes messages to their parked queue, by the work queue's name.
    pub(crate) fn park(&self) -> String {
        format!("{}.park", self.namespace)
    }

    /// Exchange and queue of what matched no route.
    pub(crate) fn stray(&self) -> String {
        format!("{}.stray", self.namespace)
    }
}

/// The longest name that AMQP can carry.
pub(crate) const MAX_NAME_BYTES: usize = 255;

pub(crate) fn build(names: &Names, plans: &[QueuePlan]) -> Topology {
    let mut topology = Topology { exchanges: exchanges(names), queues: Vec::new(), bindings: Vec::new() };
    topology.stray(names);
    let tiers = Tiers::new(plans.iter().flat_map(|plan| plan.policy.tiers.iter()));
    for ttl in tiers.iter() {
        topology.tier(names, ttl);
    }
    for plan in plans {
        topology.work_queue(names, plan);
    }
    topology
}

/// Where our exchanges match no binding, the message goes to the stray queue: a confirm means that it is kept, and confirms
/// can be pipelined. Dead-lettering follows alternate exchanges too (3.10, 4.0 and 4.3).
fn exchanges(names: &Names) -> Vec<Exchange> {
    let to_stray = || Arguments::from([("alternate-exchange".to_owned(), Argument::Text(names.stray()))]);
    let exchange = |name, kind, arguments| Exchange { name, kind, arguments };
    vec![
        exchange(names.stray(), ExchangeKind::Fanout, Arguments::new()),
        exchange(names.wait(), ExchangeKind::Headers, to_stray()),
        exchange(names.return_(), ExchangeKind::Headers, to_stray()),
        exchange(names.park(), ExchangeKind::Direct, to_stray()),
    ]
}

fn arguments<const N: usize>(arguments: [(&str, Argument); N]) -> Arguments {
    arguments.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

impl Topology {
    /// The topology of all queues in the settings.
    ///
    /// # Errors
    ///
    /// When the settings contradict themselves.
    pub fn of(settings: &crate::Settings) -> Result<Self, crate::SettingsError> {
        Ok(settings.plan()?.topology())
    }

    fn queue(&mut self, name: &str, role: Role, declare: Declare, arguments: Arguments) {
        self.queues.push(Queue { name: name.to_owned(), role, declare, arguments });
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
        self.queue(&stray, Role::Stray, Declare::Own, arguments([("x-queue-type", "quorum".into())]));
        self.bind(&stray, &stray, "", Arguments::new());
    }

    /// `at-least-once` holds without loss only together with `reject-publish`: without it RabbitMQ accepts the strategy and
    /// falls back to `at-most-once` (3.10, 4.0 and 4.3).
    fn tier(&mut self, names: &Names, ttl: Duration) {
        let queue = names.tier(ttl);
        let millis = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        self.queue(
            &queue,
            Role::Wait,
            Declare::Own,
            arguments([
                ("x-queue-type", "quorum".into()),
                ("x-message-ttl", millis.into()),
                ("x-dead-letter-exchange", (&names.return_()).into()),
                ("x-dead-letter-strategy", "at-least-once".into()),
                ("x-overflow", "reject-publish".into()),
            ]),
        );
        let matching = arguments([("x-match", "all".into()), (crate::headers::WAIT_FOR, millis.into())]);
        self.bind(&names.wait(), &queue, "", matching);
    }

    /// The limit leads to the parked queue and nowhere else: one that leads to a wait queue is a dead-letter cycle, which the
    /// broker drops or holds for ever (3.10, 4.0 and 4.3).
    fn work_queue(&mut self, names: &Names, plan: &QueuePlan) {
        let own = arguments([
            ("x-queue-type", "quorum".into()),
            ("x-delivery-limit", i64::from(plan.policy.delivery_limit).into()),
            ("x-dead-letter-exchange", (&names.park()).into()),
            ("x-dead-letter-routing-key", (&plan.queue).into()),
            ("x-dead-letter-strategy", "at-least-once".into()),
            ("x-overflow", "reject-publish".into()),
        ]);
        let declared = match plan.declare {
            Declare::Own => own,
            Declare::Existing => Arguments::new(),
        };
        self.queue(&plan.parked, Role::Parked, Declare::Own, arguments([("x-queue-type", "quorum".into())]));
        self.bind(&names.park(), &plan.parked, &plan.queue, Arguments::new());
        self.queue(&plan.queue, Role::Work, plan.declare, declared);
        let home = arguments([("x-match", "all".into()), (crate::headers::RETURN_TO, (&plan.queue).into())]);
        self.bind(&names.return_(), &plan.queue, "", home);
        for binding in &plan.bindings {
            self.bind(&binding.exchange, &plan.queue, &binding.routing_key, Arguments::new());
        }
    }
}

#[cfg(test)]
mod tests;
