//! What the broker's answers say about one copy, and how it is sent next. Pure: no I/O, no clock,
//! no randomness.

use crate::broker::lane::cause::{Blame, Cause, Trouble};

/// After this many closes over one copy alone, the copy is unpublishable.
const MAX_CLOSES: u32 = 3;

/// How a copy is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Way {
    /// On the lane of its exchange, with all others.
    #[default]
    SharedLane,
    /// On a lane of its own, because the broker did not take it, or it may have closed its lane.
    OwnLane,
    /// The same, with nothing sent beside it, because it may have broken the connection.
    NothingBeside,
}

/// What is known of a copy.
#[derive(Debug, Default)]
pub(super) struct Retries {
    way: Way,
    /// How often it was not taken. The pauses grow with it.
    tries: u32,
    closes: u32,
    may_be_stored: bool,
}

/// Why a send was not confirmed.
#[derive(Debug)]
pub(super) enum SendError {
    /// The broker nacked it, as a full queue does.
    Refused,
    /// It found no queue, although each of our exchanges has an alternate exchange that leads to
    /// one.
    Returned,
    /// Its connection or its lane ended before it was sent.
    NotSent,
    /// Its lane could not be opened.
    NoLane(Cause),
    /// The broker closed its lane. `was_slow`: it had been under way for longer than usual, so it
    /// may be stored.
    LaneClosed { cause: Cause, was_slow: bool },
    /// The connection ended.
    Disconnected { cause: Cause, suspicion: Suspicion },
}

/// Whether a copy may be why its connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suspicion {
    /// It had been under way for longer than that takes.
    Unlikely,
    /// So had everything else, as when the broker reads what an alarm held up.
    Possible,
    /// It was sent lately.
    Likely,
}

impl SendError {
    /// What the broker said.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Refused | Self::Returned | Self::NotSent => None,
            Self::NoLane(cause)
            | Self::LaneClosed { cause, .. }
            | Self::Disconnected { cause, .. } => Some(&cause.text),
        }
    }
}

/// What to do after a send that was not confirmed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) next: Next,
    /// An operator should know of this.
    pub(super) trouble: Option<Trouble>,
    /// The exchange takes no copies, or no lane can be opened: all copies to it wait.
    pub(super) takes_none: bool,
}

/// How it goes on with the copy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is sent again as soon as its exchange takes copies.
    Again,
    /// It is sent again after the pause that follows this many tries.
    AfterPause { tries: u32 },
    /// The broker closes its channel or its connection over this copy each time.
    Unpublishable,
}

impl Retries {
    pub(super) fn way(&self) -> Way {
        self.way
    }

    /// Whether the broker may have stored it although it confirmed nothing: its channel or its
    /// connection ended meanwhile.
    pub(super) fn may_be_stored(&self) -> bool {
        self.may_be_stored
    }

    pub(super) fn after(&mut self, error: &SendError) -> Verdict {
        self.may_be_stored |=
            matches!(error, SendError::LaneClosed { .. } | SendError::Disconnected { .. });
        let verdict = |next, trouble, takes_none| Verdict { next, trouble, takes_none };
        match error {
            // If the limit of the queue is removed, 3.10 goes on refusing on an old lane.
            SendError::Refused => {
                verdict(self.after_pause(Way::OwnLane), Some(Trouble::Refused), false)
            }
            SendError::Returned => {
                verdict(self.after_pause(Way::OwnLane), Some(Trouble::Unroutable), false)
            }
            SendError::NotSent => verdict(Next::Again, None, false),
            SendError::NoLane(_) if self.way == Way::SharedLane => {
                verdict(Next::Again, Some(Trouble::NoChannel), true)
            }
            SendError::NoLane(_) => {
                verdict(self.after_pause(self.way), Some(Trouble::NoChannel), false)
            }
            SendError::LaneClosed { cause, was_slow } => self.after_close(cause.blame(), *was_slow),
            SendError::Disconnected { cause, suspicion } => {
                self.after_disconnect(cause.blame(), *suspicion)
            }
        }
    }

    fn after_close(&mut self, blame: Blame, was_slow: bool) -> Verdict {
        let trouble = match blame {
            Blame::Exchange(trouble) => trouble,
            Blame::Copy => Trouble::Malformed,
            Blame::Nobody | Blame::Unknown => Trouble::Closed,
        };
        let next = match (self.way, blame) {
            // The exchange refused it, or one after it, so it waits for the exchange with the
            // others.
            (Way::SharedLane, Blame::Exchange(_)) if !was_slow => Next::Again,
            // Any copy on the lane may be to blame, so each gets a lane of its own, even if the
            // cause blames no copy: lapin does not always know why a channel ended. So does a copy
            // that was slow: it may be stored, and must not be sent again at each close of the
            // shared lane.
            (Way::SharedLane, _) => self.at_once(Way::OwnLane),
            (Way::OwnLane | Way::NothingBeside, Blame::Copy) => self.closed_alone(Way::OwnLane),
            (Way::OwnLane | Way::NothingBeside, _) => self.after_pause(Way::OwnLane),
        };
        Verdict { next, trouble: Some(trouble), takes_none: matches!(blame, Blame::Exchange(_)) }
    }

