//! Notices that the broker does not delay what is returned to it: a policy has switched that off, or has other delays.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many messages are remembered: enough to meet one of them again.
const REMEMBERED: usize = 16;

/// Remembers some messages that the broker should delay, until one comes back much too early.
#[derive(Debug, Default)]
pub(crate) struct EarlyReturns(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Fingerprint, when the message was returned, and when it is due.
    away: Vec<(u64, Instant, Instant)>,
    has_warned: bool,
}

impl EarlyReturns {
    /// A message is returned, to come back after the delay. The fingerprint is asked for only if there is room for one more.
    pub(crate) fn returned(&self, fingerprint: impl FnOnce() -> u64, delay: Duration, now: Instant) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.away.retain(|(_, _, due)| *due > now);
        if !state.has_warned && state.away.len() < REMEMBERED {
            state.away.push((fingerprint(), now, now + delay));
        }
    }

    /// A message has come back after a wait. If it was away for less than half of its delay, the first time, returns for how
    /// long it was away.
    pub(crate) fn came_back(&self, fingerprint: impl FnOnce() -> u64, now: Instant) -> Option<Duration> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.away.is_empty() {
            return None;
        }
        let fingerprint = fingerprint();
        let position = state.away.iter().position(|(away, ..)| *away == fingerprint)?;
        let (_, since, due) = state.away.swap_remove(position);
        let away = now.saturating_duration_since(since);
        if away >= due.saturating_duration_since(since) / 2 {
            return None;
        }
        state.has_warned = true;
        state.away.clear();
        Some(away)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_that_comes_back_in_less_than_half_of_its_delay_is_noticed_and_no_other() {
        let (early, start) = (EarlyReturns::default(), Instant::now());
        let after = |millis| start + Duration::from_millis(millis);
        let delay = Duration::from_millis(100);
        for fingerprint in 1..=20 {
            early.returned(|| fingerprint, delay, start);
        }
        assert_eq!(early.came_back(|| 17, after(1)), None, "only some are remembered");
        assert_eq!(early.came_back(|| 1, after(50)), None);
        assert_eq!(early.came_back(|| 1, after(1)), None, "it was seen already");
        assert_eq!(early.came_back(|| 2, after(49)), Some(Duration::from_millis(49)));
        early.returned(|| 3, delay, after(50));
        assert_eq!(early.came_back(|| 3, after(51)), None, "it is noticed once");
    }

    #[test]
    fn what_is_due_makes_room() {
        let (early, start) = (EarlyReturns::default(), Instant::now());
        let delay = Duration::from_millis(100);
        for fingerprint in 0..16 {
            early.returned(|| fingerprint, delay, start);
        }
        let later = start + delay;
        early.returned(|| 99, delay, later);
        assert_eq!(early.came_back(|| 99, later), Some(Duration::ZERO));
    }
}
