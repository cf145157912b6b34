//! Exchanges. Each has a lane of its own, so a 403 or 404 that closes the lane is about this exchange.

use std::collections::BTreeSet;
use std::time::Instant;

use super::copies::CopyState;
use super::{Action, CopyId, LaneId, Outbox, Timer, Trouble};

#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) name: String,
    /// Carries every copy in good standing, as many at once as there are.
    pub(super) lane: Option<LaneId>,
    pub(super) is_open: bool,
    pub(super) in_flight: BTreeSet<CopyId>,
    /// A full queue has refused a copy on the lane. 3.10 goes on refusing on it if the limit of the queue is removed.
    pub(super) has_refused: bool,
    /// What is to be sent on the lane, in the order in which it was submitted.
    pub(super) queue: BTreeSet<CopyId>,
    /// What is to be tried on a lane of its own.
    pub(super) apart: BTreeSet<CopyId>,
    /// The broker has closed a lane over the exchange, or its lane with nothing under way: nothing is sent until the pause is over.
    pub(super) is_resting: bool,
    /// How often in a row that was so. Until an answer ends the row, one copy at a time finds out whether the exchange takes any; one that has had
    /// no answer for as long as that usually takes is followed by the next.
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

    /// The copy that is to be tried alone next. While the exchange is in doubt, that is any.
    pub(super) fn first_to_try(&self) -> Option<CopyId> {
        let in_doubt = self.queue.first().filter(|_| self.is_doubtful());
        self.apart.first().into_iter().chain(in_doubt).min().copied()
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

    /// Whether a copy may be sent to the exchange now; to one in doubt only if no other that was sent since the last pause may still show that
    /// the exchange takes none.
    pub(super) fn may_send(&self, exchange: usize, now: Instant) -> bool {
        let of = &self.exchanges[exchange];
        let finds_out = |id: CopyId| {
            let is_later = |state: &CopyState| state.exchange == exchange && state.last_send > of.sends_at_pause;
            self.copies.get(&id).is_some_and(is_later) && self.was_sent_lately(id, now)
        };
        of.is_ready() && !(of.is_doubtful() && self.under_way().any(finds_out))
    }

    /// Whether another copy may get a lane of its own; to an exchange in doubt one after the other.
    pub(super) fn may_try(&self, exchange: usize, now: Instant) -> bool {
        let is_its = |lane: &LaneId| self.exchange_of(self.trials[lane].copy) == Some(exchange);
        self.may_send(exchange, now) && !(self.exchanges[exchange].is_doubtful() && self.recent.iter().any(is_its))
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

    /// A copy to the exchange was confirmed on a lane of its own. If the lane of the exchange may go on refusing, another takes its place as soon as
    /// nothing is under way on it.
    pub(super) fn renew_lane(&mut self, exchange: usize) {
        let of = &mut self.exchanges[exchange];
        if of.has_refused
            && of.is_open
            && of.in_flight.is_empty()
            && let Some(lane) = of.lane.take()
        {
            (of.has_refused, of.is_open) = (false, false);
            self.actions.push_back(Action::CloseLane(lane));
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
