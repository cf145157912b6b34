//! Everything that the doctor checks.

use std::fmt;

use serde::Serialize;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Severity {
    /// Messages may be lost, expire or get stuck, or the service cannot work.
    Error,
    /// It works, but not as the settings say, or not through the next failure.
    Warning,
    /// Worth tidying up.
    Notice,
}

impl Severity {
    /// The severity in one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Notice => "notice",
        }
    }
}

/// Declares each check once, with its id, its severity, whether it is about the topology, and what
/// it finds.
macro_rules! checks {
    ($($check:ident, $id:literal, $severity:ident, $drift:literal, $finds:literal;)*) => {
        /// One thing that the doctor looks for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Check {
            $(#[doc = $finds] $check,)*
        }

        impl Check {
            /// All checks, the worst first.
            pub const ALL: &'static [Self] = &[$(Self::$check,)*];

            /// The id, which stays the same between versions.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$check => $id,)* }
            }

            /// How bad it is.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$check => Severity::$severity,)* }
            }

            /// Whether it is about the topology: exchanges, queues, bindings, and the policies on
            /// them.
            pub const fn is_drift(self) -> bool {
                match self { $(Self::$check => $drift,)* }
            }

            /// What it finds, in one sentence.
            pub const fn finds(self) -> &'static str {
                match self { $(Self::$check => $finds,)* }
            }
        }
    };
}

