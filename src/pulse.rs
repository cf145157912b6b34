//! Notices that the process did not run for a time, or that its clock was set. Lost connections,
//! and deadlines that seem to have passed, are hard to understand otherwise.

use std::time::Duration;

use crate::clock;
use crate::timestamp::Timestamp;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(5);
/// What is shorter has no consequences, and may be a busy machine.
const LEAST: Duration = Duration::from_secs(5);

/// What happened since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Noticed {
    /// Nothing ran for so long.
    Still(Duration),
    /// The date is so much later than the time that has passed says.
    Ahead(Duration),
    /// The date is so much earlier.
    Behind(Duration),
}

/// Logs each as long as it is awaited.
pub(crate) async fn watch() {
    loop {
        let (began, date) = (clock::now(), Timestamp::now());
        tokio::time::sleep(EVERY).await;
        let passed = clock::elapsed(began);
        for noticed in notice(passed, date, Timestamp::now()).into_iter().flatten() {
            say(noticed);
        }
    }
}

/// So much time has passed between these dates, by a clock that nobody sets and that rests while
/// the machine is suspended.
fn notice(passed: Duration, before: Timestamp, after: Timestamp) -> [Option<Noticed>; 2] {
    let still = passed.saturating_sub(EVERY);
    let expected = before + passed;
    let (ahead, behind) = (after.since(expected), expected.since(after));
    [
        (still >= LEAST).then_some(Noticed::Still(still)),
        match (ahead >= LEAST, behind >= LEAST) {
            (true, _) => Some(Noticed::Ahead(ahead)),
            (_, true) => Some(Noticed::Behind(behind)),
            (false, false) => None,
        },
    ]
}

fn say(noticed: Noticed) {
    match noticed {
        Noticed::Still(time) => tracing::warn!(
            "nothing ran in this process for {time:.0?}: it was stopped, its machine was busy, or handlers blocked its \
             threads; the broker may have taken messages back"
        ),
        Noticed::Ahead(time) => tracing::warn!(
            "the clock is {time:.0?} ahead of the time that has passed: it was set, or the machine was suspended; deadlines \
             count by the new time"
        ),
        Noticed::Behind(time) => tracing::warn!(
            "the clock is {time:.0?} behind the time that has passed: it was set back; deadlines count by the new time"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_and_a_jump_of_the_clock_are_told_apart() {
        let secs = Duration::from_secs;
        let check = |passed, dated: i64, expected: [Option<Noticed>; 2]| {
            let before = Timestamp::from_millis(1_800_000_000_000);
            let after = Timestamp::from_millis(before.as_millis() + dated * 1000);
            assert_eq!(notice(secs(passed), before, after), expected, "{passed} s, {dated} s");
        };
        check(5, 5, [None, None]);
        check(9, 9, [None, None]);
        check(5, 9, [None, None]);
        check(5, 1, [None, None]);
        check(65, 65, [Some(Noticed::Still(secs(60))), None]);
        check(5, 3_605, [None, Some(Noticed::Ahead(secs(3_600)))]);
        check(5, -3_595, [None, Some(Noticed::Behind(secs(3_600)))]);
        let both = [Some(Noticed::Still(secs(10))), Some(Noticed::Ahead(secs(3_600)))];
        check(15, 3_615, both);
    }
}
