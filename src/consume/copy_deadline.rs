//! How long a delivery waits for the confirm of its copy. Pure.

use std::time::{Duration, Instant};

/// How often an alarm that holds confirms up is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long the confirm of a copy is awaited: until shortly before the ack timeout is over, that of the settings or a shorter one that the
/// broker has named.
///
/// During an alarm nothing is refused, and lapin keeps the frames of each copy until it is over. A message that went back would come again,
/// and make one more copy each time. So then the delivery stays until the confirms that the alarm held up have come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyDeadline {
    until: Instant,
    ends: Instant,
    answer_timeout: Duration,
}

/// The time that the broker has to confirm the copy of a delivery.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyTime {
    pub(crate) until: Instant,
    /// A delivery of an ordered queue may have waited behind others until after that. Its copy is awaited for this long all the same, if the
    /// broker usually takes no longer to answer.
    pub(crate) at_least: Duration,
}

impl CopyTime {
    /// In an ordered queue only half of the time within which the delivery has to be settled, because those behind it need time as well.
    pub(crate) fn new(is_ordered: bool, arrived: Instant, settle_limit: Duration) -> Self {
        match is_ordered {
            true => Self { until: arrived + settle_limit / 2, at_least: settle_limit / 20 },
            false => Self { until: arrived + settle_limit, at_least: Duration::ZERO },
        }
    }
}

impl CopyDeadline {
    /// For a copy that is sent now.
    pub(crate) fn new(time: CopyTime, now: Instant, answer_timeout: Duration) -> Self {
        let until = time.until.max(now + time.at_least.min(answer_timeout));
        Self { until, ends: until, answer_timeout }
    }

    /// When to ask again if the copy is not confirmed by then. `None`: it is no longer awaited. `is_blocked`: an alarm is in effect, so the
    /// broker reads no copies.
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
        let (time, mut now) = (CopyTime { until: sent + LIMIT, at_least: Duration::ZERO }, sent);
        let mut deadline = CopyDeadline::new(time, now, ANSWER_TIMEOUT);
        while let Some(at) = deadline.ask_again_at(now, now < sent + alarm_ends) {
            assert!(at > now, "time passes");
            now = at;
        }
        now - sent
    }

    #[test]
    fn in_an_ordered_queue_a_copy_has_half_of_the_time_and_a_little_in_any_case() {
        let now = Instant::now();
        let time = |is_ordered| CopyTime::new(is_ordered, now, LIMIT);
        assert_eq!([true, false].map(|is_ordered| time(is_ordered).until - now), [LIMIT / 2, LIMIT]);
        assert_eq!([true, false].map(|is_ordered| time(is_ordered).at_least), [LIMIT / 20, Duration::ZERO]);
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
                (alarm_ends + ANSWER_TIMEOUT..=alarm_ends + ANSWER_TIMEOUT + LOOK_EVERY).contains(&given_up),
                "{given_up:?} for {alarm_ends:?}"
            );
        }
    }

    #[test]
    fn a_copy_that_is_sent_after_the_limit_has_a_little_time_in_an_ordered_queue() {
        let now = Instant::now();
        let gives_up_after = |at_least| {
            let mut deadline = CopyDeadline::new(CopyTime { until: now, at_least }, now, ANSWER_TIMEOUT);
            let mut at = now;
            while let Some(later) = deadline.ask_again_at(at, false) {
                at = later;
            }
            at - now
        };
        let seconds = Duration::from_secs;
        assert_eq!([0, 2, 60].map(|at_least| gives_up_after(seconds(at_least))), [0, 2, 5].map(seconds));
    }
}
