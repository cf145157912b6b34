//! Declares the topology again after a copy has shown that a part of it is missing.

use super::Outbox;

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
        for exchange in &mut self.exchanges {
            exchange.is_under_repair |= std::mem::take(&mut exchange.needs_repair);
        }
    }

    pub(super) fn end_repair(&mut self) {
        self.exchanges.iter_mut().for_each(|exchange| exchange.is_under_repair = false);
    }
}
