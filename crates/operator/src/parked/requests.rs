//! What an operator asks for, and what a list answers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::parked::filter::Filter;
use crate::parked::group::Group;
use crate::parked::message::ParkedMessage;
use crate::parked::ramp::RampSettings;

/// What to list.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ListRequest {
    /// Which messages.
    pub filter: Filter,
    /// How many messages to look at, at most, from the head of the queue. `None`: all. Default 1,000.
    pub scan: Option<u64>,
    /// How many messages to return one by one at most. All that match are in the groups. Default 0.
    pub rows: usize,
    /// The operation that this list plans. Each queue that its messages would go to is looked up; the broker logs an error for each that
    /// does not exist. In a wrong namespace, the plan of a discard or restore fails as the operation would. Default `None`.
    pub planned: Option<Planned>,
}

/// An operation that moves messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Planned {
    /// [`Parked::replay`](crate::parked::Parked::replay): messages go to their work queues.
    Replay,
    /// [`Parked::restore`](crate::parked::Parked::restore): messages go back to the queues that they were discarded from.
    Restore,
    /// [`Parked::discard`](crate::parked::Parked::discard): messages go to the discarded queue, which needs no looking up.
    Discard,
}

impl Default for ListRequest {
    fn default() -> Self {
        Self { filter: Filter::default(), scan: Some(1_000), rows: 0, planned: None }
    }
}

impl ListRequest {
    /// All messages that pass, in groups.
    pub fn all(filter: Filter) -> Self {
        Self { filter, scan: None, ..Self::default() }
    }
}

/// What is in a queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Listing {
    /// The queue in which the messages rest.
    pub queue: String,
    /// The work queue whose parked queue it is; `None` for stray and discarded messages.
    pub work_queue: Option<String>,
    /// How many there are.
    pub depth: u64,
    /// How many of them were looked at: fewer if [`scan`](ListRequest::scan) or the filter's limit was reached, if messages were
    /// held for half of `broker.consumer_timeout`, or if others took some.
    pub looked_at: u64,
    /// How many of those match.
    pub matched: u64,
    /// The matching messages in groups, the largest first.
    pub groups: Vec<Group>,
    /// How many would go to each queue by the [planned operation](ListRequest::planned), or else by a replay.
    pub destinations: BTreeMap<String, u64>,
    /// How many would go to other queues than the [first](Self::MOST_DESTINATIONS). Whether those exist is not checked.
    pub other_destinations: u64,
    /// How many would go to each queue that does not exist, if an operation is [planned](ListRequest::planned). It leaves them where
    /// they are, except that a replay fails if it is the queue that the operator named.
    pub missing_destinations: BTreeMap<String, u64>,
    /// How many do not say which queue they would go to. The operation leaves them where they are, too.
    pub without_destination: u64,
    /// The first of them, one by one.
    pub messages: Vec<ParkedMessage>,
}

impl Listing {
    /// At most this many queues are counted separately, because stray messages may name any number.
    pub const MOST_DESTINATIONS: usize = 1_000;
}

/// How to replay.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ReplayRequest {
    /// Which messages.
    pub filter: Filter,
    /// How the replay grows.
    pub ramp: RampSettings,
    /// How many messages must match. With another number nothing is sent. Default: any number.
    pub expect: Option<u64>,
    /// Why, for the log and the trace.
    pub why: Option<String>,
    /// Who, for the trace. Default: the user whose process this is.
    pub who: Option<String>,
    /// The work queue of messages that do not say where they belong.
    pub to: Option<String>,
    /// How many messages a second are sent at most, above 0. Default: no limit.
    pub rate: Option<f64>,
    /// Sending pauses while a work queue has more ready messages than this. Default: it never does.
    pub max_ready: Option<u64>,
    /// The messages' new deadline, from now. Without one they get the queue's `retry.max_age`.
    pub deadline: Option<Duration>,
    /// How many messages may be in flight. If this process is killed, as many may be duplicated; a larger number is faster. 0 counts
    /// as 1. If the filter leaves more than four times as many messages in place, the limit is a quarter of those. At most 64 MiB of
    /// bodies are in flight, or one message if it is larger. Default: [`DEFAULT_IN_FLIGHT`](Self::DEFAULT_IN_FLIGHT).
    pub in_flight: Option<u16>,
    /// For how long to listen for fates after the last one was heard. Default 10 s.
    pub follow: Duration,
}

impl ReplayRequest {
    /// A replay learns the fate of so many messages. Those beyond are sent and confirmed like the others, and count as unknown; and a
    /// high share of them that parks again or is discarded does not stop the replay. To learn the fate of all, set
    /// [`limit`](Filter::limit) to this number and repeat the replay: it takes the oldest first.
    pub const MOST_FATES: u64 = 1_000_000;

    /// How many messages may be in flight if nothing else is asked for.
    pub const DEFAULT_IN_FLIGHT: u16 = 100;
}

impl Default for ReplayRequest {
    fn default() -> Self {
        Self {
            filter: Filter::default(),
            ramp: RampSettings::default(),
            expect: None,
            why: None,
            who: None,
            to: None,
            rate: None,
            max_ready: None,
            deadline: None,
            in_flight: None,
            follow: Duration::from_secs(10),
        }
    }
}

/// How many messages may be in flight; a kill may duplicate as many.
pub(crate) fn in_flight(asked: Option<u16>) -> usize {
    usize::from(asked.unwrap_or(ReplayRequest::DEFAULT_IN_FLIGHT).max(1))
}

/// What to discard.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct DiscardRequest {
    /// Which messages.
    pub filter: Filter,
    /// How many messages must match. With another number nothing is discarded. Default: any number.
    pub expect: Option<u64>,
    /// Why, for the log. The discarded messages carry it.
    pub why: Option<String>,
    /// How many messages may be in flight, as in [`ReplayRequest::in_flight`].
    pub in_flight: Option<u16>,
}

/// How to import.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ImportRequest {
    /// Why, for the log.
    pub why: Option<String>,
}

/// What to move back from the discarded queue.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct RestoreRequest {
    /// Which messages.
    pub filter: Filter,
    /// How many messages must match. With another number nothing is moved. Default: any number.
    pub expect: Option<u64>,
    /// Why, for the log.
    pub why: Option<String>,
    /// How many messages may be in flight, as in [`ReplayRequest::in_flight`].
    pub in_flight: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_one_message_may_be_in_flight() {
        assert_eq!([None, Some(0), Some(1), Some(7)].map(in_flight), [100, 1, 1, 7]);
    }

    #[test]
    fn a_list_of_all_is_bounded_by_its_filter_alone() {
        let filter = Filter { limit: Some(7), ..Filter::chain("chain-7") };
        assert_eq!(ListRequest::all(filter.clone()), ListRequest { filter, scan: None, rows: 0, planned: None });
    }
}
