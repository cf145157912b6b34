//! What the broker's answers say about one copy, how it is sent next, and why it may be given up.
//! Pure: no I/O, no clock, no randomness.

use crate::broker::lane::NotTaken;
use crate::broker::lane::{Blame, Cause};

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
    /// Its channel or its connection ended while it was under way.
    may_be_stored: bool,
}

/// Whether a copy may be why its lane or its connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guilt {
    /// It had been under way for longer than that takes. It may be stored.
    Unlikely,
    /// So had everything else, as when the broker reads what an alarm held up.
    Possible,
    /// It was sent lately.
    Likely,
}

/// What to do after a send that was not confirmed: it is sent again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reaction {
    /// After the pause that follows this many tries. `None`: as soon as its exchange takes copies.
    pub(super) pause_after: Option<u32>,
    /// Whether an operator should know of this.
    pub(super) is_trouble: bool,
    /// The exchange takes no copies, or no lane can be opened: all copies to it wait.
    pub(super) takes_none: bool,
}

/// Why the copy of a delivery was given up, and so the delivery not settled as was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// The copy was not confirmed, and the shortest known ack timeout is nearly over.
    Late,
    /// The broker accepts no copy of the message: it closes the channel or the connection over it
    /// each time, with this answer.
    Unpublishable { answer: Box<str> },
    /// The queue stops, and the broker had refused the copy, or it could not be sent. It may be
    /// stored if a channel or a connection ended before the broker answered.
    Stopped { may_be_stored: bool },
    /// The session ended before the copy was confirmed: its channel was gone, or the grace time was
    /// over. The broker has the message again, or soon will.
    SessionEnded,
    /// The channel was gone before the delivery could be settled, whether it has a copy or not. The
    /// broker has the message again.
    ChannelClosed,
}

impl GivenUp {
    pub(crate) const fn text(&self) -> &'static str {
        match self {
            Self::Late => "the broker did not confirm the copy in time",
            Self::Unpublishable { .. } => "the broker accepts no copy",
            Self::Stopped { may_be_stored: false } => "the service stops, and no copy was accepted",
            Self::Stopped { may_be_stored: true } => {
                "the service stops, and whether a copy was accepted is unknown"
            }
            Self::SessionEnded => {
                "the channel was gone, or the grace time was over, before the copy was confirmed"
            }
            Self::ChannelClosed => "the channel was gone",
        }
    }

    pub(crate) const fn error_type(&self) -> &'static str {
        match self {
            Self::Late => "timeout",
            Self::Unpublishable { .. } => "unpublishable",
            Self::Stopped { .. } => "stopped",
            Self::SessionEnded | Self::ChannelClosed => "channel_closed",
        }
    }
}

impl Retries {
    pub(super) fn way(&self) -> Way {
        self.way
    }

    /// Why the copy is given up if its queue stops now. The broker may have stored it although it
    /// confirmed nothing.
    pub(super) fn stopped(&self) -> GivenUp {
        GivenUp::Stopped { may_be_stored: self.may_be_stored }
    }

    /// `guilt`: whether this copy may be why its lane or its connection ended, if one did.
    ///
    /// # Errors
    ///
    /// When the broker closes its channel or its connection over this copy each time.
    pub(super) fn after(&mut self, why: &NotTaken, guilt: Guilt) -> Result<Reaction, GivenUp> {
        self.may_be_stored |= matches!(why, NotTaken::LaneClosed(_) | NotTaken::Disconnected(_));
        let reaction =
            |pause_after, is_trouble, takes_none| Reaction { pause_after, is_trouble, takes_none };
        Ok(match why {
            // 3.10 keeps refusing on an old lane even after the queue's limit is removed.
            NotTaken::Nacked | NotTaken::Returned => {
                reaction(self.after_pause(Way::OwnLane), true, false)
            }
            NotTaken::NotSent => reaction(None, false, false),
            NotTaken::NoLane(_) if self.way == Way::SharedLane => reaction(None, true, true),
            NotTaken::NoLane(_) => reaction(self.after_pause(self.way), true, false),
            NotTaken::LaneClosed(cause) => {
                let takes_none = cause.blame() == Blame::Exchange;
                reaction(self.after_close(cause, guilt)?, true, takes_none)
            }
            NotTaken::Disconnected(cause) => {
                let (pause_after, is_trouble) = self.after_disconnect(cause, guilt)?;
                reaction(pause_after, is_trouble, false)
            }
        })
    }