    fn after_disconnect(&mut self, blame: Blame, suspicion: Suspicion) -> Verdict {
        let (next, trouble) = match (suspicion, self.way, blame) {
            // It is not known which copy it was: this one may have reached the broker late, or the
            // broker may have failed at something slower than reading a copy. The pause limits how
            // often that can recur.
            (Suspicion::Unlikely, _, Blame::Unknown | Blame::Copy) => {
                (self.after_pause(Way::OwnLane), None)
            }
            // It had its time with nothing beside it.
            (Suspicion::Unlikely, Way::NothingBeside, _) => (self.at_once(Way::OwnLane), None),
            (Suspicion::Unlikely, ..) | (_, _, Blame::Nobody | Blame::Exchange(_)) => {
                (Next::Again, None)
            }
            (Suspicion::Likely, Way::NothingBeside, Blame::Copy) => {
                (self.closed_alone(Way::NothingBeside), Some(Trouble::Malformed))
            }
            (_, Way::NothingBeside, _) => {
                (self.after_pause(Way::NothingBeside), Some(Trouble::Closed))
            }
            (_, Way::SharedLane | Way::OwnLane, _) => (self.at_once(Way::NothingBeside), None),
        };
        Verdict { next, trouble, takes_none: false }
    }

    /// The broker closed its lane, or the connection, and nothing else was on it.
    fn closed_alone(&mut self, way: Way) -> Next {
        self.closes += 1;
        if self.closes == MAX_CLOSES { Next::Unpublishable } else { self.after_pause(way) }
    }

    fn at_once(&mut self, way: Way) -> Next {
        self.way = way;
        Next::Again
    }

