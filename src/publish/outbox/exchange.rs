//! Exchanges. While the broker closes channels over one, its copies wait, and one at a time, the scout, is sent to find out
//! whether it takes copies again.

use std::collections::VecDeque;

use super::copies::Place;
use super::{CopyId, Outbox, Timer, Trouble};

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) name: String,
    closed: Option<Closed>,
    in_trouble: usize,
    reported: Vec<Trouble>,
    /// Something that it routes to, or the exchange itself, is missing.
    pub(super) needs_repair: bool,
    /// During a repair, the copies that wait for its end.
    pub(super) until_repaired: Option<Vec<CopyId>>,
}

/// The state of an exchange that does not exist, or that the user may not write to, by the broker's last answer.
#[derive(Debug, Default)]
struct Closed {
    /// The copies that wait. A scout that failed goes to the end, so that one copy that stays forbidden, as with topic
    /// permissions, does not hold up the others.
    held: VecDeque<CopyId>,
    /// The copy that is sent to find out.
    scout: Option<CopyId>,
    /// The pause is over, and the next scout may be sent.
    is_due: bool,
    failures: u32,
    /// The number of sends when the broker last closed a channel over the exchange. A confirm of an earlier send proves nothing.
    sends: u64,
}

impl Exchange {
    pub(super) fn is_scout(&self, id: CopyId) -> bool {
        self.closed.as_ref().is_some_and(|closed| closed.scout == Some(id))
    }

    pub(super) fn end_pause(&mut self) {
        if let Some(closed) = &mut self.closed {
            closed.is_due = true;
        }
    }

    pub(super) fn let_go(&mut self, id: CopyId) {
        if let Some(closed) = &mut self.closed {
            closed.held.retain(|held| *held != id);
        }
        if let Some(waiting) = &mut self.until_repaired {
            waiting.retain(|waiting| *waiting != id);
        }
    }

    pub(super) fn is_under_repair(&self) -> bool {
        self.until_repaired.is_some()
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
    pub(super) fn exchange(&mut self, name: &str) -> usize {
        self.exchanges.iter().position(|exchange| exchange.name == name).unwrap_or_else(|| {
            let name = name.to_owned();
            self.exchanges.push(Exchange {
                name,
                closed: None,
                in_trouble: 0,
                reported: Vec::new(),
                needs_repair: false,
                until_repaired: None,
            });
            self.exchanges.len() - 1
        })
    }

    pub(super) fn exchange_of(&self, id: CopyId) -> Option<usize> {
        self.copies.get(&id).map(|state| state.exchange)
    }

    pub(super) fn must_be_held(&self, id: CopyId) -> bool {
        self.copies.get(&id).is_some_and(|state| {
            let exchange = &self.exchanges[state.exchange];
            exchange.is_under_repair() || exchange.closed.is_some() && !exchange.is_scout(id)
        })
    }

    /// Keeps the exchange's copies off the main lane until a scout is taken. If the exchange was closed already, the next scout is
    /// sent after a pause. A pause that is running starts again, so that a copy that is rejected during it rests long enough.
    pub(super) fn close(&mut self, exchange: usize) {
        let closed =
            self.exchanges[exchange].closed.get_or_insert_with(|| Closed { is_due: true, ..Closed::default() });
        closed.sends = self.sends;
        if std::mem::take(&mut closed.is_due) {
            self.pauses.push((Timer::Exchange(exchange), closed.failures));
            closed.failures = closed.failures.saturating_add(1);
        } else if closed.scout.is_none() {
            self.pauses.push((Timer::Exchange(exchange), closed.failures.saturating_sub(1)));
        }
    }

    pub(super) fn hold(&mut self, id: CopyId) {
        let Some(exchange) = self.exchange_of(id) else { return };
        self.put(id, Place::Held);
        if let Some(waiting) = &mut self.exchanges[exchange].until_repaired {
            return waiting.push(id);
        }
        if let Some(closed) = &mut self.exchanges[exchange].closed {
            closed.held.push_back(id);
        }
        self.send_scout(exchange);
    }

    pub(super) fn send_scout(&mut self, exchange: usize) {
        let Some(closed) = &mut self.exchanges[exchange].closed else { return };
        if closed.is_due
            && closed.scout.is_none()
            && let Some(id) = closed.held.pop_front()
        {
            closed.is_due = false;
            closed.scout = Some(id);
            self.make_ready(id);
        }
    }

    /// The scout has proven nothing. Another is sent after a pause that does not grow.
    fn pause_scouts(&mut self, exchange: usize) {
        if let Some(closed) = &mut self.exchanges[exchange].closed {
            closed.scout = None;
            self.pauses.push((Timer::Exchange(exchange), closed.failures.saturating_sub(1)));
        }
    }

    /// Another scout is sent after a pause that grows.
    pub(super) fn scout_failed(&mut self, exchange: usize) {
        if let Some(closed) = &mut self.exchanges[exchange].closed {
            closed.scout = None;
            closed.is_due = true;
        }
        self.close(exchange);
    }

    /// If the copy was the scout, another one is sent at once.
    pub(super) fn replace_scout(&mut self, exchange: usize, gone: CopyId) {
        if !self.exchanges[exchange].is_scout(gone) {
            return;
        }
        if let Some(closed) = &mut self.exchanges[exchange].closed {
            closed.scout = None;
            closed.is_due = true;
        }
        self.send_scout(exchange);
    }

    /// The broker confirmed or rejected one copy, so the exchange takes copies; unless it was closed after this one was sent.
    pub(super) fn took_one(&mut self, exchange: usize, id: CopyId, send: u64) {
        match &self.exchanges[exchange].closed {
            Some(closed) if send > closed.sends => self.reopen(exchange),
            Some(closed) if closed.scout == Some(id) => self.pause_scouts(exchange),
            Some(_) | None => {}
        }
    }

    /// The exchange takes copies again. Copies in good standing go to the main lane; the others are tried alone.
    fn reopen(&mut self, exchange: usize) {
        let Some(closed) = self.exchanges[exchange].closed.take() else { return };
        self.timers.cancel(Timer::Exchange(exchange));
        for id in closed.held {
            match self.copies.get(&id).map(|state| (state.is_apart, state.tries)) {
                Some((false, _)) => self.enqueue(id),
                Some((true, 0)) => self.make_ready(id),
                Some((true, _)) => self.rest(id),
                None => {}
            }
        }
    }
}
