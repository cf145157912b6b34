//! What the spans of a queue are called. Jaeger's rows show little else, so the names say what
//! happened; and it lists them as operations, so there are few of them, whatever happens.

use std::time::Duration;

use crate::retry::decision::Reason;
use crate::retry::outcome::Outcome;

/// Attempts from this one on share a name.
const MOST_ATTEMPTS: u32 = 10;
/// If a policy has more delays, their names only tell their orders of magnitude.
const MOST_DELAYS: usize = 8;

/// A name in the name of a span: anyone may name a queue, and a row is one line.
pub(super) fn one_line(name: &str) -> String {
    name.replace(char::is_control, " ")
}

/// The names of one queue's spans.
#[derive(Debug)]
pub(super) struct Titles {
    queue: String,
    attempts: Vec<String>,
    handled: String,
    /// The delays that have names of their own.
    delays: Vec<Duration>,
}

impl Titles {
    pub(super) fn new(queue: &str, delays: &[Duration]) -> Self {
        let queue = one_line(queue);
        let mut delays = delays.to_vec();
        delays.sort_unstable();
        delays.dedup();
        if delays.len() > MOST_DELAYS {
            delays.clear();
        }
        Self {
            attempts: (1..=MOST_ATTEMPTS)
                .map(|it| format!("process {queue} {}", number(it)))
                .collect(),
            handled: format!("process {queue}: handled"),
            queue,
            delays,
        }
    }

    /// An attempt that has begun, and stays called so if it fails.
    pub(super) fn attempt(&self, attempt: u32, is_replayed: bool) -> String {
        let index = attempt.clamp(1, MOST_ATTEMPTS) as usize - 1;
        let name = &self.attempts[index];
        if is_replayed { format!("{name} after the replay") } else { name.clone() }
    }

    /// An attempt after its decision, if that says more than its number. One whose handler was not
    /// called was no attempt.
    pub(super) fn decided(&self, outcome: Outcome, has_failed: bool) -> Option<String> {
        let queue = &self.queue;
        match outcome {
            Outcome::Ack => Some(self.handled.clone()),
            Outcome::Discard(Reason::Discarded) => Some(format!("process {queue}: discarded")),
            Outcome::Discard(reason) => Some(format!("process {queue}: discarded, {reason}")),
            Outcome::Park(reason) if !has_failed => Some(format!("process {queue}: {reason}")),
            Outcome::Wait(_) if !has_failed => Some(format!("process {queue}: the wait goes on")),
            Outcome::Park(_) | Outcome::Wait(_) | Outcome::Defer(_) | Outcome::Requeue => None,
        }
    }

    /// A copy that is sent, or a settlement that does the same.
    pub(super) fn moved(&self, outcome: Outcome) -> Option<String> {
        match outcome {
            Outcome::Park(reason) => Some(format!("park {}: {reason}", self.queue)),
            Outcome::Wait(delay) | Outcome::Defer(delay) => {
                Some(format!("waits {}", self.delay(delay)))
            }
            Outcome::Ack | Outcome::Requeue | Outcome::Discard(_) => None,
        }
    }

    /// A wait that is over.
    pub(super) fn waited(&self, delay: Duration) -> String {
        format!("wait {}, then {}", self.delay(delay), self.queue)
    }

    /// A delivery that came back from an attempt of which nothing is known.
    pub(super) fn came_back(&self, attempt: u32, is_last: bool) -> String {
        let name = format!("died? {} {}", self.queue, number(attempt.saturating_sub(1).max(1)));
        if is_last { format!("{name}, parked unless answered") } else { name }
    }

    /// A settlement that is worth a span.
    pub(super) fn settled(&self, operation: &str) -> String {
        format!("{operation} {}", self.queue)
    }

    fn delay(&self, delay: Duration) -> String {
        if self.delays.contains(&delay) {
            return humantime::format_duration(delay).to_string();
        }
        let order = match delay.as_secs() {
            0 => "less than a second",
            1..60 => "seconds",
            60..3600 => "minutes",
            3600..86_400 => "hours",
            _ => "days",
        };
        order.to_owned()
    }
}

fn number(attempt: u32) -> String {
    if attempt >= MOST_ATTEMPTS { format!("#{MOST_ATTEMPTS}+") } else { format!("#{attempt}") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn seconds<const N: usize>(delays: [u64; N]) -> Vec<Duration> {
        delays.map(Duration::from_secs).into()
    }

    #[test]
    fn an_attempt_has_its_number_and_says_how_it_ended_unless_it_just_failed() {
        let titles = Titles::new("orders", &[]);
        let attempts = [(1, false), (9, false), (10, false), (10_000, false), (1, true)];
        assert_eq!(
            attempts.map(|(number, is_replayed)| titles.attempt(number, is_replayed)),
            [
                "process orders #1",
                "process orders #9",
                "process orders #10+",
                "process orders #10+",
                "process orders #1 after the replay"
            ]
        );
        let wait = Outcome::Wait(Duration::from_secs(3));
        for (outcome, has_failed, name) in [
            (Outcome::Ack, false, Some("process orders: handled")),
            (Outcome::Discard(Reason::Discarded), true, Some("process orders: discarded")),
            (Outcome::Discard(Reason::Expired), false, Some("process orders: discarded, expired")),
            (Outcome::Park(Reason::Expired), false, Some("process orders: expired")),
            (Outcome::Park(Reason::Exhausted), true, None),
            (wait, false, Some("process orders: the wait goes on")),
            (wait, true, None),
            (Outcome::Requeue, true, None),
        ] {
            assert_eq!(titles.decided(outcome, has_failed).as_deref(), name, "{outcome:?}");
        }
    }

    #[test]
    fn a_wait_names_its_delay_if_the_policy_has_at_most_eight_and_else_the_order_of_magnitude() {
        let titles = Titles::new("orders", &seconds([3, 90, 3]));
        let waits = |delay| titles.moved(Outcome::Wait(Duration::from_millis(delay))).unwrap();
        assert_eq!(
            [3_000, 90_000, 500, 4_000, 60_000, 7_200_000, 90_000_000].map(waits),
            [
                "waits 3s",
                "waits 1m 30s",
                "waits less than a second",
                "waits seconds",
                "waits minutes",
                "waits hours",
                "waits days"
            ]
        );
        assert_eq!(titles.waited(Duration::from_secs(3)), "wait 3s, then orders");
        let many = Titles::new("orders", &seconds([1, 2, 3, 4, 5, 6, 7, 8, 9]));
        assert_eq!(many.waited(Duration::from_secs(3)), "wait seconds, then orders");
    }

    #[test]
    fn a_queue_with_four_attempts_has_about_a_dozen_names_whatever_happens() {
        let delays = seconds([3, 10, 30]);
        let titles = Titles::new("orders", &delays);
        let mut names: BTreeSet<_> = (1..=4).map(|number| titles.attempt(number, false)).collect();
        names.extend(titles.decided(Outcome::Ack, false));
        for delay in delays {
            names.insert(titles.waited(delay));
            names.extend(titles.moved(Outcome::Wait(delay)));
        }
        names.extend(titles.moved(Outcome::Park(Reason::Exhausted)));
        assert_eq!(names.len(), 12, "{names:?}");
    }

    #[test]
    fn a_queue_with_any_name_is_one_line_of_a_row() {
        let name = "{o}\n\u{1b}[31m".repeat(25);
        let titles = Titles::new(&name, &[]);
        for name in [titles.attempt(1, true), titles.came_back(1, true), titles.settled("ack")] {
            assert!(!name.chars().any(char::is_control) && name.contains("{o} "), "{name}");
        }
    }
}
