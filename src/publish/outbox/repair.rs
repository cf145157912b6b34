//! Declares the topology again after a copy has shown that a part of it is missing.

use super::{LaneId, Outbox};

/// When the topology is declared again.
#[derive(Debug, Default)]
pub(super) struct Repair {
    pub(super) is_wanted: bool,
    pub(super) is_running: bool,
    pub(super) is_resting: bool,
    /// After a new connection nothing is known of the topology, so nothing at all is sent before it is declared.
    pub(super) is_of_all: bool,
}

impl Outbox {
    pub(super) fn want_repair(&mut self, exchange: usize) {
        self.repair.is_wanted = true;
        self.exchanges[exchange].needs_repair = true;
    }

    /// An exchange whose bindings are incomplete may send a copy to the stray queue, so copies to an exchange under repair wait
    /// until the repair is done. Copies to other exchanges go on: declaring what is in place changes nothing. A copy that is
    /// returned during a repair is stored nowhere, so it can be sent again without a duplicate; it asks for another repair.
    pub(super) fn begin_repair(&mut self) {
        for exchange in self.exchanges.iter_mut().filter(|exchange| exchange.needs_repair) {
            exchange.needs_repair = false;
            exchange.until_repaired = Some(Vec::new());
        }
    }

    pub(super) fn end_repair(&mut self) {
        for exchange in 0..self.exchanges.len() {
            for id in self.exchanges[exchange].until_repaired.take().unwrap_or_default() {
                let is_apart = self.copies.get(&id).is_some_and(|state| state.is_apart);
                if is_apart || self.exchanges[exchange].is_scout(id) {
                    self.make_ready(id);
                } else {
                    self.enqueue(id);
                }
            }
        }
    }

    pub(super) fn is_under_repair(&self, lane: LaneId) -> bool {
        let exchange = self.trials.get(&lane).and_then(|lane| self.exchange_of(lane.copy));
        exchange.is_some_and(|exchange| self.exchanges[exchange].is_under_repair())
    }
}
