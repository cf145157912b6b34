//! Exchanges. Each has a lane of its own, so a 403 or 404 that closes the lane is about this exchange.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{CopyId, LaneId, Outbox, Timer, Trouble, USUAL_ANSWER_TIME};

#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) name: String,
    /// Carries every copy in good standing, as many at once as there are.
    pub(super) lane: Option<LaneId>,
    pub(super) is_open: bool,
    pub(super) in_flight: BTreeSet<CopyId>,
    /// What is to be sent on the lane, in the order in which it was submitted.
    pub(super) queue: BTreeSet<CopyId>,
    /// What is to be tried on a lane of its own.
    pub(super) apart: BTreeSet<CopyId>,
    /// The broker has closed a lane over the exchange, or its lane with nothing under way: nothing is sent until the pause is over.
    pub(super) is_resting: bool,
    /// How often in a row that was so. Until an answer ends the row, one copy at a time finds out whether the exchange takes any.
    failures: u32,
    /// How many sends there were by then. The answer to an earlier one proves nothing.
    sends_at_pause: u64,
    /// Something that it routes to, or the exchange itself, is missing.
    pub(super) needs_repair: bool,
    pub(super) is_under_repair: bool,
    in_trouble: usize,
    reported: Vec<Trouble>,
}

impl Exchange {
    /// Whether nothing forbids to send a copy. See also [`Outbox::may_send`].
    pub(super) fn is_ready(&self) -> bool {
        !self.is_resting && !self.is_under_repair
    }

    pub(super) fn is_doubtful(&self) -> bool {
        self.failures > 0
    }

    pub(super) fn one_more_in_trouble(&mut self) {
        self.in_trouble += 1;
    }

    /// True when none is left.
    pub(super) fn one_less_in_trouble(&mut self) -> bool {
        self.in_trouble = self.in_trouble.saturating_sub(1);
        self.in_trouble == 0
    }

    /// Whether this trouble has not been reported since the exchange last recovered.
    pub(super) fn is_news(&mut self, trouble: Trouble) -> bool {
        let is_news = !self.reported.contains(&trouble);
        if is_news {
            self.reported.push(trouble);
        }
        is_news
    }

    /// True when a reported trouble is over.
    pub(super) fn recover(&mut self) -> bool {
        self.in_trouble == 0 && !std::mem::take(&mut self.reported).is_empty()
    }
}

impl Outbox {
    /// A search through all exchanges is cheap: a service has a handful.
    pub(super) fn exchange_named(&mut self, name: &str) -> usize {
        self.exchanges.iter().position(|exchange| exchange.name == name).unwrap_or_else(|| {
            self.exchanges.push(Exchange { name: name.to_owned(), ..Exchange::default() });
            self.exchanges.len() - 1
        })
    }

    /// The exchange whose lane this is.
    pub(super) fn exchange_of_lane(&self, lane: LaneId) -> Option<usize> {
        self.exchanges.iter().position(|exchange| exchange.lane == Some(lane))
    }

    pub(super) fn exchange_of(&self, id: CopyId) -> Option<usize> {
        self.copies.get(&id).map(|state| state.exchange)
    }

    /// Whether a copy may be sent to the exchange now; to one in doubt only if no other may still show that it takes none. `own` is the copy's
    /// lane, if it has one to itself.
    pub(super) fn may_send(&self, exchange: usize, own: Option<LaneId>, now: Instant) -> bool {
        let of = &self.exchanges[exchange];
        let is_other = |lane: &LaneId| Some(*lane) != own && self.exchange_of(self.trials[lane].copy) == Some(exchange);
        let is_found_out =
            || of.in_flight.iter().any(|id| self.was_sent_lately(*id, now)) || self.recent.iter().any(is_other);
        of.is_ready() && !(of.is_doubtful() && is_found_out())
    }

    /// The broker has closed a lane over the exchange, or its lane with nothing under way. A pause that is running starts again, so that a copy
    /// that is refused during it rests long enough.
    pub(super) fn pause(&mut self, exchange: usize) {
        let of = &mut self.exchanges[exchange];
        of.sends_at_pause = self.sends;
        of.failures = of.failures.saturating_add(u32::from(!of.is_resting));
        of.is_resting = true;
        self.pauses.push((Timer::Exchange(exchange), of.failures - 1));
    }

    /// The pause of the exchange is over, or the copy that finds out has had no answer for long: if the broker had closed its lane, it would
    /// have done so at once. During an alarm that says nothing, because the broker reads nothing.
    pub(super) fn exchange_is_due(&mut self, exchange: usize, now: Instant, is_blocked: bool) {
        if std::mem::take(&mut self.exchanges[exchange].is_resting) {
            return;
        }
        if is_blocked {
            self.timers.set(Timer::Exchange(exchange), now + USUAL_ANSWER_TIME);
        } else {
            self.exchanges[exchange].failures = 0;
        }
    }

    /// The broker confirmed or refused one copy, so the exchange takes copies; unless a lane was closed over it after this one was sent.
    pub(super) fn took_one(&mut self, exchange: usize, send: u64) {
        let of = &mut self.exchanges[exchange];
        if of.is_doubtful() && send > of.sends_at_pause {
            of.failures = 0;
            self.timers.cancel(Timer::Exchange(exchange));
        }
    }
}
