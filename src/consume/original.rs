//! How an original is settled without its copy, and how a delivery is handed back. Pure.
//!
//! What the broker counts towards the delivery limit when a message comes back:
//!
//! | returned by | 4.3 | 3.10, 4.0 |
//! |---|---|---|
//! | nack ([`Settlement::Nack`]) | no | yes |
//! | reject ([`Settlement::Requeue`]) | yes | yes |
//! | the end of its channel, its connection or its process | yes | yes |
//!
//! On 4.3 a nack in a queue with delayed retries, as strategy `native` has them, waits.

use crate::broker::acks::Settlement;
use crate::consume::line::Line;
use crate::publish::GivenUp;
use crate::retry::outcome::Outcome;
use crate::settings::Declare;
use crate::wait::WaitStrategy;

/// What decides how an original is settled without its copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Original {
    pub(crate) declare: Declare,
    pub(crate) line: Line,
    /// The broker's count of its returns, if it counts.
    pub(crate) redeliveries: Option<u32>,
    pub(crate) delivery_limit: u32,
    pub(crate) hand_back_by: Settlement,
}

/// How to settle a delivery whose copy was given up for this reason. `None`: it stays unsettled and
/// keeps its place in the prefetch. An ordered queue's session gives back all that it holds in the
/// end, in its order.
///
/// What was to be parked, and could not be in time, is left to the broker, if that parks it: no
/// handler runs again, and nothing behind it has to wait. That is only known of queues that rehop
/// declares.
pub(crate) fn settlement_without_copy(
    why: &GivenUp,
    outcome: Outcome,
    original: Original,
) -> Option<Settlement> {
    let Original { declare, line, redeliveries, delivery_limit, hand_back_by } = original;
    let is_at_limit = || redeliveries.is_some_and(|count| count >= delivery_limit);
    match (why, outcome, declare) {
        // The broker has it again, or soon will.
        (GivenUp::SessionEnded | GivenUp::ChannelClosed, ..) => None,
        (GivenUp::Unpublishable { .. }, _, Declare::Own)
        | (GivenUp::Late, Outcome::Park(_), Declare::Own) => Some(Settlement::DeadLetter),
        // An ordered queue gives back all that it holds at once, in the end.
        _ if !line.allows_single_return() => None,
        // The next process finds out whether a copy is accepted.
        (GivenUp::Stopped { .. }, ..) => Some(hand_back_by),
        // The queue may have no dead-letter exchange: past the limit the broker would delete the
        // message. 3.10 and 4.0 count every return, so there nothing could prevent it.
        (GivenUp::Late, _, Declare::Existing) if is_at_limit() => Some(hand_back_by),
        // A queue that counts deliveries counts this one, so the message ends at its limit.
        (GivenUp::Late | GivenUp::Unpublishable { .. }, ..) => Some(Settlement::Requeue),
    }
}

/// How to hand a delivery back, so that no attempt is spent where the version allows it.
///
/// By a nack, which 4.3 does not count. With strategy `native` a nack makes the message wait, and
/// spends one of its waits. So it is rejected, and comes again at once, unless that would exceed
/// the delivery limit and park a message that nobody has tried to handle.
pub(crate) fn hand_back_settlement(
    strategy: WaitStrategy,
    redeliveries: Option<u32>,
    delivery_limit: u32,
) -> Settlement {
    match strategy {
        WaitStrategy::Native if redeliveries.unwrap_or(0) < delivery_limit => Settlement::Requeue,
        WaitStrategy::Tiers
        | WaitStrategy::Ladder
        | WaitStrategy::DelayedExchange
        | WaitStrategy::Native
        | WaitStrategy::InProcess => Settlement::Nack,
    }
}

#[cfg(test)]
mod tests {
    mod hand_backs;

    use std::time::Duration;

    use super::*;
    use crate::retry::decision::Reason;

    const PARK: Outcome = Outcome::Park(Reason::Permanent);
    const WAIT: Outcome = Outcome::Wait(Duration::from_secs(1));
    const LIMIT: u32 = 10;