checks! {
    ExchangeMissing, "exchange-missing", Error, true, "An exchange does not exist.";
    QueueMissing, "queue-missing", Error, true, "A queue does not exist.";
    BindingMissing, "binding-missing", Error, true, "A binding does not exist, so messages go to the stray queue.";
    ArgumentsDiffer, "arguments-differ", Error, true, "A queue or exchange has other arguments than the settings ask for.";
    NoAlternateExchange, "no-alternate-exchange", Error, true, "An exchange does not have the stray exchange as its alternate, so unroutable messages are lost.";
    DeliveryLimitLowered, "delivery-limit-lowered", Error, true, "A delivery limit below rehop's is in effect, most often by a policy.";
    LengthLimit, "length-limit", Error, true, "A queue has a length limit: it refuses or drops messages when it is full.";
    MessageTtl, "message-ttl", Error, true, "A TTL that is not rehop's is in effect, so messages leave the queue by themselves.";
    QueueExpires, "queue-expires", Error, true, "The broker deletes the queue, with its messages, when it is unused for a time.";
    NoDeadLetterExchange, "no-dead-letter-exchange", Error, true, "A work queue that rehop does not declare has no dead-letter exchange, or the wrong routing key for it.";
    DeadLetterExchangeMissing, "dead-letter-exchange-missing", Error, true, "The dead-letter exchange of a queue does not exist, so the broker loses or holds what it dead-letters.";
    DeadLetterCycle, "dead-letter-cycle", Error, true, "The dead-letter exchange of a work queue leads back to that queue, so the broker drops or holds messages at the delivery limit.";
    DeadLettersUnroutable, "dead-letters-unroutable", Error, true, "What a work queue dead-letters reaches no queue, so the broker loses or holds it.";
    OrderNotKept, "order-not-kept", Error, true, "The settings ask for order, and the work queue lets several consumers take messages at the same time.";
    NativeDelayDiffers, "native-delay-differs", Error, true, "The broker delays a queue of strategy `native` differently from what the settings say, or not at all, most often by a policy.";
    StrategyUnknown, "strategy-unknown", Error, false, "A queue's strategy is unknown to a node of the broker: messages do not wait, or the service cannot start.";
    ConsumerOnWaitQueue, "consumer-on-wait-queue", Error, false, "A wait queue has a consumer, which keeps messages from returning to their work queue.";
    WaitQueuesShared, "wait-queues-shared", Error, false, "A work queue that may accept nothing shares its wait queues, so it can hold up the messages of others.";
    QueueUnavailable, "queue-unavailable", Error, false, "A queue exists, and no node can serve it now.";
    WithoutMajority, "without-majority", Error, false, "A quorum queue has lost the majority of its members.";
    NodeDown, "node-down", Error, false, "A node of the cluster does not run.";
    Partition, "partition", Error, false, "Nodes of the cluster do not see each other.";
    Alarm, "alarm", Error, false, "A memory or disk alarm blocks all publishers.";
    PermissionMissing, "permission-missing", Error, false, "The user lacks a permission that the service needs.";
    DeadLetteringStuck, "dead-lettering-stuck", Error, false, "The broker holds messages that it cannot dead-letter.";
    QueueUnsuitable, "queue-unsuitable", Error, true, "An existing queue is of a kind that rehop does not consume: a stream, auto-delete, exclusive, or of a plugin's type.";
    StrayNotEmpty, "stray-not-empty", Error, false, "Unroutable messages are in the stray queue.";
    ForeignBinding, "foreign-binding", Warning, true, "Something else is bound to one of rehop's exchanges, so retries or parked messages go there too.";
    AtMostOnce, "at-most-once", Warning, true, "A queue may lose messages when it dead-letters them.";
    DeliveryLimitDiffers, "delivery-limit-differs", Warning, true, "A work queue that rehop does not declare has another delivery limit than the settings say.";
    DelayedRetry, "delayed-retry", Warning, true, "The broker delays returned messages itself (4.3), so immediate attempts come late, or messages that an operator has looked at are hidden.";
    ClassicQueue, "classic-queue", Warning, true, "A work queue is a classic queue, which counts no deliveries and stops no poison message.";
    QueueTypeDiffers, "queue-type-differs", Warning, true, "An existing queue has another type than the settings say.";
    SingleActiveConsumer, "single-active-consumer", Warning, true, "A work queue has a single active consumer although the settings ask for no order, which makes rehop slow.";
    MemberDown, "member-down", Warning, false, "A member of a quorum queue is down.";
    FewMembers, "few-members", Warning, false, "A quorum queue has fewer than three members in a cluster of three nodes or more.";
    EvenMembers, "even-members", Warning, false, "A quorum queue has an even number of members, which survives no more failures than one less.";
    VersionsMixed, "versions-mixed", Warning, false, "The nodes run different versions of RabbitMQ.";
    FeatureFlagDisabled, "feature-flag-disabled", Warning, false, "A stable feature flag is disabled, which blocks the next upgrade.";
    FramesSmall, "frames-small", Warning, false, "The broker allows smaller frames than usual, so messages with many headers cannot wait.";
    ReportDenied, "report-denied", Warning, false, "The user may not report what becomes of replayed messages, so their operator never learns it.";
    NoConsumer, "no-consumer", Warning, false, "A work queue has no consumer.";
    ConsumerTimeoutShort, "consumer-timeout-short", Warning, false, "The broker takes deliveries back sooner than broker.consumer_timeout says.";
    DisconnectedTimeoutLong, "disconnected-timeout-long", Warning, true, "When a consumer's node dies, the broker keeps the consumer's messages for longer than a minute (4.3), so they come again late.";
    LimitNear, "limit-near", Warning, false, "A limit of the broker is reached, or a fifth of it or less is left.";
    ParkedOld, "parked-old", Warning, false, "Messages have been parked for more than a day.";
    ManagementUnusable, "management-unusable", Warning, false, "The management API that the settings name cannot be used.";
    UnusedTier, "unused-tier", Notice, false, "A wait queue of this namespace is not used by the settings.";
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl Serialize for Check {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_check_has_an_id_of_its_own_and_the_worst_come_first() {
        let ids: BTreeSet<_> = Check::ALL.iter().map(|check| check.id()).collect();
        assert_eq!(ids.len(), Check::ALL.len());
        assert!(Check::ALL.is_sorted_by_key(|check| check.severity()));
    }

    #[test]
    fn every_check_is_explained_in_the_runbooks() {
        let page = include_str!("../../../../src/docs/runbooks.md");
        for check in Check::ALL {
            let row = format!("| `{}` | {} |", check.id(), check.severity().as_str());
            assert!(page.contains(&row), "the page has no row that begins with {row}");
        }
    }
}
