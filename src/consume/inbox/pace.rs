//! Pace: how many deliveries can start before they have waited too long.

use std::time::Duration;

/// How long handlers take, on a moving average.
#[derive(Debug, Default)]
pub(super) struct Pace {
    typical: Option<Duration>,
}

impl Pace {
    pub(super) fn finished(&mut self, took: Duration) {
        self.typical = Some(self.typical.map_or(took, |typical| typical - typical / 8 + took / 8));
    }

    /// How many deliveries `free` handlers can start within the limit, including those that start at once, even if all of them
    /// start and end together. A power of two times `free`, because each change takes another subscription. `None`: no bound
    /// is known.
    pub(super) fn startable(&self, free: usize, limit: Duration) -> Option<usize> {
        let typical = self.typical?.as_nanos();
        if free == 0 {
            return Some(0);
        }
        let rounds = limit.as_nanos().checked_div(typical)?;
        let rounds = usize::try_from(rounds).unwrap_or(usize::MAX).saturating_add(1);
        Some(free.saturating_mul(1 << rounds.ilog2()))
    }
}
