//! What was seen on the broker, as plain data.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use rehop::Timestamp;
use rehop::internals::CONSUMER_TIMEOUT;
use rehop::topology::{Argument, Arguments, Exchange, ExchangeKind};

/// What was seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Observed {
    pub(super) exchanges: BTreeMap<String, Existence>,
    pub(super) queues: BTreeMap<String, QueueState>,
    /// What the user may not do, in the broker's words.
    pub(super) denied: Vec<Denied>,
    /// Why the user may not report what becomes of replayed messages.
    pub(super) report_denied: Option<String>,
    /// The largest frame that the broker allows, in bytes; 0 if it sets no limit or was not asked.
    pub(super) frame_max: u32,
    /// The broker refused to compare arguments, because the user may not declare.
    pub(super) is_not_compared: bool,
    /// The broker blocked a connection that published, as it does during an alarm.
    pub(super) is_blocked: bool,
    /// When the oldest message of a parked queue was parked.
    pub(super) oldest_parked: BTreeMap<String, Timestamp>,
    pub(super) management: Option<Management>,
    /// Why the management API that the settings name cannot be used.
    pub(super) management_problem: Option<String>,
    pub(super) unseen: Vec<String>,
}

/// Whether an exchange or queue exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Existence {
    Missing,
    /// It exists. The difference is the first that the broker named.
    Present {
        difference: Option<Difference>,
    },
    /// It exists, and cannot be served now.
    Unavailable {
        problem: String,
    },
    /// The user may not look at it.
    Hidden {
        problem: String,
    },
}

/// A queue as AMQP shows it.
#[derive(Debug, Clone)]
pub(super) struct QueueState {
    pub(super) existence: Existence,
    pub(super) ready: u64,
    pub(super) consumers: u32,
}

/// An argument with another value than the settings ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) argument: String,
    pub(super) wanted: String,
    pub(super) found: String,
}

/// A permission that the user lacks.
#[derive(Debug, Clone)]
pub(super) struct Denied {
    pub(super) what: String,
    pub(super) problem: String,
}

/// The request that makes the broker compare an object, such as `queue "orders"`.
pub(super) fn declaring(object: &str) -> String {
    format!("declaring {object}")
}

impl Observed {
    /// The broker's reason for not letting the user declare this object, if it gave one.
    pub(super) fn denied_to_declare(&self, object: &str) -> Option<&str> {
        let what = declaring(object);
        self.denied.iter().find(|denied| denied.what == what).map(|denied| denied.problem.as_str())
    }
}

/// An exchange or a queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Object {
    Exchange(String),
    Queue(String),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exchange(name) if name.is_empty() => f.write_str("the default exchange"),
            Self::Exchange(name) => write!(f, "exchange {name:?}"),
            Self::Queue(name) => write!(f, "queue {name:?}"),
        }
    }
}

/// What only the management API shows.
#[derive(Debug, Clone, Default)]
pub(super) struct Management {
    pub(super) queues: BTreeMap<String, QueueDetails>,
    /// The bindings of each queue.
    pub(super) bindings: BTreeMap<String, Vec<BindingDetails>>,
    /// Those of the topology, those that its queues dead-letter to, and others on the way of
    /// dead-lettered messages.
    pub(super) exchanges: BTreeMap<String, ExchangeDetails>,
    /// The bindings that lead out of each of these exchanges.
    pub(super) destinations: BTreeMap<String, Vec<BindingDetails>>,
    /// Somebody else's queues on the way of dead-lettered messages.
    pub(super) passed: BTreeMap<String, QueueDetails>,
    /// What would be on their way, and does not exist.
    pub(super) absent: BTreeSet<Object>,
    /// What the API could not be asked about, which is said elsewhere.
    pub(super) refused: BTreeSet<Object>,
    /// The bindings of exchanges to each exchange that the topology binds others to.
    pub(super) sources: BTreeMap<String, Vec<BindingDetails>>,
    /// All queues of the namespace whose names are those of wait queues: tiers and rungs of the
    /// ladder.
    pub(super) wait_queues: Vec<QueueDetails>,
    /// The exchanges of the namespace whose names are those of exchanges that lead to wait queues,
    /// but for the one of the shared tiers.
    pub(super) wait_exchanges: Vec<ExchangeDetails>,
    /// The consumers of the namespace's work queues, by queue, those included that the settings do
    /// not name. `None` if they are not known, or not all of them.
    pub(super) consumers: BTreeMap<String, Option<Vec<ConsumerDetails>>>,
    pub(super) nodes: Vec<Node>,
    /// Of the node that answered. Asked for only where the nodes tell no version.
    pub(super) overview: Option<Overview>,
    pub(super) flags: Vec<Flag>,
    pub(super) limits: LimitsSeen,
}

