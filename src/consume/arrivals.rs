//! When the deliveries of a channel arrived. Pure: the time is an argument.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How exactly the times are kept.
const PRECISION: Duration = Duration::from_secs(1);

/// When the unsettled deliveries of a channel arrived, to the second: the first of each second, and
/// none before the oldest unsettled one.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    first_of_second: VecDeque<(u64, Instant)>,
    last: u64,
}

impl Arrivals {
    /// The delivery with this tag has arrived. Before `first_unsettled`, all are settled.
    pub(crate) fn arrived(&mut self, tag: u64, now: Instant, first_unsettled: u64) {
        self.last = tag;
        if self.first_of_second.back().is_none_or(|(_, at)| *at + PRECISION <= now) {
            self.first_of_second.push_back((tag, now));
        }
        while self.first_of_second.get(1).is_some_and(|(tag, _)| *tag <= first_unsettled) {
            self.first_of_second.pop_front();
        }
    }

    /// When the oldest delivery that is not settled arrived, or up to a second before that.
    pub(crate) fn oldest(&self, first_unsettled: u64) -> Option<Instant> {
        let is_delivered = first_unsettled <= self.last;
        let until = self.first_of_second.iter().take_while(|(tag, _)| *tag <= first_unsettled);
        until.last().map(|(_, at)| *at).filter(|_| is_delivered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ten_in_a_second(arrivals: &mut Arrivals, tags: std::ops::Range<u64>, start: Instant) {
        for tag in tags {
            arrivals.arrived(tag, start + Duration::from_millis(100) * tag as u32, 1);
        }
    }

    #[test]
    fn the_arrival_of_the_oldest_unsettled_delivery_is_known_to_the_second() {
        let (start, mut arrivals) = (Instant::now(), Arrivals::default());
        assert_eq!(arrivals.oldest(1), None, "nothing was delivered");
        ten_in_a_second(&mut arrivals, 1..100, start);
        for tag in 1..100 {
            let real = start + Duration::from_millis(100) * tag;
            let known = arrivals.oldest(u64::from(tag)).unwrap();
            assert!(known <= real && real - known < PRECISION, "{tag}");
        }
        assert_eq!(arrivals.oldest(100), None, "all are settled");
    }

    #[test]
    fn what_is_settled_is_forgotten_and_of_the_rest_one_a_second_is_kept() {
        let (start, mut arrivals) = (Instant::now(), Arrivals::default());
        ten_in_a_second(&mut arrivals, 1..1_000, start);
        assert_eq!(arrivals.first_of_second.len(), 100);
        arrivals.arrived(1_000, start + Duration::from_secs(200), 1_000);
        assert_eq!(arrivals.first_of_second.len(), 1);
        assert_eq!(arrivals.oldest(1_000), Some(start + Duration::from_secs(200)));
    }
}
