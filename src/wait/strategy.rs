//! The ways to wait.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ladder::Ladder;
use super::tiers::Tiers;
use super::{MAX_DELAY, Path, Route, delayed, whole_millis};

/// How the messages of a queue wait: the setting `retry.strategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WaitStrategy {
    /// In wait queues with one fixed TTL each, one for each delay of the policy.
    #[default]
    Tiers,
    /// In wait queues whose TTLs double, and which add up to any delay: the settings `ladder`.
    Ladder,
    /// In an exchange of the delayed-message plugin, which the broker must have.
    DelayedExchange,
    /// In the work queue itself, by RabbitMQ's own delayed retry (4.3 and later): one fixed delay,
    /// and no copy.
    Native,
    /// Unacked in the process that consumes it: any delays that fit into the broker's
    /// `consumer_timeout`, and no copy. The only strategy that can keep messages in order.
    InProcess,
}

impl WaitStrategy {
    /// The word that settings use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tiers => "tiers",
            Self::Ladder => "ladder",
            Self::DelayedExchange => "delayed-exchange",
            Self::Native => "native",
            Self::InProcess => "in-process",
        }
    }

    /// Whether it can wait for a delay that is drawn at random.
    pub(crate) fn carries_jitter(self) -> bool {
        match self {
            Self::Tiers | Self::Native => false,
            Self::Ladder | Self::DelayedExchange | Self::InProcess => true,
        }
    }
}

impl fmt::Display for WaitStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where asked delays wait that the strategy cannot give exactly: the setting `retry.after`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AskedDelays {
    /// As the strategy can: tiers use the next longer delay, or several legs. What is too long for
    /// it parks the message.
    #[default]
    Own,
    /// On the ladder.
    Ladder,
}

/// Whose wait queues a queue's messages wait in, on tiers and on the ladder: the setting
/// `retry.wait_queues`.
///
/// A wait queue returns 32 messages at a time, and those of a queue that accepts nothing stay among
/// them (3.10, 4.0 and 4.3). So 32 messages of a queue that is full, or has lost its majority, hold
/// up all others that wait in the same wait queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum WaitQueues {
    /// The queue's own, which no other queue uses.
    Own,
    /// Those of the namespace.
    Shared,
}

impl WaitQueues {
    /// The word that settings use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Shared => "shared",
        }
    }
}

/// How the messages of a policy wait, with all that a route follows from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// In wait queues with one fixed TTL each.
    Tiers(Tiers),
    /// In wait queues whose TTLs double.
    Ladder(Ladder),
    /// In a delayed exchange.
    DelayedExchange,
    /// In the work queue, always for this time. `None`: the policy never waits.
    Native(Option<Duration>),
    /// In this process.
    InProcess,
}

impl Strategy {
    /// The strategy of this kind for a policy with these delays, in a namespace with this ladder.
    pub(crate) fn of(kind: WaitStrategy, delays: &[Duration], ladder: Ladder) -> Self {
        match kind {
            WaitStrategy::Tiers => Self::Tiers(Tiers::new(delays.iter().copied())),
            WaitStrategy::Ladder => Self::Ladder(ladder),
            WaitStrategy::DelayedExchange => Self::DelayedExchange,
            WaitStrategy::Native => Self::Native(delays.first().copied().map(whole_millis)),
            WaitStrategy::InProcess => Self::InProcess,
        }
    }

    /// Its kind.
    pub(crate) fn kind(&self) -> WaitStrategy {
        match self {
            Self::Tiers(_) => WaitStrategy::Tiers,
            Self::Ladder(_) => WaitStrategy::Ladder,
            Self::DelayedExchange => WaitStrategy::DelayedExchange,
            Self::Native(_) => WaitStrategy::Native,
            Self::InProcess => WaitStrategy::InProcess,
        }
    }

    /// Says what this kind of waiting cannot do with these delays.
    pub(crate) fn check(kind: WaitStrategy, delays: &[Duration]) -> Result<(), String> {
        match kind {
            WaitStrategy::Native if delays.iter().any(|delay| Some(delay) != delays.first()) => Err(
                "strategy \"native\" has one fixed delay for all waits, and these differ; set \
                 delays = { kind = \"fixed\", delay = \"30s\", waits = 5 }, or set retry.strategy = \"tiers\" for different delays"
                    .to_owned(),
            ),
            WaitStrategy::Tiers
            | WaitStrategy::Ladder
            | WaitStrategy::DelayedExchange
            | WaitStrategy::Native
            | WaitStrategy::InProcess => Ok(()),
        }
    }

