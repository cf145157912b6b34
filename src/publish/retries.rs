//! What the broker's answers say about one copy, and how it is sent next. Pure: no I/O, no clock, no randomness.

use crate::broker::lane::cause::{Blame, Cause, Trouble};

/// After this many closes over one copy alone, the copy is unpublishable.
const MAX_CLOSES: u32 = 3;

/// How a copy is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Way {
    /// On the lane of its exchange, with all others.
    #[default]
    Together,
    /// On a lane of its own, because the broker did not take it, or it may have closed its lane: so it neither holds up nor multiplies others.
    Alone,
    /// The same, with nothing sent beside it: it may have broken the connection.
    Exclusively,
}

/// What is known of a copy.
#[derive(Debug, Default)]
pub(super) struct Retries {
    way: Way,
    /// How often it was not taken. The pauses grow with it.
    tries: u32,
    closes: u32,
}

/// How a send ended without a confirm.
#[derive(Debug)]
pub(super) enum End {
    /// The broker nacked it, as a full queue does.
    Refused,
    /// It found no queue, although each of our exchanges has an alternate exchange that leads to one.
    Returned,
    /// Its lane could not be opened.
    NoLane(Cause),
    /// The broker closed its lane. `is_recent`: it was sent so lately that it may be why.
    LaneClosed { cause: Cause, is_recent: bool },
    /// The connection is gone. `is_recent` as above; false if it was not sent.
    Disconnected { cause: Cause, is_recent: bool },
}

impl End {
    /// What the broker said.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Refused | Self::Returned => "",
            Self::NoLane(cause) | Self::LaneClosed { cause, .. } | Self::Disconnected { cause, .. } => &cause.text,
        }
    }
}

/// What follows from that.
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
    /// It is sent again after a pause, that of this many tries.
    Rest(u32),
    /// The broker closes its channel or its connection over this copy each time.
    Unpublishable,
}

impl Retries {
    pub(super) fn way(&self) -> Way {
        self.way
    }

    pub(super) fn after(&mut self, end: &End) -> Verdict {
        let verdict = |next, trouble, takes_none| Verdict { next, trouble, takes_none };
        match end {
            // It is sent again on a lane of its own: if the limit of the queue is removed, 3.10 goes on refusing on an old one.
            End::Refused => verdict(self.rest(Way::Alone), Some(Trouble::Refused), false),
            End::Returned => verdict(self.rest(Way::Alone), Some(Trouble::Unroutable), false),
            End::NoLane(_) if self.way == Way::Together => verdict(Next::Again, Some(Trouble::NoChannel), true),
            End::NoLane(_) => verdict(self.rest(self.way), Some(Trouble::NoChannel), false),
            End::LaneClosed { cause, is_recent } => self.after_close(cause.blame(), *is_recent),
            End::Disconnected { cause, is_recent } => self.after_disconnect(cause.blame(), *is_recent),
        }
    }

    fn after_close(&mut self, blame: Blame, is_recent: bool) -> Verdict {
        let trouble = match blame {
            Blame::Exchange(trouble) => trouble,
            Blame::Copy => Trouble::Malformed,
            Blame::Nobody | Blame::Unknown => Trouble::Closed,
        };
        let takes_none = matches!(blame, Blame::Exchange(_));
        let next = match (self.way, blame) {
            // One that is slow to be confirmed may be stored. It is under way with no other from now on, so it is stored once more at most.
            (Way::Together, Blame::Exchange(_)) if is_recent => Next::Again,
            // Any of those on the lane may be to blame, so each is tried alone. This is so, too, if nothing that was published seems to be to
            // blame: lapin does not always know why a channel has ended.
            (Way::Together, _) => self.go(Way::Alone),
            (_, Blame::Copy) => self.closed_alone(),
            (_, Blame::Exchange(_) | Blame::Nobody | Blame::Unknown) => self.rest(Way::Alone),
        };
        Verdict { next, trouble: Some(trouble), takes_none }
    }

    fn after_disconnect(&mut self, blame: Blame, is_recent: bool) -> Verdict {
        let is_suspect = is_recent && matches!(blame, Blame::Copy | Blame::Unknown);
        let (next, trouble) = match (is_suspect, self.way, blame) {
            (false, ..) => (Next::Again, None),
            (true, Way::Exclusively, Blame::Copy) => (self.closed_alone(), Some(Trouble::Malformed)),
            (true, Way::Exclusively, _) => (self.rest(Way::Exclusively), Some(Trouble::Malformed)),
            (true, Way::Together | Way::Alone, _) => (self.go(Way::Exclusively), None),
        };
        Verdict { next, trouble, takes_none: false }
    }

    /// The broker closed something over this copy alone.
    fn closed_alone(&mut self) -> Next {
        self.closes += 1;
        if self.closes == MAX_CLOSES { Next::Unpublishable } else { self.rest(self.way) }
    }

    fn go(&mut self, way: Way) -> Next {
        self.way = way;
        Next::Again
    }