/// A queue as the management API shows it. What is `None` it does not tell: counts until the broker
/// has taken its first sample; counts, consumers and, on 4.0, policies where the broker collects no
/// statistics.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct QueueDetails {
    pub(super) name: String,
    #[serde(rename = "type", deserialize_with = "lenient")]
    pub(super) kind: String,
    #[serde(deserialize_with = "lenient")]
    pub(super) auto_delete: bool,
    #[serde(deserialize_with = "lenient")]
    pub(super) exclusive: bool,
    #[serde(deserialize_with = "object")]
    pub(super) arguments: Map<String, Value>,
    #[serde(deserialize_with = "lenient")]
    pub(super) policy: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) operator_policy: Option<String>,
    #[serde(rename = "effective_policy_definition", deserialize_with = "object_if_told")]
    pub(super) effective_policy: Option<Map<String, Value>>,
    #[serde(deserialize_with = "lenient")]
    pub(super) messages: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub(super) messages_ready: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub(super) state: Option<String>,
    /// Only quorum queues have it.
    #[serde(deserialize_with = "lenient")]
    pub(super) messages_dlx: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub(super) message_bytes_ready: Option<u64>,
    /// Only quorum queues have it.
    #[serde(deserialize_with = "lenient")]
    pub(super) message_bytes_dlx: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub(super) consumers: Option<u32>,
    #[serde(rename = "consumer_details", deserialize_with = "lenient")]
    pub(super) subscriptions: Option<Vec<ConsumerDetails>>,
    #[serde(deserialize_with = "lenient")]
    pub(super) members: Option<Vec<String>>,
    #[serde(deserialize_with = "lenient")]
    pub(super) online: Option<Vec<String>>,
}

/// How the broker delays returned messages (4.3): for `least` times the delivery count, and for
/// `longest` at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DelayedRetry<'a> {
    /// `all`, `failed` or `returned`.
    pub(super) kind: &'a str,
    pub(super) least: i64,
    pub(super) longest: i64,
}

/// From this delivery limit on, one look more or less does not matter.
pub(super) const LIMIT_OUT_OF_REACH: i64 = 1_000_000;

/// How often the broker lets a message return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeliveryLimit {
    /// Nothing sets it, so the broker's default applies.
    Unset,
    /// The API does not tell what a policy sets, or what a negative limit means depends on a
    /// version that it does not tell.
    Unknown,
    /// As often as it happens.
    Unlimited,
    At(i64),
}

/// A consumer of a queue.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConsumerDetails {
    /// The node's `consumer_timeout` in milliseconds (4.0 and 4.3).
    #[serde(deserialize_with = "lenient")]
    pub(super) consumer_timeout: Option<u64>,
    #[serde(deserialize_with = "object")]
    pub(super) arguments: Map<String, Value>,
    #[serde(rename = "channel_details", deserialize_with = "lenient")]
    pub(super) channel: Option<ChannelDetails>,
}

/// The channel of a consumer.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChannelDetails {
    pub(super) name: String,
}

