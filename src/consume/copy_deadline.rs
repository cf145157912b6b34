//! How long a delivery waits for the confirm of its copy. Pure.

use std::time::{Duration, Instant};

/// How often an alarm that holds confirms up is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long the confirm of a copy is awaited: until shortly before the ack timeout is over, that of
/// the settings or a shorter one that the broker has named.
///
/// During an alarm nothing is refused, and lapin keeps the frames of each copy until it is over. A
/// message that went back would come again, and make one more copy each time. So then the delivery
/// stays until the confirms that the alarm held up have come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyDeadline {
    /// Without an alarm.
    until: Instant,
    /// Later, once an alarm was seen near `until`.
    ends: Instant,
    answer_timeout: Duration,
}

impl CopyDeadline {
    /// Without an alarm, it is over at `until`.
    pub(crate) fn new(until: Instant, answer_timeout: Duration) -> Self {
        Self { until, ends: until, answer_timeout }
    }

    /// When to ask again if the copy is not confirmed by then. `None`: it is no longer awaited.
    /// `is_blocked`: an alarm is in effect, so the broker reads no copies.
    pub(crate) fn ask_again_at(&mut self, now: Instant, is_blocked: bool) -> Option<Instant> {
        // An alarm that ends before the limit may hold confirms up for longer.
        let is_near = now + self.answer_timeout >= self.until;
        if !is_near {
            return self.until.checked_sub(self.answer_timeout);
        }
        if is_blocked {
            self.ends = self.ends.max(now + LOOK_EVERY + self.answer_timeout);
        }
        (now < self.ends).then(|| self.ends.min(now + LOOK_EVERY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
    const LIMIT: Duration = Duration::from_secs(60);

    /// How long after it was sent a copy is given up if an alarm ends at this time.
    fn is_given_up_after(alarm_ends: Duration) -> Duration {
        let sent = Instant::now();
        let mut now = sent;
        let mut deadline = CopyDeadline::new(sent + LIMIT, ANSWER_TIMEOUT);
        while let Some(at) = deadline.ask_again_at(now, now < sent + alarm_ends) {
            assert!(at > now, "time passes");
            now = at;
        }
        now - sent
    }

    #[test]
    fn a_copy_is_given_up_at_the_limit() {
        for alarm_ends in [Duration::ZERO, LIMIT - ANSWER_TIMEOUT - LOOK_EVERY] {
            assert_eq!(is_given_up_after(alarm_ends), LIMIT);
        }
    }

    #[test]
    fn after_an_alarm_the_confirms_have_time_to_come() {
        for alarm_ends in [58_000, 59_999, 60_001, 60_500, 120_000].map(Duration::from_millis) {
            let given_up = is_given_up_after(alarm_ends);
            assert!(
                (alarm_ends + ANSWER_TIMEOUT..=alarm_ends + ANSWER_TIMEOUT + LOOK_EVERY)
                    .contains(&given_up),
                "{given_up:?} for {alarm_ends:?}"
            );
        }
    }
}