    /// Whether immediate attempts are counted from zero again after each wait. The broker's count,
    /// which `native` has, never does.
    pub(crate) fn resets_immediate(&self) -> bool {
        match self {
            Self::Tiers(_) | Self::Ladder(_) | Self::DelayedExchange | Self::InProcess => true,
            Self::Native(_) => false,
        }
    }

    /// The shortest wait that is at least as long as the delay. `None` if the delay is above
    /// [`longest_wait`](Self::longest_wait).
    pub(crate) fn route(&self, delay: Duration) -> Option<Route> {
        match self {
            Self::Tiers(tiers) => tiers.route(delay),
            Self::Ladder(ladder) => ladder.route(delay),
            Self::DelayedExchange => delayed::route(delay),
            Self::Native(fixed) => fixed.filter(|fixed| delay <= *fixed).map(|fixed| Route {
                path: Path::Return,
                leg: fixed,
                total: fixed,
            }),
            Self::InProcess if delay > MAX_DELAY => None,
            Self::InProcess => Some(Route { path: Path::Hold, leg: delay, total: delay }),
        }
    }

    /// The longest delay that has a route. Zero if there is none.
    pub(crate) fn longest_wait(&self) -> Duration {
        match self {
            Self::Tiers(tiers) => tiers.longest_wait(),
            Self::Ladder(ladder) => ladder.longest_wait(),
            Self::DelayedExchange => delayed::LONGEST,
            Self::Native(fixed) => fixed.unwrap_or_default(),
            Self::InProcess => MAX_DELAY,
        }
    }

    /// What bounds the delay that a failure may ask for, for the text of one that asked for more.
    pub(crate) fn bound(&self) -> String {
        let longest = humantime::format_duration(self.longest_wait());
        match self {
            Self::Tiers(_) => {
                format!("retry.delays allows {longest} at most (8 times its longest delay)")
            }
            Self::Ladder(_) => format!("ladder.max allows {longest} at most"),
            Self::DelayedExchange => {
                format!("strategy \"delayed-exchange\" allows {longest} at most")
            }
            Self::Native(_) => {
                format!("strategy \"native\" allows {longest} at most (its one delay)")
            }
            Self::InProcess => {
                "strategy \"in-process\" cannot hold it for so long (broker.consumer_timeout)"
                    .to_owned()
            }
        }
    }

    /// The TTLs of the tiers that it needs.
    pub(crate) fn tiers(&self) -> impl Iterator<Item = Duration> {
        let tiers = match self {
            Self::Tiers(tiers) => Some(tiers),
            Self::Ladder(_) | Self::DelayedExchange | Self::Native(_) | Self::InProcess => None,
        };
        tiers.into_iter().flat_map(Tiers::iter)
    }

    /// How long the work queue itself delays what is returned to it.
    pub(crate) fn delayed_return(&self) -> Option<Duration> {
        match self {
            Self::Native(fixed) => *fixed,
            Self::Tiers(_) | Self::Ladder(_) | Self::DelayedExchange | Self::InProcess => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_strategy_has_the_word_that_settings_use() {
        use WaitStrategy::{DelayedExchange, InProcess, Ladder, Native, Tiers};
        for strategy in [Tiers, Ladder, DelayedExchange, Native, InProcess] {
            assert_eq!(serde_json::to_value(strategy).unwrap(), strategy.as_str());
            assert_eq!(strategy.to_string(), strategy.as_str());
        }
        for wait_queues in [WaitQueues::Own, WaitQueues::Shared] {
            assert_eq!(serde_json::to_value(wait_queues).unwrap(), wait_queues.as_str());
        }
    }

    #[test]
    fn a_process_may_hold_a_message_for_the_longest_delay_that_there_is() {
        let total = |delay| Strategy::InProcess.route(delay).map(|route| route.total);
        assert_eq!(total(MAX_DELAY), Some(MAX_DELAY));
        assert_eq!(total(MAX_DELAY + Duration::from_nanos(1)), None);
    }
}
