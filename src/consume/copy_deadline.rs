//! How long a delivery waits for the confirm of its copy. Pure.

use std::time::{Duration, Instant};

use crate::consume::line::Line;

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
    /// Of a copy that is sent now. Its delivery must be settled within `limit` of its arrival.
    ///
    /// In an ordered queue the copy has half of that time, because the deliveries behind it need
    /// time as well. Such a delivery may have waited behind others for longer. So its copy is
    /// awaited a little in any case, if the broker usually takes no longer to answer.
    pub(crate) fn new(
        line: Line,
        (arrived, limit): (Instant, Duration),
        now: Instant,
        answer_timeout: Duration,
    ) -> Self {
        let until = match line {
            Line::Free => (arrived + limit).max(now),
            Line::Ordered => (arrived + limit / 2).max(now + answer_timeout.min(limit / 20)),
        };
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
        let mut deadline = CopyDeadline::new(Line::Free, (sent, LIMIT), sent, ANSWER_TIMEOUT);
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

    #[test]
    fn in_an_ordered_queue_a_copy_has_half_of_the_time_and_a_little_in_any_case() {
        let arrived = Instant::now();
        let given = |line: Line, waited, limit| {
            let now = arrived + waited;
            CopyDeadline::new(line, (arrived, limit), now, ANSWER_TIMEOUT).until - now
        };
        let both = [Line::Ordered, Line::Free];
        assert_eq!(both.map(|line| given(line, Duration::ZERO, LIMIT)), [LIMIT / 2, LIMIT]);
        assert_eq!(both.map(|line| given(line, LIMIT, LIMIT)), [LIMIT / 20, Duration::ZERO]);
        assert_eq!(
            given(Line::Ordered, 20 * LIMIT, 20 * LIMIT),
            ANSWER_TIMEOUT,
            "the broker usually takes no longer"
        );
    }
}
