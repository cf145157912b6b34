//! What becomes of a delivery whose copy was given up. Pure: no I/O, no clock.

use crate::retry::outcome::Outcome;
use crate::settings::Declare;

/// Why a delivery was not settled as was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// The copy was not confirmed, and the shortest ack timeout that is known is nearly over.
    Late,
    /// The broker accepts no copy of the message.
    Unpublishable,
    /// The channel was gone, or the session had to end. The broker has the message again, or soon
    /// will.
    Lost,
    /// The queue stops, and the broker had refused the copy, or read nothing. The copy may be
    /// stored if its channel or its connection was lost before.
    Stopped { may_be_stored: bool },
}

impl GivenUp {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Late => "the broker did not confirm the copy in time",
            Self::Unpublishable => "the broker accepts no copy",
            Self::Lost => "the channel was gone, or the grace time was over",
            Self::Stopped { may_be_stored: false } => "the service stops, and no copy was accepted",
            Self::Stopped { may_be_stored: true } => {
                "the service stops, and whether a copy was accepted is unknown"
            }
        }
    }

    /// What to do about it, and what happens otherwise.
    pub(crate) const fn advice(self, counts_deliveries: bool) -> &'static str {
        match (self, counts_deliveries) {
            (Self::Lost | Self::Stopped { .. }, _) => "",
            (Self::Unpublishable, true) => {
                "; an earlier line says why. Past its delivery limit, the broker dead-letters it, or deletes it if the queue has no \
                 dead-letter exchange"
            }
            (Self::Unpublishable, false) => {
                "; an earlier line says why. This queue counts no deliveries, so the handler runs again each time"
            }
            (Self::Late, true) => {
                "; if the broker refuses copies, an earlier line says why: repair that, because the message comes to its delivery limit"
            }
            (Self::Late, false) => {
                "; if the broker refuses copies, an earlier line says why: repair that, because this queue counts no deliveries, so the \
                 handler runs again each time"
            }
        }
    }

    pub(crate) const fn error_type(self) -> &'static str {
        match self {
            Self::Late => "timeout",
            Self::Unpublishable => "unpublishable",
            Self::Lost => "channel_closed",
            Self::Stopped { .. } => "stopped",
        }
    }
}

/// How the delivery is settled, or that it is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uncopied {
    /// The broker moves it to the parked queue as it is, without its last failure. Only for queues
    /// that rehop declares: where any other queue dead-letters to is unknown.
    DeadLetter,
    /// It is rejected with requeue. A queue that counts deliveries counts this one, so the message
    /// ends at the delivery limit.
    Requeue,
    /// It is handed back as if no handler had seen it, which 4.3 does not count.
    HandBack,
    /// It stays unsettled and keeps its place in the prefetch. An ordered queue's session gives
    /// back all that it holds in the end, in its order.
    Stay,
}

