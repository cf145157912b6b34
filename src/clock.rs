//! The time. In a simulated world it passes only when nothing else can happen.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime};

thread_local! {
    /// A moment of the virtual clock, and the date that it stands for.
    static SIMULATED: Cell<Option<(Instant, SystemTime)>> = const { Cell::new(None) };
}

/// The time of the runtime's clock, which tests can pause.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The date and time of day.
#[doc(hidden)]
pub fn date() -> SystemTime {
    SIMULATED.get().map_or_else(SystemTime::now, |(moment, date)| {
        date + now().saturating_duration_since(moment)
    })
}

/// Until the guard is dropped, it is this date now on the current thread, and as much later as the
/// runtime's clock says.
#[doc(hidden)]
pub fn simulate(date: SystemTime) -> SimulatedDate {
    SIMULATED.set(Some((now(), date)));
    SimulatedDate(())
}

/// Ends the simulation of the date when it is dropped.
#[derive(Debug)]
pub struct SimulatedDate(());

impl Drop for SimulatedDate {
    fn drop(&mut self) {
        SIMULATED.set(None);
    }
}

/// The time since then.
pub(crate) fn elapsed(since: Instant) -> Duration {
    now().saturating_duration_since(since)
}