    fn original(declare: Declare, line: Line, redeliveries: Option<u32>) -> Original {
        Original {
            declare,
            line,
            redeliveries,
            delivery_limit: LIMIT,
            hand_back_by: Settlement::Nack,
        }
    }

    fn late(
        outcome: Outcome,
        declare: Declare,
        line: Line,
        redeliveries: Option<u32>,
    ) -> Option<Settlement> {
        settlement_without_copy(&GivenUp::Late, outcome, original(declare, line, redeliveries))
    }

    #[test]
    fn what_cannot_be_copied_is_dead_lettered_only_where_it_is_known_to_be_parked_and_is_not_overtaken()
     {
        for (outcome, count) in
            [(PARK, Some(0)), (WAIT, Some(0)), (WAIT, Some(LIMIT)), (WAIT, None)]
        {
            let impossible = |declare| {
                let why = GivenUp::Unpublishable { answer: "".into() };
                [Line::Free, Line::Ordered].map(|line| {
                    let original = original(declare, line, count);
                    settlement_without_copy(&why, outcome, original)
                })
            };
            assert_eq!(impossible(Declare::Own), [Some(Settlement::DeadLetter); 2]);
            assert_eq!(impossible(Declare::Existing), [Some(Settlement::Requeue), None]);
        }
    }

    #[test]
    fn what_could_not_be_parked_in_time_is_parked_by_the_broker_and_what_could_not_wait_comes_again()
     {
        for count in [0, LIMIT] {
            let late = |outcome| late(outcome, Declare::Own, Line::Free, Some(count));
            assert_eq!(late(PARK), Some(Settlement::DeadLetter));
            assert_eq!(late(WAIT), Some(Settlement::Requeue), "at the limit the broker parks it");
        }
    }

    #[test]
    fn nothing_of_an_ordered_queue_comes_again_alone() {
        for count in [0, LIMIT] {
            let late = |outcome, declare| late(outcome, declare, Line::Ordered, Some(count));
            assert_eq!(late(PARK, Declare::Own), Some(Settlement::DeadLetter));
            assert_eq!(late(WAIT, Declare::Own), None);
            assert_eq!([PARK, WAIT].map(|outcome| late(outcome, Declare::Existing)), [None; 2]);
        }
    }

    #[test]
    fn a_message_of_an_existing_queue_is_not_rejected_past_the_limit_because_its_copy_is_late() {
        for outcome in [PARK, WAIT] {
            let late = |count| late(outcome, Declare::Existing, Line::Free, count);
            assert_eq!(
                [0, LIMIT - 1].map(|count| late(Some(count))),
                [Some(Settlement::Requeue); 2]
            );
            assert_eq!(
                [LIMIT, u32::MAX].map(|count| late(Some(count))),
                [Some(Settlement::Nack); 2]
            );
            assert_eq!(
                late(None),
                Some(Settlement::Requeue),
                "a queue that counts nothing has no limit"
            );
        }
    }

    #[test]
    fn what_the_broker_has_again_is_left_alone() {
        for declare in [Declare::Own, Declare::Existing] {
            for why in [GivenUp::SessionEnded, GivenUp::ChannelClosed] {
                assert_eq!(
                    settlement_without_copy(&why, PARK, original(declare, Line::Free, Some(0))),
                    None
                );
            }
        }
    }

    #[test]
    fn at_a_stop_a_message_is_handed_back_uncounted_unless_that_would_break_its_order() {
        for (outcome, declare, may_be_stored) in [
            (PARK, Declare::Own, false),
            (WAIT, Declare::Own, true),
            (PARK, Declare::Existing, true),
            (WAIT, Declare::Existing, false),
        ] {
            let why = GivenUp::Stopped { may_be_stored };
            let stopped = [Line::Free, Line::Ordered].map(|line| {
                settlement_without_copy(&why, outcome, original(declare, line, Some(LIMIT)))
            });
            assert_eq!(stopped, [Some(Settlement::Nack), None]);
        }
    }
}