impl ConsumerDetails {
    /// The ack timeout that the consumer asks for, in milliseconds.
    pub(super) fn asked_timeout(&self) -> Option<u64> {
        self.arguments.get(CONSUMER_TIMEOUT).and_then(Value::as_u64)
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct BindingDetails {
    pub(super) source: String,
    pub(super) destination: String,
    pub(super) destination_type: String,
    pub(super) routing_key: String,
    #[serde(deserialize_with = "object")]
    pub(super) arguments: Map<String, Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ExchangeDetails {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(deserialize_with = "object")]
    pub(super) arguments: Map<String, Value>,
    #[serde(deserialize_with = "lenient")]
    pub(super) policy: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    pub(super) name: String,
    #[serde(deserialize_with = "lenient")]
    pub(super) running: Option<bool>,
    #[serde(deserialize_with = "lenient")]
    pub(super) mem_alarm: Option<bool>,
    #[serde(deserialize_with = "lenient")]
    pub(super) disk_free_alarm: Option<bool>,
    #[serde(deserialize_with = "lenient")]
    pub(super) fd_used: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub(super) fd_total: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub(super) mem_used: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub(super) mem_limit: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub(super) disk_free: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub(super) disk_free_limit: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub(super) partitions: Option<Vec<String>>,
    #[serde(deserialize_with = "lenient")]
    pub(super) applications: Vec<Application>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Application {
    pub(super) name: String,
    pub(super) version: String,
}

/// The broker as a whole.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Overview {
    #[serde(rename = "rabbitmq_version", deserialize_with = "lenient")]
    pub(super) version: Option<String>,
    /// Whether it collects no statistics, or shows none.
    #[serde(rename = "disable_stats", deserialize_with = "lenient")]
    pub(super) is_without_statistics: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Flag {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) stability: String,
}

/// The limits of a user or a virtual host, each by its name.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct LimitValues {
    #[serde(default)]
    pub(super) value: Map<String, Value>,
}

/// A connection, for the counts of its user and its virtual host.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConnectionDetails {
    pub(super) user: String,
    pub(super) vhost: String,
    pub(super) node: Option<String>,
    pub(super) channels: Option<u64>,
    pub(super) channel_max: Option<u64>,
}

/// What the API tells of limits.
#[derive(Debug, Clone, Default)]
pub(super) struct LimitsSeen {
    pub(super) user: String,
    pub(super) vhost: String,
    /// `None` if the API does not tell it.
    pub(super) of_user: Option<Vec<LimitValues>>,
    pub(super) of_vhost: Option<Vec<LimitValues>>,
    /// `None` also if it tells not all of them.
    pub(super) connections: Option<Vec<ConnectionDetails>>,
    pub(super) queues: Option<u64>,
}

impl ExchangeDetails {
    /// The type by which it routes. An exchange of the delayed-message plugin names it in an
    /// argument.
    pub(super) fn routing_type(&self) -> &str {
        let delayed = self.arguments.get("x-delayed-type").and_then(Value::as_str);
        delayed.filter(|_| self.kind == ExchangeKind::Delayed.as_str()).unwrap_or(&self.kind)
    }
}

impl Management {
    /// The version of any node.
    pub(super) fn version(&self) -> Option<&str> {
        let overview = || self.overview.as_ref().and_then(|overview| overview.version.as_deref());
        self.nodes.iter().find_map(Node::version).or_else(overview)
    }

    /// Whether quorum queues look after their consumers themselves (from 4.3 on): they give each
    /// the ack timeout that it asks for, and wait for those whose node has died.
    pub(super) fn queues_time_consumers(&self) -> bool {
        // A stopped node does not tell its version.
        self.version().is_some_and(|version| !is_before(version, [4, 3]))
            && !self.nodes.iter().any(|node| node.is_before([4, 3]))
    }
}

impl Node {
    /// The version of RabbitMQ that it runs.
    pub(super) fn version(&self) -> Option<&str> {
        let rabbit = self.applications.iter().find(|application| application.name == "rabbit");
        rabbit.map(|application| application.version.as_str())
    }