/// How a delivery is settled whose copy was given up for this reason. `redeliveries` is the
/// broker's count, if it counts.
///
/// What was to be parked is left to the broker, if that parks it: no handler runs again, and
/// nothing behind it has to wait.
pub(crate) fn without_copy(
    why: GivenUp,
    outcome: Outcome,
    declare: Declare,
    is_ordered: bool,
    redeliveries: Option<u32>,
    delivery_limit: u32,
) -> Uncopied {
    let is_at_limit = || redeliveries.is_some_and(|count| count >= delivery_limit);
    match (why, outcome, declare) {
        // The broker has it again, or soon will.
        (GivenUp::Lost, ..) => Uncopied::Stay,
        (GivenUp::Unpublishable, _, Declare::Own)
        | (GivenUp::Late, Outcome::Park(_), Declare::Own) => Uncopied::DeadLetter,
        // Requeued by itself, it would be overtaken.
        _ if is_ordered => Uncopied::Stay,
        // The next process finds out whether a copy is accepted.
        (GivenUp::Stopped { .. }, ..) => Uncopied::HandBack,
        // The queue may have no dead-letter exchange: past the limit the broker would delete the
        // message. 3.10 and 4.0 count every return, so there nothing could prevent it.
        (GivenUp::Late, _, Declare::Existing) if is_at_limit() => Uncopied::HandBack,
        (GivenUp::Late | GivenUp::Unpublishable, ..) => Uncopied::Requeue,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::retry::decision::Reason;

    const PARK: Outcome = Outcome::Park(Reason::Permanent);
    const WAIT: Outcome = Outcome::Wait(Duration::from_secs(1));
    const LIMIT: u32 = 10;

    fn late(
        outcome: Outcome,
        declare: Declare,
        is_ordered: bool,
        redeliveries: Option<u32>,
    ) -> Uncopied {
        without_copy(GivenUp::Late, outcome, declare, is_ordered, redeliveries, LIMIT)
    }

    #[test]
    fn what_cannot_be_copied_is_dead_lettered_only_where_it_is_known_to_be_parked_and_is_not_overtaken()
     {
        for (outcome, count) in
            [(PARK, Some(0)), (WAIT, Some(0)), (WAIT, Some(LIMIT)), (WAIT, None)]
        {
            let impossible = |declare| {
                [false, true].map(|is_ordered| {
                    without_copy(GivenUp::Unpublishable, outcome, declare, is_ordered, count, LIMIT)
                })
            };
            assert_eq!(impossible(Declare::Own), [Uncopied::DeadLetter; 2]);
            assert_eq!(impossible(Declare::Existing), [Uncopied::Requeue, Uncopied::Stay]);
        }
    }

    #[test]
    fn what_could_not_be_parked_in_time_is_parked_by_the_broker_and_what_could_not_wait_comes_again()
     {
        for count in [0, LIMIT] {
            let late = |outcome| late(outcome, Declare::Own, false, Some(count));
            assert_eq!(late(PARK), Uncopied::DeadLetter);
            assert_eq!(late(WAIT), Uncopied::Requeue, "at the limit the broker parks it");
        }
    }

    #[test]
    fn nothing_of_an_ordered_queue_comes_again_alone() {
        for count in [0, LIMIT] {
            let late = |outcome, declare| late(outcome, declare, true, Some(count));
            assert_eq!(late(PARK, Declare::Own), Uncopied::DeadLetter);
            assert_eq!(late(WAIT, Declare::Own), Uncopied::Stay);
            assert_eq!(
                [PARK, WAIT].map(|outcome| late(outcome, Declare::Existing)),
                [Uncopied::Stay; 2]
            );
        }
    }

    #[test]
    fn a_message_of_an_existing_queue_is_not_rejected_past_the_limit_because_its_copy_is_late() {
        for outcome in [PARK, WAIT] {
            let late = |count| late(outcome, Declare::Existing, false, count);
            assert_eq!([0, LIMIT - 1].map(|count| late(Some(count))), [Uncopied::Requeue; 2]);
            assert_eq!([LIMIT, u32::MAX].map(|count| late(Some(count))), [Uncopied::HandBack; 2]);
            assert_eq!(late(None), Uncopied::Requeue, "a queue that counts nothing has no limit");
        }
    }

    #[test]
    fn what_the_broker_has_again_is_left_alone() {
        for declare in [Declare::Own, Declare::Existing] {
            assert_eq!(
                without_copy(GivenUp::Lost, PARK, declare, false, Some(0), LIMIT),
                Uncopied::Stay
            );
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
            let stopped = [false, true].map(|is_ordered| {
                without_copy(why, outcome, declare, is_ordered, Some(LIMIT), LIMIT)
            });
            assert_eq!(stopped, [Uncopied::HandBack, Uncopied::Stay]);
        }
    }

    #[test]
    fn a_message_that_is_not_settled_has_a_reason_and_an_advice_unless_the_broker_has_it_again() {
        for (why, text, error_type) in [
            (GivenUp::Late, "the broker did not confirm the copy in time", "timeout"),
            (GivenUp::Unpublishable, "the broker accepts no copy", "unpublishable"),
        ] {
            assert_eq!((why.text(), why.error_type()), (text, error_type));
            let [counting, other] =
                [true, false].map(|counts_deliveries| why.advice(counts_deliveries));
            assert!(
                counting.contains("its delivery limit") && !counting.contains("each time"),
                "{counting}"
            );
            assert!(
                other.contains("counts no deliveries") && other.ends_with("runs again each time"),
                "{other}"
            );
        }
        let lost = GivenUp::Lost;
        assert_eq!(
            (lost.text(), lost.error_type()),
            ("the channel was gone, or the grace time was over", "channel_closed")
        );
        assert_eq!([true, false].map(|counts_deliveries| lost.advice(counts_deliveries)), [""; 2]);
        let [kept, unknown] = [false, true].map(|may_be_stored| GivenUp::Stopped { may_be_stored });
        assert_eq!(
            (kept.text(), kept.advice(true)),
            ("the service stops, and no copy was accepted", "")
        );
        assert!(unknown.text().ends_with("is unknown") && unknown.advice(false).is_empty());
        assert_eq!([kept, unknown].map(GivenUp::error_type), ["stopped"; 2]);
    }
}
