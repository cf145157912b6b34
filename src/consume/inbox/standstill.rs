//! For how long deliveries that wait in this process may hold up everything else.

use std::time::{Duration, Instant};

/// The longest standstill. A delivery that waits for longer causes none.
pub(super) const LONGEST: Duration = Duration::from_secs(10);

/// For how long there is no other one. In an outage many deliveries may be near their limit, and each has several waits ahead.
const APART: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Standstill {
    began: Option<Instant>,
}

impl Standstill {
    /// A delivery begins to wait that wants everything else to stand still.
    pub(super) fn begin(&mut self, now: Instant) {
        if self.began.is_none_or(|began| began + LONGEST + APART <= now) {
            self.began = Some(now);
        }
    }

    /// When it ends, unless it has ended.
    pub(super) fn ends_at(&self, now: Instant) -> Option<Instant> {
        self.began.map(|began| began + LONGEST).filter(|end| now < *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_ends_by_itself_and_the_next_one_comes_a_minute_later_at_the_earliest() {
        let (mut standstill, began) = (Standstill::default(), Instant::now());
        let after = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(standstill.ends_at(began), None);
        standstill.begin(began);
        standstill.begin(after(9));
        assert_eq!(standstill.ends_at(after(9)), Some(after(10)), "a second wait does not prolong it");
        assert_eq!(standstill.ends_at(after(10)), None);
        standstill.begin(after(69));
        assert_eq!(standstill.ends_at(after(69)), None);
        standstill.begin(after(70));
        assert_eq!(standstill.ends_at(after(70)), Some(after(80)));
    }
}
