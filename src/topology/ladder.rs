//! The part of a topology that the ladder needs.

use super::{Exchange, ExchangeKind, Names, Topology, alternate, matching};
use crate::wait::ladder::Ladder;
use crate::wire::names::{WAIT_FOR, then};

impl Topology {
    /// Each rung is a wait queue, with an exchange behind it that leads on by the header
    /// `rehop-then-<ms>` of this rung. A message without that header has taken its last rung, and
    /// goes on by the alternate exchange to the return exchange.
    ///
    /// The exchange of the lowest rung leads nowhere else. It is there so that the rung's arguments
    /// are the same on another ladder, where other rungs are below it.
    pub(super) fn ladder(&mut self, names: &Names, ladder: Ladder) {
        let headers = |name, other| Exchange {
            name,
            kind: ExchangeKind::Headers,
            arguments: alternate(other),
        };
        self.exchanges.push(headers(names.ladder(), names.stray()));
        for ttl in ladder.rungs() {
            let after = names.after(ttl);
            self.wait_queue(&names.rung(ttl), ttl, &after);
            self.exchanges.push(headers(after, names.return_()));
            self.bind(&names.ladder(), &names.rung(ttl), "", matching(WAIT_FOR, ttl));
            for next in ladder.followers(ttl) {
                self.bind(
                    &names.after(ttl),
                    &names.rung(next),
                    "",
                    matching(&then(ttl.as_millis()), next),
                );
            }
        }
    }
}