    fn after_pause(&mut self, way: Way) -> Next {
        self.way = way;
        self.tries = self.tries.saturating_add(1);
        Next::AfterPause { tries: self.tries - 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAYS: [Way; 3] = [Way::SharedLane, Way::OwnLane, Way::NothingBeside];

    fn cause(code: u16) -> Cause {
        Cause { code: Some(code), text: String::new() }
    }

    fn closed(code: u16) -> SendError {
        SendError::LaneClosed { cause: cause(code), was_slow: false }
    }

    fn disconnected(code: u16) -> SendError {
        SendError::Disconnected { cause: cause(code), suspicion: Suspicion::Likely }
    }

    fn in_way(way: Way) -> Retries {
        Retries { way, ..Retries::default() }
    }

    /// What to do after this error, and in which way.
    fn after(way: Way, error: &SendError) -> (Verdict, Way) {
        let mut retries = in_way(way);
        (retries.after(error), retries.way())
    }

    #[test]
    fn a_copy_that_is_not_taken_is_tried_on_its_own_lane_after_pauses_that_grow() {
        for (error, trouble) in
            [(SendError::Refused, Trouble::Refused), (SendError::Returned, Trouble::Unroutable)]
        {
            for way in WAYS {
                let mut retries = in_way(way);
                for tries in 0..3 {
                    let next = Next::AfterPause { tries };
                    assert_eq!(
                        retries.after(&error),
                        Verdict { next, trouble: Some(trouble), takes_none: false }
                    );
                    assert_eq!(retries.way(), Way::OwnLane);
                }
            }
        }
    }

    #[test]
    fn after_a_close_over_the_exchange_copies_wait_for_it_and_a_slow_one_gets_its_own_lane() {
        for (code, trouble) in [(403, Trouble::Forbidden), (404, Trouble::Missing)] {
            let verdict = |next| Verdict { next, trouble: Some(trouble), takes_none: true };
            let paused = Next::AfterPause { tries: 0 };
            let slow = SendError::LaneClosed { cause: cause(code), was_slow: true };
            assert_eq!(
                after(Way::SharedLane, &closed(code)),
                (verdict(Next::Again), Way::SharedLane)
            );
            assert_eq!(after(Way::SharedLane, &slow), (verdict(Next::Again), Way::OwnLane));
            assert_eq!(after(Way::OwnLane, &closed(code)), (verdict(paused), Way::OwnLane));
        }
    }

    #[test]
    fn after_a_close_that_blames_no_exchange_each_copy_gets_its_own_lane_at_once() {
        for (code, trouble) in
            [(406, Trouble::Malformed), (320, Trouble::Closed), (541, Trouble::Closed)]
        {
            let verdict = Verdict { next: Next::Again, trouble: Some(trouble), takes_none: false };
            assert_eq!(after(Way::SharedLane, &closed(code)), (verdict, Way::OwnLane));
        }
    }

    #[test]
    fn a_copy_that_closes_three_lanes_or_connections_alone_is_given_up() {
        for (way, error) in [(Way::OwnLane, closed(406)), (Way::NothingBeside, disconnected(501))] {
            let mut retries = in_way(way);
            let next = [(); 3].map(|()| retries.after(&error).next);
            assert_eq!(
                next,
                [Next::AfterPause { tries: 0 }, Next::AfterPause { tries: 1 }, Next::Unpublishable]
            );
        }
    }

    #[test]
    fn a_copy_is_never_given_up_for_what_may_have_another_cause() {
        use SendError::{NoLane, NotSent, Refused, Returned};
        let closes = [403, 404, 541].map(closed);
        for error in [Refused, Returned, NotSent, NoLane(cause(504)), disconnected(541)]
            .into_iter()
            .chain(closes)
        {
            for way in WAYS {
                let mut retries = in_way(way);
                assert!(
                    (0..100).all(|_| retries.after(&error).next != Next::Unpublishable),
                    "{error:?}"
                );
            }
        }
    }

    #[test]
    fn a_copy_that_may_have_broken_the_connection_is_tried_with_nothing_beside_it() {
        use Suspicion::{Likely, Possible, Unlikely};
        let error = |code, suspicion| SendError::Disconnected {
            cause: Cause { code, text: String::new() },
            suspicion,
        };
        for way in [Way::SharedLane, Way::OwnLane] {
            for (code, suspicion, expected) in [
                (Some(501), Likely, Way::NothingBeside),
                (Some(501), Possible, Way::NothingBeside),
                (Some(541), Likely, Way::NothingBeside),
                (Some(320), Likely, way),
                (None, Likely, way),
            ] {
                let (verdict, way) = after(way, &error(code, suspicion));
                assert_eq!((verdict.next, way), (Next::Again, expected), "{code:?} {suspicion:?}");
            }
            for code in [501, 541] {
                let (verdict, way) = after(way, &error(Some(code), Unlikely));
                assert_eq!(
                    (verdict.next, way),
                    (Next::AfterPause { tries: 0 }, Way::OwnLane),
                    "it is not known which copy it was: {code}"
                );
            }
        }
    }

    #[test]
    fn a_copy_is_sent_alone_until_it_had_its_time_and_only_what_it_alone_can_have_broken_counts() {
        use Suspicion::{Likely, Possible, Unlikely};
        let error = |code, suspicion| SendError::Disconnected { cause: cause(code), suspicion };
        let again = |way| (Verdict { next: Next::Again, trouble: None, takes_none: false }, way);
        assert_eq!(after(Way::NothingBeside, &error(320, Likely)), again(Way::NothingBeside));
        assert_eq!(after(Way::NothingBeside, &error(320, Unlikely)), again(Way::OwnLane));
        for error in [error(501, Possible), error(541, Possible), error(541, Likely)] {
            let mut retries = in_way(Way::NothingBeside);
            for tries in 0..10 {
                let next = Next::AfterPause { tries };
                let verdict = Verdict { next, trouble: Some(Trouble::Closed), takes_none: false };
                assert_eq!((retries.after(&error), retries.way()), (verdict, Way::NothingBeside));
            }
        }
    }

    #[test]
    fn a_copy_that_the_broker_answers_need_not_be_alone_any_more() {
        for error in
            [SendError::Refused, SendError::Returned, closed(404), closed(406), closed(541)]
        {
            assert_eq!(after(Way::NothingBeside, &error).1, Way::OwnLane, "{error:?}");
        }
    }

    #[test]
    fn if_no_shared_lane_opens_the_whole_exchange_waits_and_for_an_own_lane_only_its_copy() {
        let verdict =
            |next, takes_none| Verdict { next, trouble: Some(Trouble::NoChannel), takes_none };
        let error = SendError::NoLane(cause(504));
        assert_eq!(after(Way::SharedLane, &error), (verdict(Next::Again, true), Way::SharedLane));
        let paused = Next::AfterPause { tries: 0 };
        assert_eq!(after(Way::OwnLane, &error), (verdict(paused, false), Way::OwnLane));
    }

    #[test]
    fn a_copy_may_be_stored_if_no_answer_came_to_it() {
        use SendError::{NoLane, NotSent, Refused, Returned};
        let mut retries = Retries::default();
        for error in [Refused, Returned, NotSent, NoLane(cause(504))] {
            retries.after(&error);
            assert!(!retries.may_be_stored(), "{error:?}");
        }
        for error in [closed(404), disconnected(320)] {
            let mut retries = Retries::default();
            retries.after(&error);
            retries.after(&Refused);
            assert!(retries.may_be_stored(), "a later refusal says nothing of it: {error:?}");
        }
    }

    #[test]
    fn what_was_not_sent_is_sent_in_the_same_way_at_once() {
        for way in WAYS {
            let verdict = Verdict { next: Next::Again, trouble: None, takes_none: false };
            assert_eq!(after(way, &SendError::NotSent), (verdict, way));
        }
    }
}
