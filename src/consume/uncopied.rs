//! What becomes of a delivery without the copy that it was to end with. Pure: no I/O, no clock.

use crate::retry::outcome::Outcome;
use crate::settings::Declare;

/// How the delivery is settled, or that it is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uncopied {
    /// The broker moves it to the parked queue as it is, without its last failure. Only for queues that rehop declares: where any other
    /// queue dead-letters to is unknown.
    DeadLetter,
    /// It is rejected with requeue. A queue that counts deliveries counts this one, so the message ends at the delivery limit.
    Requeue,
    /// It is handed back as if no handler had seen it, which 4.3 does not count.
    HandBack,
    /// It stays unsettled and keeps its place in the prefetch. An ordered queue's session gives back all that it holds in the end, in its
    /// order.
    Stay,
}

/// The broker accepts no copy of the message.
pub(crate) fn when_impossible(declare: Declare, is_ordered: bool) -> Uncopied {
    match (declare, is_ordered) {
        (Declare::Own, _) => Uncopied::DeadLetter,
        (Declare::Existing, false) => Uncopied::Requeue,
        // Alone it would be overtaken.
        (Declare::Existing, true) => Uncopied::Stay,
    }
}

/// The copy is not confirmed, and the ack timeout is nearly over. `redeliveries` is the broker's count, if it counts.
///
/// What was to be parked is left to the broker, if that parks it: no handler runs again, and nothing behind it has to wait.
pub(crate) fn when_late(
    outcome: Outcome,
    declare: Declare,
    is_ordered: bool,
    redeliveries: Option<u32>,
    delivery_limit: u32,
) -> Uncopied {
    let is_at_limit = || redeliveries.is_some_and(|count| count >= delivery_limit);
    match (outcome, declare) {
        (Outcome::Park(_), Declare::Own) => Uncopied::DeadLetter,
        // Others would overtake it.
        _ if is_ordered => Uncopied::Stay,
        // The queue may have no dead-letter exchange: past the limit the broker would delete the message. 3.10 and 4.0 count every return, so
        // there nothing could prevent it.
        (_, Declare::Existing) if is_at_limit() => Uncopied::HandBack,
        _ => Uncopied::Requeue,
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

    #[test]
    fn what_cannot_be_copied_is_dead_lettered_only_where_it_is_known_to_be_parked_and_is_not_overtaken() {
        assert_eq!(
            [false, true].map(|is_ordered| when_impossible(Declare::Own, is_ordered)),
            [Uncopied::DeadLetter; 2]
        );
        assert_eq!(when_impossible(Declare::Existing, false), Uncopied::Requeue);
        assert_eq!(when_impossible(Declare::Existing, true), Uncopied::Stay);
    }

    #[test]
    fn what_could_not_be_parked_in_time_is_parked_by_the_broker_and_what_could_not_wait_comes_again() {
        for count in [0, LIMIT] {
            let late = |outcome| when_late(outcome, Declare::Own, false, Some(count), LIMIT);
            assert_eq!(late(PARK), Uncopied::DeadLetter);
            assert_eq!(late(WAIT), Uncopied::Requeue, "at the limit the broker parks it");
        }
    }

    #[test]
    fn nothing_of_an_ordered_queue_comes_again_alone() {
        for count in [0, LIMIT] {
            let late = |outcome, declare| when_late(outcome, declare, true, Some(count), LIMIT);
            assert_eq!(late(PARK, Declare::Own), Uncopied::DeadLetter);
            assert_eq!(late(WAIT, Declare::Own), Uncopied::Stay);
            assert_eq!([PARK, WAIT].map(|outcome| late(outcome, Declare::Existing)), [Uncopied::Stay; 2]);
        }
    }

    #[test]
    fn a_message_of_an_existing_queue_is_not_rejected_past_the_limit_because_its_copy_is_late() {
        for outcome in [PARK, WAIT] {
            let late = |count| when_late(outcome, Declare::Existing, false, count, LIMIT);
            assert_eq!([0, LIMIT - 1].map(|count| late(Some(count))), [Uncopied::Requeue; 2]);
            assert_eq!([LIMIT, u32::MAX].map(|count| late(Some(count))), [Uncopied::HandBack; 2]);
            assert_eq!(late(None), Uncopied::Requeue, "a queue that counts nothing has no limit");
        }
    }
}
