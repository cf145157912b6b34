//! Which exit status an operation has. Pure.

use rehop_operator::parked::{Fates, Tally};

use crate::exit::{UNFINISHED, UNKNOWN};

/// Of a discard or a restore.
pub(super) fn moved(is_stopped: bool, tally: &Tally) -> u8 {
    if is_stopped || tally.stayed() > 0 { UNFINISHED } else { 0 }
}

/// Of a replay.
pub(super) fn replayed(is_stopped: bool, tally: &Tally, fates: &Fates) -> u8 {
    match moved(is_stopped, tally) {
        0 if fates.parked_again + fates.discarded > 0 => UNFINISHED,
        0 if fates.handled < tally.matched => UNKNOWN,
        status => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(matched: u64, [without, missing, too_large]: [u64; 3]) -> Tally {
        let mut tally = Tally::default();
        (tally.matched, tally.too_large) = (matched, too_large);
        (tally.without_destination, tally.missing_destination) = (without, missing);
        tally
    }

    fn fates(handled: u64, parked_again: u64, discarded: u64, waiting: u64) -> Fates {
        let mut fates = Fates::default();
        (fates.handled, fates.parked_again) = (handled, parked_again);
        (fates.discarded, fates.waiting) = (discarded, waiting);
        fates
    }

    #[test]
    fn what_was_not_moved_is_no_success() {
        for (is_stopped, tally, expected) in [
            (false, tally(3, [0, 0, 0]), 0),
            (false, tally(0, [0, 0, 0]), 0),
            (true, tally(3, [0, 0, 0]), UNFINISHED),
            (false, tally(3, [1, 0, 0]), UNFINISHED),
            (false, tally(3, [0, 1, 0]), UNFINISHED),
            (false, tally(3, [0, 0, 1]), UNFINISHED),
        ] {
            assert_eq!(moved(is_stopped, &tally), expected, "{is_stopped} {tally:?}");
        }
    }

    #[test]
    fn only_a_replay_of_which_every_message_was_handled_is_a_success() {
        for (is_stopped, tally, fates, expected) in [
            (false, tally(3, [0, 0, 0]), fates(3, 0, 0, 0), 0),
            (true, tally(3, [0, 0, 0]), fates(3, 0, 0, 0), UNFINISHED),
            (false, tally(3, [0, 0, 1]), fates(2, 0, 0, 0), UNFINISHED),
            (false, tally(3, [0, 0, 0]), fates(2, 1, 0, 0), UNFINISHED),
            (false, tally(3, [0, 0, 0]), fates(2, 0, 1, 0), UNFINISHED),
            (false, tally(3, [0, 0, 0]), fates(1, 0, 1, 1), UNFINISHED),
            (false, tally(3, [0, 0, 0]), fates(2, 0, 0, 1), UNKNOWN),
            (false, tally(3, [0, 0, 0]), fates(2, 0, 0, 0), UNKNOWN),
        ] {
            assert_eq!(
                replayed(is_stopped, &tally, &fates),
                expected,
                "{is_stopped} {tally:?} {fates:?}"
            );
        }
    }
}
