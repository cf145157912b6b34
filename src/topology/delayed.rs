//! The part of a topology that the delayed exchange needs.

use super::{Exchange, ExchangeBinding, ExchangeKind, Names, Topology, arguments};

impl Topology {
    /// It has no alternate exchange: the plugin routes each message when its delay is over, so the
    /// broker would send each to the alternate at once.
    pub(super) fn delayed(&mut self, names: &Names) {
        self.exchanges.push(Exchange {
            name: names.delay(),
            kind: ExchangeKind::Delayed,
            arguments: arguments([("x-delayed-type", "fanout".into())]),
        });
        self.exchange_bindings
            .push(ExchangeBinding { source: names.delay(), destination: names.return_() });
    }
}
