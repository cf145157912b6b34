//! What a queue does: its arguments and its policy, put together by each version's rules.

use lapin::types::{AMQPValue, FieldTable};

use crate::arguments::QueueType;
use crate::headers::{integer_of, string};
use crate::names::Name;
use crate::protocol::{Time, Version};

/// From 4.0 on a quorum queue has this delivery limit if nobody says otherwise.
const DEFAULT_DELIVERY_LIMIT: i64 = 20;

/// What happens to a message that is one too many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// The oldest one goes.
    #[default]
    DropHead,
    /// It is not taken, and its publisher hears so.
    RejectPublish,
}

/// Which returned messages wait before they are delivered again (4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DelayedRetryType {
    All,
    Failed,
    Returned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DelayedRetry {
    pub(crate) kind: DelayedRetryType,
    pub(crate) min: Time,
    pub(crate) max: Time,
}

/// What is in effect for a queue.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) version: Version,
    pub(crate) delivery_limit: Option<i64>,
    pub(crate) message_ttl: Option<Time>,
    pub(crate) max_length: Option<usize>,
    pub(crate) overflow: Overflow,
    pub(crate) dead_letter_exchange: Option<Name>,
    pub(crate) dead_letter_routing_key: Option<Name>,
    pub(crate) is_at_least_once: bool,
    pub(crate) is_single_active_consumer: bool,
    pub(crate) consumer_timeout: Option<Time>,
    pub(crate) delayed_retry: Option<DelayedRetry>,
}

impl Settings {
    pub(crate) fn new(
        version: Version,
        kind: QueueType,
        arguments: &FieldTable,
        policy: Option<&FieldTable>,
    ) -> Self {
        let lookup = Lookup { arguments, policy };
        // A quorum queue accepts reject-publish-dlx, and drops the oldest all the same.
        let overflow = match lookup.policy_or_argument("x-overflow") {
            Some("reject-publish") => Overflow::RejectPublish,
            Some("reject-publish-dlx") if kind == QueueType::Classic => Overflow::RejectPublish,
            _ => Overflow::DropHead,
        };
        let text = |key| lookup.argument_or_policy(key).map(Name::from);
        // Without reject-publish, a queue accepts the strategy at-least-once and does not follow it
        // (all versions).
        let is_at_least_once = lookup.argument_or_policy("x-dead-letter-strategy")
            == Some("at-least-once")
            && overflow == Overflow::RejectPublish
            && kind == QueueType::Quorum;
        Self {
            version,
            delivery_limit: if kind == QueueType::Quorum {
                lookup.delivery_limit(version)
            } else {
                None
            },
            message_ttl: lookup.number("x-message-ttl", i64::min).map(milliseconds),
            max_length: lookup.number("x-max-length", i64::min).map(size),
            overflow,
            dead_letter_exchange: text("x-dead-letter-exchange"),
            dead_letter_routing_key: text("x-dead-letter-routing-key"),
            is_at_least_once,
            is_single_active_consumer: arguments.inner().get("x-single-active-consumer")
                == Some(&AMQPValue::Boolean(true)),
            // 3.10.8 only has the node's setting.
            consumer_timeout: lookup
                .number("x-consumer-timeout", i64::min)
                .filter(|_| version >= Version::V4_0)
                .map(milliseconds),
            delayed_retry: if version >= Version::V4_3 { lookup.delayed_retry() } else { None },
        }
    }
}

/// An argument `x-name` and a policy's `name` mean the same.
struct Lookup<'a> {
    arguments: &'a FieldTable,
    policy: Option<&'a FieldTable>,
}

impl<'a> Lookup<'a> {
    fn number(&self, argument: &str, resolve: impl Fn(i64, i64) -> i64) -> Option<i64> {
        let policy =
            self.policy.and_then(|policy| integer_of(policy, argument.trim_start_matches("x-")));
        match (policy, integer_of(self.arguments, argument)) {
            (Some(policy), Some(argument)) => Some(resolve(policy, argument)),
            (policy, argument) => policy.or(argument),
        }
    }

    fn policy_or_argument(&self, argument: &str) -> Option<&'a str> {
        self.policy_text(argument).or_else(|| string(self.arguments, argument))
    }

    fn argument_or_policy(&self, argument: &str) -> Option<&'a str> {
        string(self.arguments, argument).or_else(|| self.policy_text(argument))
    }

    fn policy_text(&self, argument: &str) -> Option<&'a str> {
        string(self.policy?, argument.trim_start_matches("x-"))
    }

    /// The smaller limit wins. On 4.x one below 0 means none, and then the other wins.
    fn delivery_limit(&self, version: Version) -> Option<i64> {
        if version == Version::V3_10 {
            return self.number("x-delivery-limit", i64::min);
        }
        let resolve = |policy: i64, argument: i64| {
            if policy < 0 || argument < 0 { policy.max(argument) } else { policy.min(argument) }
        };
        let limit = self.number("x-delivery-limit", resolve).unwrap_or(DEFAULT_DELIVERY_LIMIT);
        (limit >= 0).then_some(limit)
    }

    /// A type that 4.3 does not know, or a minimum that is missing or not positive, means no delay
    /// and no error.
    fn delayed_retry(&self) -> Option<DelayedRetry> {
        let kind = match self.policy_or_argument("x-delayed-retry-type")? {
            "all" => DelayedRetryType::All,
            "failed" => DelayedRetryType::Failed,
            "returned" => DelayedRetryType::Returned,
            _ => return None,
        };
        let min = self.number("x-delayed-retry-min", i64::min).filter(|min| *min > 0)?;
        let max =
            self.number("x-delayed-retry-max", i64::min).filter(|max| *max > 0).unwrap_or(min);
        Some(DelayedRetry { kind, min: milliseconds(min), max: milliseconds(max) })
    }
}

fn milliseconds(value: i64) -> Time {
    Time::from_millis(u64::try_from(value).unwrap_or_default())
}

fn size(value: i64) -> usize {
    usize::try_from(value).unwrap_or_default()
}
