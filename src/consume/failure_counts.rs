//! Which failures get a log line of their own, and which are counted. Pure: no I/O, no clock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often the failures of a class are counted.
pub(crate) const COUNTED_EVERY: Duration = Duration::from_secs(60);

/// More classes than this at a time are counted together: a handler may have put an id into its
/// classes.
const MAX_CLASSES: usize = 100;

/// The class under which the others are counted: OpenTelemetry's word for the rest.
const OTHER: &str = "_OTHER";

/// The failures of one queue since their last lines, by class. An outage fails every attempt, and a
/// line for each would bury the first, which says why.
#[derive(Debug, Default)]
pub(crate) struct FailureCounts(BTreeMap<String, Window>);

#[derive(Debug)]
struct Window {
    since: Instant,
    failures: u64,
}

/// How often a class has failed since its last line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) class: String,
    pub(crate) failures: u64,
    /// The time that they took, in which this class had no line.
    pub(crate) within: Duration,
}

impl FailureCounts {
    /// Takes a failure. True if it is the first of its class for a while, and gets a line of its
    /// own.
    pub(crate) fn is_first(&mut self, class: &str, now: Instant) -> bool {
        let is_full = self.0.len() >= MAX_CLASSES && !self.0.contains_key(class);
        let class = if is_full { OTHER } else { class };
        if let Some(window) = self.0.get_mut(class) {
            window.failures += 1;
            return false;
        }
        self.0.insert(class.to_owned(), Window { since: now, failures: 0 });
        true
    }

    /// Takes the counts of the classes whose last line has this age. A class that has not failed
    /// since is forgotten, so that its next failure is a first one again.
    pub(crate) fn take(&mut self, now: Instant, age: Duration) -> Vec<Count> {
        let mut counts = Vec::new();
        self.0.retain(|class, window| {
            let within = now.saturating_duration_since(window.since);
            if within < age {
                return true;
            }
            let failures = std::mem::take(&mut window.failures);
            window.since = now;
            if failures > 0 {
                counts.push(Count { class: class.clone(), failures, within });
            }
            failures > 0
        });
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that starts now: it gives the time so many seconds later.
    fn clock() -> impl Fn(u64) -> Instant {
        let start = Instant::now();
        move |seconds| start + Duration::from_secs(seconds)
    }

    fn count(class: &str, failures: u64, seconds: u64) -> Count {
        Count { class: class.to_owned(), failures, within: Duration::from_secs(seconds) }
    }

    #[test]
    fn the_first_failure_of_each_class_has_a_line_and_the_others_are_counted_each_minute() {
        let (mut counts, at) = (FailureCounts::default(), clock());
        assert!(counts.is_first("http_503", at(0)));
        assert!(!counts.is_first("http_503", at(1)));
        assert!(counts.is_first("timeout", at(30)));
        assert!(!counts.is_first("http_503", at(59)));
        assert_eq!(counts.take(at(59), COUNTED_EVERY), []);
        assert_eq!(counts.take(at(60), COUNTED_EVERY), [count("http_503", 2, 60)]);
        assert!(!counts.is_first("http_503", at(61)), "the outage goes on");
        assert_eq!(counts.take(at(100), COUNTED_EVERY), [], "the last line is 40 seconds old");
        assert_eq!(counts.take(at(125), COUNTED_EVERY), [count("http_503", 1, 65)]);
    }

    #[test]
    fn a_class_that_has_not_failed_for_a_minute_has_a_line_again_when_it_fails() {
        let (mut counts, at) = (FailureCounts::default(), clock());
        assert!(counts.is_first("timeout", at(0)));
        assert_eq!(
            counts.take(at(60), COUNTED_EVERY),
            [],
            "there was one failure, and it had a line"
        );
        assert!(counts.is_first("timeout", at(61)));
    }

    #[test]
    fn what_is_not_counted_yet_is_counted_at_the_end() {
        let (mut counts, at) = (FailureCounts::default(), clock());
        counts.is_first("timeout", at(0));
        counts.is_first("busy", at(0));
        counts.is_first("timeout", at(1));
        assert_eq!(counts.take(at(5), Duration::ZERO), [count("timeout", 1, 5)]);
        assert_eq!(counts.take(at(5), Duration::ZERO), []);
    }

    #[test]
    fn classes_without_end_are_counted_together() {
        let (mut counts, at) = (FailureCounts::default(), clock());
        for class in 0..MAX_CLASSES {
            assert!(counts.is_first(&format!("id-{class}"), at(0)));
        }
        assert!(counts.is_first("id-x", at(1)));
        assert!(!counts.is_first("id-y", at(2)));
        assert!(!counts.is_first("id-7", at(2)), "a class that is known stays itself");
        assert_eq!(
            counts.take(at(3), Duration::ZERO),
            [count("_OTHER", 1, 2), count("id-7", 1, 3)]
        );
    }
}