    /// Whether this application, such as a plugin, runs on it.
    pub(super) fn has(&self, application: &str) -> bool {
        self.applications.iter().any(|running| running.name == application)
    }

    /// Whether it is known to run a version before this one, such as `[4, 3]`.
    pub(super) fn is_before(&self, version: [u32; 2]) -> bool {
        self.version().is_some_and(|own| is_before(own, version))
    }
}

fn is_before(own: &str, version: [u32; 2]) -> bool {
    let parts = own.split('.').map(|part| part.parse().unwrap_or(0));
    parts.take(2).collect::<Vec<u32>>() < version.to_vec()
}

impl QueueDetails {
    /// The members of a quorum queue that are down, as far as the API tells its members.
    pub(super) fn members_down(&self) -> Option<Vec<&str>> {
        let (members, online) = (self.members.as_ref()?, self.online.as_ref()?);
        let is_down = |member: &&String| !online.contains(*member);
        (self.kind == "quorum")
            .then(|| members.iter().filter(is_down).map(String::as_str).collect())
    }

    /// Whether it has lost the majority of its members. It then accepts and delivers nothing, and
    /// the broker's view of its contents is outdated. On 4.0 and 4.3 so may be the list of members
    /// online, but its state is always current.
    pub(super) fn has_lost_majority(&self) -> bool {
        let members = self.members.as_ref().map_or(0, Vec::len);
        self.state.as_deref() == Some("minority")
            || self.members_down().is_some_and(|down| members > 0 && down.len() * 2 >= members)
    }

    /// Whether the node of its leader is gone, so that nobody can count what is in it.
    pub(super) fn is_without_leader(&self) -> bool {
        self.state.as_deref() == Some("down")
    }

    /// The number of a policy's key, such as `delivery-limit`.
    pub(super) fn policy_number(&self, key: &str) -> Option<i64> {
        self.by_policy(key).and_then(Value::as_i64)
    }

    /// What a policy sets, as far as the API tells.
    pub(super) fn by_policy(&self, key: &str) -> Option<&Value> {
        self.effective_policy.as_ref()?.get(key)
    }

    /// For overflow and delayed retries of quorum queues a policy overrides the argument; for
    /// dead-lettering the argument overrides a policy (3.10, 4.0 and 4.3).
    fn policy_wins(&self, key: &str) -> bool {
        self.kind == "quorum" && matches!(key, "overflow" | "delayed-retry-type")
    }

    /// The number of an argument; `key` is without its `x-`.
    pub(super) fn argument_number(&self, key: &str) -> Option<i64> {
        self.arguments.get(&format!("x-{key}")).and_then(Value::as_i64)
    }

    /// The smaller of argument and policy, which is what the broker takes for limits (3.10, 4.0 and
    /// 4.3).
    pub(super) fn smaller_number(&self, key: &str) -> Option<i64> {
        [self.argument_number(key), self.policy_number(key)].into_iter().flatten().min()
    }

    /// The delivery limit in effect, as argument and policy set it on a broker of this version.
    ///
    /// The smaller applies. A negative one yields to the other, and alone means no limit (4.0 and
    /// 4.3). On 3.10, where only the argument can be negative, the queue dead-letters what is
    /// returned once.
    pub(super) fn delivery_limit(&self, version: Option<&str>) -> DeliveryLimit {
        let [argument, policy] =
            [self.argument_number("delivery-limit"), self.policy_number("delivery-limit")];
        if self.effective_policy.is_none() {
            return DeliveryLimit::Unknown;
        }
        let is_old = version.map(|version| version.starts_with("3."));
        let set = argument.into_iter().chain(policy);
        match (set.clone().filter(|limit| *limit >= 0).min(), set.min(), is_old) {
            (_, None, _) => DeliveryLimit::Unset,
            (_, Some(..0), None) => DeliveryLimit::Unknown,
            (_, Some(..0), Some(true)) => DeliveryLimit::At(0),
            (Some(limit), _, _) => DeliveryLimit::At(limit),
            (None, Some(_), _) => DeliveryLimit::Unlimited,
        }
    }