    fn after_close(&mut self, cause: &Cause, guilt: Guilt) -> Result<Option<u32>, GivenUp> {
        match (self.way, cause.blame()) {
            // The exchange refused it, or one after it, so it waits for the exchange with the
            // others.
            (Way::SharedLane, Blame::Exchange) if guilt == Guilt::Likely => Ok(None),
            // Any copy on the lane may be to blame, so each gets a lane of its own, even if the
            // cause blames no copy: lapin does not always know why a channel ended. So does a copy
            // that was slow: it may be stored, and must not be sent again at each close of the
            // shared lane.
            (Way::SharedLane, _) => Ok(self.at_once(Way::OwnLane)),
            (Way::OwnLane | Way::NothingBeside, Blame::Copy) => {
                self.closed_alone(Way::OwnLane, cause)
            }
            (Way::OwnLane | Way::NothingBeside, _) => Ok(self.after_pause(Way::OwnLane)),
        }
    }

    /// Also returns whether an operator should know of it.
    fn after_disconnect(
        &mut self,
        cause: &Cause,
        guilt: Guilt,
    ) -> Result<(Option<u32>, bool), GivenUp> {
        Ok(match (guilt, self.way, cause.blame()) {
            // It is not known which copy it was: this one may have reached the broker late, or the
            // broker may have failed at something slower than reading a copy. The pause limits how
            // often that can recur.
            (Guilt::Unlikely, _, Blame::Unknown | Blame::Copy) => {
                (self.after_pause(Way::OwnLane), false)
            }
            // It had its time with nothing beside it.
            (Guilt::Unlikely, Way::NothingBeside, _) => (self.at_once(Way::OwnLane), false),
            (Guilt::Unlikely, ..) | (_, _, Blame::Nobody | Blame::Exchange) => (None, false),
            (Guilt::Likely, Way::NothingBeside, Blame::Copy) => {
                (self.closed_alone(Way::NothingBeside, cause)?, true)
            }
            (_, Way::NothingBeside, _) => (self.after_pause(Way::NothingBeside), true),
            (_, Way::SharedLane | Way::OwnLane, _) => (self.at_once(Way::NothingBeside), false),
        })
    }

    /// The broker closed its lane, or the connection, and nothing else was on it.
    fn closed_alone(&mut self, way: Way, cause: &Cause) -> Result<Option<u32>, GivenUp> {
        self.closes += 1;
        if self.closes == MAX_CLOSES {
            return Err(GivenUp::Unpublishable { answer: cause.problem.to_string().into() });
        }
        Ok(self.after_pause(way))
    }

    fn at_once(&mut self, way: Way) -> Option<u32> {
        self.way = way;
        None
    }