    fn rest(&mut self, way: Way) -> Next {
        self.way = way;
        self.tries = self.tries.saturating_add(1);
        Next::Rest(self.tries - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(code: u16) -> Cause {
        Cause { code: Some(code), text: String::new() }
    }

    fn closed(code: u16) -> End {
        End::LaneClosed { cause: cause(code), is_recent: true }
    }

    fn disconnected(code: Option<u16>) -> End {
        End::Disconnected { cause: Cause { code, text: String::new() }, is_recent: true }
    }

    fn in_way(way: Way) -> Retries {
        Retries { way, ..Retries::default() }
    }

    #[test]
    fn a_copy_that_is_not_taken_is_tried_alone_after_pauses_that_grow() {
        for (end, trouble) in [(End::Refused, Trouble::Refused), (End::Returned, Trouble::Unroutable)] {
            for way in [Way::Together, Way::Alone, Way::Exclusively] {
                let mut retries = in_way(way);
                for tries in 0..3 {
                    let verdict = retries.after(&end);
                    assert_eq!(verdict.next, Next::Rest(tries));
                    assert_eq!((verdict.trouble, verdict.takes_none), (Some(trouble), false));
                    assert_eq!(retries.way(), Way::Alone);
                }
            }
        }
    }

    #[test]
    fn after_a_close_over_the_exchange_copies_wait_for_it_and_a_slow_one_is_tried_alone() {
        for (code, trouble) in [(403, Trouble::Forbidden), (404, Trouble::Missing)] {
            for (is_recent, way) in [(true, Way::Together), (false, Way::Alone)] {
                let mut retries = Retries::default();
                let verdict = retries.after(&End::LaneClosed { cause: cause(code), is_recent });
                assert_eq!(verdict, Verdict { next: Next::Again, trouble: Some(trouble), takes_none: true });
                assert_eq!(retries.way(), way);
            }
            let mut alone = in_way(Way::Alone);
            let verdict = alone.after(&closed(code));
            assert_eq!((verdict.next, verdict.takes_none), (Next::Rest(0), true));
        }
    }

    #[test]
    fn after_a_close_that_blames_no_exchange_each_copy_is_tried_alone_at_once() {
        for (code, trouble) in [(406, Trouble::Malformed), (320, Trouble::Closed), (541, Trouble::Closed)] {
            let mut retries = Retries::default();
            let verdict = retries.after(&closed(code));
            assert_eq!(verdict, Verdict { next: Next::Again, trouble: Some(trouble), takes_none: false });
            assert_eq!(retries.way(), Way::Alone);
        }
    }

    #[test]
    fn a_copy_that_closes_three_lanes_or_connections_alone_is_given_up() {
        for (way, end) in [(Way::Alone, closed(406)), (Way::Exclusively, disconnected(Some(501)))] {
            let mut retries = in_way(way);
            let next = [(); 3].map(|()| retries.after(&end).next);
            assert_eq!(next, [Next::Rest(0), Next::Rest(1), Next::Unpublishable]);
        }
    }

    #[test]
    fn a_copy_is_never_given_up_for_what_may_have_another_cause() {
        let recent = |code| End::Disconnected { cause: cause(code), is_recent: true };
        for end in
            [End::Refused, End::Returned, End::NoLane(cause(504)), closed(403), closed(404), closed(541), recent(541)]
        {
            for way in [Way::Together, Way::Alone, Way::Exclusively] {
                let mut retries = in_way(way);
                assert!((0..100).all(|_| retries.after(&end).next != Next::Unpublishable), "{end:?}");
            }
        }
    }

    #[test]
    fn a_copy_that_may_have_broken_the_connection_is_tried_with_nothing_beside_it() {
        for way in [Way::Together, Way::Alone] {
            for (code, is_recent, next) in [
                (Some(501), true, Way::Exclusively),
                (Some(541), true, Way::Exclusively),
                (Some(501), false, way),
                (Some(320), true, way),
                (None, true, way),
            ] {
                let mut retries = in_way(way);
                let end = End::Disconnected { cause: Cause { code, text: String::new() }, is_recent };
                assert_eq!(retries.after(&end).next, Next::Again);
                assert_eq!(retries.way(), next, "{code:?} {is_recent}");
            }
        }
    }

    #[test]
    fn what_the_broker_answers_clears_a_suspect() {
        for end in [End::Refused, closed(404), closed(541)] {
            let mut suspect = in_way(Way::Exclusively);
            suspect.after(&end);
            assert_eq!(suspect.way(), Way::Alone);
        }
    }

    #[test]
    fn where_no_lane_can_be_opened_the_exchange_waits_or_the_copy_that_needs_a_lane_of_its_own() {
        let together = Retries::default().after(&End::NoLane(cause(504)));
        assert_eq!((together.next, together.takes_none), (Next::Again, true));
        let alone = in_way(Way::Alone).after(&End::NoLane(cause(504)));
        assert_eq!((alone.next, alone.takes_none), (Next::Rest(0), false));
    }
}