    /// The text that is in effect, as far as the API tells.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        let (argument, policy) = (self.arguments.get(&format!("x-{key}")), self.by_policy(key));
        let value = if self.policy_wins(key) { policy.or(argument) } else { argument.or(policy) };
        value.and_then(Value::as_str)
    }

    /// The exchange that it dead-letters to, unless that is the default exchange, which always
    /// exists.
    pub(super) fn dead_letter_exchange(&self) -> Option<&str> {
        self.text("dead-letter-exchange").filter(|exchange| !exchange.is_empty())
    }

    /// Whether the broker keeps what it dead-letters until another queue has it. Any other overflow
    /// makes at-least-once silently at-most-once (3.10, 4.0 and 4.3).
    pub(super) fn dead_letters_at_least_once(&self) -> bool {
        self.kind == "quorum"
            && self.text("dead-letter-strategy") == Some("at-least-once")
            && self.text("overflow") == Some("reject-publish")
    }

    /// The delayed retries in effect, in milliseconds. `None`: messages that are returned come
    /// again at once.
    pub(super) fn delayed_retry(&self) -> Option<DelayedRetry<'_>> {
        let kind = self
            .text("delayed-retry-type")
            .filter(|kind| ["all", "failed", "returned"].contains(kind))?;
        let least = self.smaller_number("delayed-retry-min").filter(|least| *least > 0)?;
        let longest = self
            .smaller_number("delayed-retry-max")
            .filter(|longest| *longest > 0)
            .unwrap_or(least);
        Some(DelayedRetry { kind, least, longest })
    }

    /// Whether a policy sets anything of the delayed retries.
    pub(super) fn has_delayed_retry_policy(&self) -> bool {
        let keys = self.effective_policy.iter().flat_map(Map::keys);
        keys.into_iter().any(|key| key.starts_with("delayed-retry-"))
    }

    /// Where a policy's key comes from, to be named in a finding.
    pub(super) fn policies(&self) -> String {
        match (&self.policy, &self.operator_policy) {
            (Some(policy), Some(operator)) => {
                format!("policy {policy:?} or operator policy {operator:?}")
            }
            (Some(policy), None) => format!("policy {policy:?}"),
            (None, Some(operator)) => format!("operator policy {operator:?}"),
            (None, None) => "a policy".to_owned(),
        }
    }
}

/// Whether arguments that the broker reports are the wanted ones. Numbers are compared as numbers.
pub(super) fn same(wanted: &Argument, found: &Value) -> bool {
    match wanted {
        Argument::Number(number) => found.as_i64() == Some(*number),
        Argument::Flag(flag) => found.as_bool() == Some(*flag),
        Argument::Text(text) => found.as_str() == Some(text),
        _ => false,
    }
}

/// Every argument that differs, is missing or should not be there. Arguments that the broker does
/// not compare either, because it does not know them, are ignored.
pub(super) fn differences(wanted: &Arguments, found: &Map<String, Value>) -> Vec<Difference> {
    const COMPARED: [&str; 10] = [
        "x-expires",
        "x-message-ttl",
        "x-max-length",
        "x-max-length-bytes",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-delivery-limit",
        "x-single-active-consumer",
        "x-delayed-retry-type",
        "alternate-exchange",
    ];
    let shown = |value: &Value| {
        value.as_str().map_or_else(|| value.to_string(), |text| format!("{text:?}"))
    };
    let expected = wanted
        .iter()
        .filter(|(name, value)| !found.get(*name).is_some_and(|found| same(value, found)));
    let mut all: Vec<_> = expected
        .map(|(name, value)| Difference {
            argument: name.clone(),
            wanted: match value {
                Argument::Text(text) => format!("{text:?}"),
                value => value.to_string(),
            },
            found: found.get(name).map_or_else(|| "none".to_owned(), shown),
        })
        .collect();
    let extra = found
        .iter()
        .filter(|(name, _)| COMPARED.contains(&name.as_str()) && !wanted.contains_key(*name));
    all.extend(extra.map(|(name, value)| Difference {
        argument: name.clone(),
        wanted: "none".to_owned(),
        found: shown(value),
    }));
    all
}