    fn after_pause(&mut self, way: Way) -> Option<u32> {
        self.way = way;
        self.tries = self.tries.saturating_add(1);
        Some(self.tries - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::Guilt::{Likely, Possible, Unlikely};
    use super::*;

    const WAYS: [Way; 3] = [Way::SharedLane, Way::OwnLane, Way::NothingBeside];

    fn cause(code: u16) -> Cause {
        Cause { code: Some(code), ..Cause::of("") }
    }

    fn closed(code: u16) -> NotTaken {
        NotTaken::LaneClosed(cause(code))
    }

    fn disconnected(code: u16) -> NotTaken {
        NotTaken::Disconnected(cause(code))
    }

    fn in_way(way: Way) -> Retries {
        Retries { way, ..Retries::default() }
    }

    /// What to do if a copy was not taken that was sent lately in this way, and how it is sent
    /// next.
    fn after(way: Way, why: &NotTaken) -> (Reaction, Way) {
        after_guilt(way, why, Likely)
    }

    fn after_guilt(way: Way, why: &NotTaken, guilt: Guilt) -> (Reaction, Way) {
        let mut retries = in_way(way);
        (retries.after(why, guilt).unwrap(), retries.way())
    }

    #[test]
    fn a_copy_that_is_not_taken_is_tried_on_its_own_lane_after_pauses_that_grow() {
        for why in [NotTaken::Nacked, NotTaken::Returned] {
            for way in WAYS {
                let mut retries = in_way(way);
                for tries in 0..3 {
                    let pause_after = Some(tries);
                    let reaction = Reaction { pause_after, is_trouble: true, takes_none: false };
                    assert_eq!(retries.after(&why, Likely), Ok(reaction));
                    assert_eq!(retries.way(), Way::OwnLane);
                }
            }
        }
    }

    #[test]
    fn after_a_close_over_the_exchange_copies_wait_for_it_and_a_slow_one_gets_its_own_lane() {
        for code in [403, 404] {
            let reaction =
                |pause_after| Reaction { pause_after, is_trouble: true, takes_none: true };
            let paused = Some(0);
            assert_eq!(after(Way::SharedLane, &closed(code)), (reaction(None), Way::SharedLane));
            for slow in [Unlikely, Possible] {
                assert_eq!(
                    after_guilt(Way::SharedLane, &closed(code), slow),
                    (reaction(None), Way::OwnLane)
                );
            }
            assert_eq!(after(Way::OwnLane, &closed(code)), (reaction(paused), Way::OwnLane));
        }
    }

    #[test]
    fn after_a_close_that_blames_no_exchange_each_copy_gets_its_own_lane_at_once() {
        for code in [406, 320, 541] {
            let reaction = Reaction { pause_after: None, is_trouble: true, takes_none: false };
            assert_eq!(after(Way::SharedLane, &closed(code)), (reaction, Way::OwnLane));
        }
    }

    #[test]
    fn a_copy_that_closes_three_lanes_or_connections_alone_is_given_up() {
        for (way, why) in [(Way::OwnLane, closed(406)), (Way::NothingBeside, disconnected(501))] {
            let mut retries = in_way(way);
            let pauses =
                [(); 3].map(|()| retries.after(&why, Likely).map(|reaction| reaction.pause_after));
            let answer = why.cause().unwrap().problem.to_string().into();
            assert_eq!(pauses, [Ok(Some(0)), Ok(Some(1)), Err(GivenUp::Unpublishable { answer })]);
        }
    }

    #[test]
    fn a_copy_is_never_given_up_for_what_may_have_another_cause() {
        use NotTaken::{Nacked, NoLane, NotSent, Returned};
        let closes = [403, 404, 541].map(closed);
        for why in [Nacked, Returned, NotSent, NoLane(cause(504)), disconnected(541)]
            .into_iter()
            .chain(closes)
        {
            for way in WAYS {
                let mut retries = in_way(way);
                assert!((0..100).all(|_| retries.after(&why, Likely).is_ok()), "{why:?}");
            }
        }
    }

    #[test]
    fn a_copy_that_may_have_broken_the_connection_is_tried_with_nothing_beside_it() {
        for way in [Way::SharedLane, Way::OwnLane] {
            for (code, guilt, expected) in [
                (Some(501), Likely, Way::NothingBeside),
                (Some(501), Possible, Way::NothingBeside),
                (Some(541), Likely, Way::NothingBeside),
                (Some(320), Likely, way),
                (None, Likely, way),
            ] {
                let why = NotTaken::Disconnected(Cause { code, ..Cause::of("") });
                let (reaction, way) = after_guilt(way, &why, guilt);
                assert_eq!((reaction.pause_after, way), (None, expected), "{code:?} {guilt:?}");
            }
            for code in [501, 541] {
                let (reaction, way) = after_guilt(way, &disconnected(code), Unlikely);
                assert_eq!(
                    (reaction.pause_after, way),
                    (Some(0), Way::OwnLane),
                    "it is not known which copy it was: {code}"
                );
            }
        }
    }

    #[test]
    fn a_copy_is_sent_alone_until_it_had_its_time_and_only_what_it_alone_can_have_broken_counts() {
        let alone = Way::NothingBeside;
        let again =
            |way| (Reaction { pause_after: None, is_trouble: false, takes_none: false }, way);
        assert_eq!(after_guilt(alone, &disconnected(320), Likely), again(alone));
        assert_eq!(after_guilt(alone, &disconnected(320), Unlikely), again(Way::OwnLane));
        for (code, guilt) in [(501, Possible), (541, Possible), (541, Likely)] {
            let mut retries = in_way(alone);
            for tries in 0..10 {
                let pause_after = Some(tries);
                let reaction = Reaction { pause_after, is_trouble: true, takes_none: false };
                assert_eq!(retries.after(&disconnected(code), guilt), Ok(reaction));
                assert_eq!(retries.way(), alone);
            }
        }
    }

    #[test]
    fn a_copy_that_the_broker_answers_need_not_be_alone_any_more() {
        for why in [NotTaken::Nacked, NotTaken::Returned, closed(404), closed(406), closed(541)] {
            assert_eq!(after(Way::NothingBeside, &why).1, Way::OwnLane, "{why:?}");
        }
    }

    #[test]
    fn if_no_shared_lane_opens_the_whole_exchange_waits_and_for_an_own_lane_only_its_copy() {
        let reaction =
            |pause_after, takes_none| Reaction { pause_after, is_trouble: true, takes_none };
        let why = NotTaken::NoLane(cause(504));
        assert_eq!(after(Way::SharedLane, &why), (reaction(None, true), Way::SharedLane));
        let paused = Some(0);
        assert_eq!(after(Way::OwnLane, &why), (reaction(paused, false), Way::OwnLane));
    }

    #[test]
    fn a_copy_may_be_stored_if_no_answer_came_to_it() {
        use NotTaken::{Nacked, NoLane, NotSent, Returned};
        let stopped = |may_be_stored| GivenUp::Stopped { may_be_stored };
        let mut retries = Retries::default();
        for why in [Nacked, Returned, NotSent, NoLane(cause(504))] {
            retries.after(&why, Likely).unwrap();
            assert_eq!(retries.stopped(), stopped(false), "{why:?}");
        }
        for why in [closed(404), disconnected(320)] {
            let mut retries = Retries::default();
            retries.after(&why, Likely).unwrap();
            retries.after(&Nacked, Likely).unwrap();
            assert_eq!(
                retries.stopped(),
                stopped(true),
                "a later refusal changes nothing: {why:?}"
            );
        }
    }

    #[test]
    fn what_was_not_sent_is_sent_in_the_same_way_at_once() {
        for way in WAYS {
            let reaction = Reaction { pause_after: None, is_trouble: false, takes_none: false };
            assert_eq!(after(way, &NotTaken::NotSent), (reaction, way));
        }
    }

    #[test]
    fn each_reason_for_giving_a_copy_up_has_a_text_and_a_word_for_metrics() {
        let stopped = |may_be_stored| GivenUp::Stopped { may_be_stored };
        for (why, text, error_type) in [
            (GivenUp::Late, "did not confirm the copy in time", "timeout"),
            (
                GivenUp::Unpublishable { answer: "".into() },
                "the broker accepts no copy",
                "unpublishable",
            ),
            (stopped(false), "the service stops, and no copy was accepted", "stopped"),
            (stopped(true), "is unknown", "stopped"),
            (GivenUp::SessionEnded, "the channel was gone", "channel_closed"),
            (GivenUp::ChannelClosed, "the channel was gone", "channel_closed"),
        ] {
            assert!(why.text().contains(text), "{why:?}");
            assert_eq!(why.error_type(), error_type);
        }
    }
}