/// The same for an exchange, which may also be of another type.
pub(super) fn exchange_differences(wanted: &Exchange, found: &ExchangeDetails) -> Vec<Difference> {
    let mut all = differences(&wanted.arguments, &found.arguments);
    if found.kind != wanted.kind.as_str() {
        let (wanted, found) = (format!("{:?}", wanted.kind.as_str()), format!("{:?}", found.kind));
        all.push(Difference { argument: "type".to_owned(), wanted, found });
    }
    all
}

/// A value of another type, which another version may send, counts as the default.
fn lenient<'de, D: Deserializer<'de>, T: Default + for<'a> Deserialize<'a>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(T::deserialize(value).unwrap_or_default())
}

/// Erlang cannot tell an empty object from an empty list, so one may come as the other.
fn object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    lenient(deserializer)
}

/// The same for an object that may be missing. No policy is shown as an empty object, or as null.
fn object_if_told<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Map<String, Value>>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Object(object) => Some(object),
        Value::Null => Some(Map::new()),
        Value::Array(list) if list.is_empty() => Some(Map::new()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn queue(details: Value) -> QueueDetails {
        serde_json::from_value(details).unwrap()
    }

    #[test]
    fn a_policy_overrides_some_arguments_of_a_quorum_queue_and_none_of_a_classic_one() {
        for (kind, key, expected) in [
            ("quorum", "overflow", "by policy"),
            ("quorum", "delayed-retry-type", "by policy"),
            ("quorum", "dead-letter-exchange", "by argument"),
            ("classic", "overflow", "by argument"),
        ] {
            let argument = format!("x-{key}");
            let (arguments, policy) =
                (json!({ argument: "by argument" }), json!({ key: "by policy" }));
            let both = json!({ "type": kind, "arguments": arguments, "effective_policy_definition": policy });
            assert_eq!(queue(both).text(key), Some(expected), "{kind} {key}");
            let alone = json!({ "type": kind, "effective_policy_definition": policy });
            assert_eq!(queue(alone).text(key), Some("by policy"), "{kind} {key}");
        }
    }

    #[test]
    fn every_policy_is_named_that_may_be_the_one() {
        for (policy, operator, expected) in [
            (json!("one"), json!("other"), "policy \"one\" or operator policy \"other\""),
            (json!("one"), json!(null), "policy \"one\""),
            (json!(null), json!("other"), "operator policy \"other\""),
            (json!(null), json!(null), "a policy"),
        ] {
            assert_eq!(
                queue(json!({ "policy": policy, "operator_policy": operator })).policies(),
                expected
            );
        }
    }

    #[test]
    fn arguments_differ_if_their_values_do_if_they_are_missing_or_if_they_should_not_be_there() {
        let wanted = Arguments::from([
            ("x-delivery-limit".to_owned(), Argument::Number(10)),
            ("x-message-ttl".to_owned(), Argument::Number(1_000)),
            ("x-overflow".to_owned(), "reject-publish".into()),
            ("x-single-active-consumer".to_owned(), true.into()),
        ]);
        let queue = queue(json!({ "arguments": {
            "x-delivery-limit": "10", "x-message-ttl": 1_000, "x-overflow": "drop-head", "x-max-length": 5, "x-unknown": 1,
        }}));
        let differences = differences(&wanted, &queue.arguments);
        let told =
            differences.iter().map(|it| [&it.argument, &it.wanted, &it.found].map(String::as_str));
        let expected = [
            ["x-delivery-limit", "10", "\"10\""],
            ["x-overflow", "\"reject-publish\"", "\"drop-head\""],
            ["x-single-active-consumer", "true", "none"],
            ["x-max-length", "none", "5"],
        ];
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }
}
