//! Runs a script on the simulator and on a real broker, step by step. The simulator goes first, so
//! that it is known what to wait for.

use std::io;
use std::time::Duration;

use rehop_simulator::Version;
use tokio::time::{Instant, sleep_until};

use crate::naming::Naming;
use crate::real::{Address, Real};
use crate::script::{Script, Step};
use crate::seen::{Saw, Seen, Stream};
use crate::simulated::Simulated;

/// How long the broker may take for anything.
pub(crate) const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// How long before something is due it is seen that it has not happened.
const BEFORE: Duration = Duration::from_millis(20);
/// If nothing is due for so long, what has not come by then is missing. If something is due
/// earlier, the broker may only have been too slow.
const COMES_WITHIN: Duration = Duration::from_secs(15);
/// Simulators that differ may still agree if a timer of one of them is due within this time. And
/// what a broker does so long after it was due proves nothing.
const AGREE_WITHIN: Duration = Duration::from_secs(10);
/// A quorum queue whose leader does not answer within 250 ms is said to have no message and no
/// consumer (`rabbit_quorum_queue:stat` of 3.10, 4.0 and 4.3).
pub(crate) const DOUBTFUL: Duration = Duration::from_millis(200);
/// A broker's clock has milliseconds, and counts those that have begun.
const CLOCK: Duration = Duration::from_millis(2);
/// No script has more steps than can be counted with so many bits.
const STEPS_BITS: usize = 7;
/// What is due later than this is not awaited, in a script's milliseconds.
pub(crate) const SOON: u32 = 2000;

/// How a run ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Both sides saw the same.
    Agreed(Vec<Pair>),
    /// They did not, in the last step of these.
    Diverged(Vec<Pair>),
    /// A step took so long that a message may have expired meanwhile, so nothing can be said.
    TooSlow,
}

/// What both sides saw in a step.
#[derive(Debug)]
pub(crate) struct Pair {
    /// One, unless it is the topology.
    pub(crate) steps: Vec<Step>,
    pub(crate) simulated: Seen,
    pub(crate) real: Seen,
}

/// One run of a script on both sides.
pub(crate) async fn run(
    script: &Script,
    version: Version,
    address: &Address,
    naming: Naming,
) -> io::Result<Outcome> {
    let real = Real::new(address, naming.clone()).await?;
    let mut run = Run {
        early: Simulated::new(version, naming.clone()),
        others: (0..=2 * STEPS_BITS).map(|_| Simulated::new(version, naming.clone())).collect(),
        real,
        soon: naming.duration(SOON),
        began: Instant::now(),
        pairs: Vec::new(),
    };
    let outcome = run.all(script).await;
    run.real.clean_up(script).await?;
    Ok(match outcome? {
        Ended::Agreed => Outcome::Agreed(run.pairs),
        Ended::Diverged => Outcome::Diverged(run.pairs),
        Ended::TooSlow => Outcome::TooSlow,
    })
}

/// How each script ends: everything that is held goes back, and what is due happens. The broker
/// answers a cancel when the queue knows of it, but the end of a channel before that.
pub(crate) fn epilogue() -> Vec<Step> {
    let end = |channel| {
        [vec![Step::Cancel { channel, pick: 0 }; 4], vec![Step::CloseChannel { channel }]].concat()
    };
    [end(0), end(1), end(2), vec![Step::PassTime; 3]].concat()
}

/// A real broker does a step at some moment between the step's beginning and its end. So several
/// simulators take part: one for which each step happens when it begins, and others for which some
/// happen when they have ended. Where all see the same, the moments do not matter, and the broker
/// has to see it, too.
struct Run {
    early: Simulated,
    others: Vec<Simulated>,
    real: Real,
    soon: Duration,
    began: Instant,
    pairs: Vec<Pair>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Agreed,
    Diverged,
    TooSlow,
}

impl Run {
    async fn all(&mut self, script: &Script) -> io::Result<Ended> {
        let mut ended = self.together(&script.topology).await?;
        for step in script.steps.iter().chain(&epilogue()) {
            if ended == Ended::Agreed && self.early.can(step) {
                ended = self.together(std::slice::from_ref(step)).await?;
            }
        }
        // What is left is taken out, so that it is compared as well.
        for step in self.early.drain() {
            if ended == Ended::Agreed {
                ended = self.together(&[step]).await?;
            }
        }
        Ok(ended)
    }

    /// Does some steps at once, on a channel that is open.
    async fn together(&mut self, steps: &[Step]) -> io::Result<Ended> {
        if let Some(channel) =
            steps.first().and_then(Step::needs).filter(|channel| !self.early.has(*channel))
        {
            let ended = self.steps(&[Step::OpenChannel { channel }]).await?;
            if ended != Ended::Agreed {
                return Ok(ended);
            }
        }
        if steps != [Step::PassTime] {
            return self.steps(steps).await;
        }
        match self.early.next_timer() {
            Some(due) if due <= self.began.elapsed() + self.soon => self.pass_time(due).await,
            Some(_) | None => Ok(Ended::Agreed),
        }
    }

    /// Does some steps at once, and compares what was seen.
    async fn steps(&mut self, steps: &[Step]) -> io::Result<Ended> {
        let due_before = self.early.next_timer();
        let begin = self.began.elapsed();
        self.early.perform(steps, begin);
        self.real.perform(steps).await?;
        let expected = self.early.snapshot();
        let due = due_before.into_iter().chain(self.early.next_timer()).min();
        let now = self.began.elapsed();
        let deadline = now + ANSWERS_WITHIN;
        // What comes before something else is due must come before that. If there is time enough,
        // it is missing when that is due.
        let deadline = due
            .filter(|due| *due > now + COMES_WITHIN)
            .map_or(deadline, |due| deadline.min(due - 5 * CLOCK));
        loop {
            // The round begins after whatever may have completed what is expected, so it also
            // brings what is too much.
            self.real.round().await?;
            let seen = self.real.snapshot();
            let now = self.began.elapsed();
            // If something was due while the step lasted, it may have happened or not.
            let is_in_time = due.is_none_or(|due| due > now + CLOCK);
            let is_same = seen == expected;
            if !is_same && is_in_time && now <= deadline && !contradicts(&seen, &expected) {
                self.real.wait().await?;
                continue;
            }
            let is_doubtful = now - begin > DOUBTFUL && has_other_zeros(&seen, &expected);
            let is_certain =
                is_in_time & !is_doubtful & self.others_see(steps, begin, now + CLOCK, &expected);
            self.note(steps, expected, seen);
            return Ok(match (is_certain, is_same) {
                (true, true) => Ended::Agreed,
                (true, false) => Ended::Diverged,
                (false, _) => Ended::TooSlow,
            });
        }
    }

    async fn pass_time(&mut self, due: Duration) -> io::Result<Ended> {
        let shortly_before = self.began + due.saturating_sub(BEFORE);
        if shortly_before > Instant::now() {
            sleep_until(shortly_before).await;
            let expected = self.early.snapshot();
            self.real.round().await?;
            let seen = self.real.snapshot();
            if self.began.elapsed() + CLOCK < due && seen != expected {
                self.note(&[Step::PassTime], expected, seen);
                return Ok(Ended::Diverged);
            }
        }
        // The broker started to count after us, so nothing happens there earlier than here.
        sleep_until(self.began + due).await;
        let deadline = due + ANSWERS_WITHIN;
        loop {
            let now = self.began.elapsed() + CLOCK;
            self.early.pass_time(now);
            self.others.iter_mut().for_each(|other| other.pass_time(now));
            self.real.round().await?;
            let (expected, seen) = (self.early.snapshot(), self.real.snapshot());
            let is_certain = self.others.iter_mut().all(|other| other.snapshot() == expected);
            let (now, is_same) = (self.began.elapsed(), seen == expected);
            let has_none_until = |time: Duration| {
                move |simulated: &Simulated| simulated.next_timer().is_none_or(|due| due > time)
            };
            let is_all_done = is_same && is_certain && has_none_until(now + CLOCK)(&self.early);
            // Simulators that differ although nothing more is due for any of them will not agree.
            let agree_until = due + AGREE_WITHIN;
            let is_stuck = !is_certain
                && self.others.iter().chain([&self.early]).all(has_none_until(agree_until));
            if is_all_done || is_stuck || now > deadline {
                self.note(&[Step::PassTime], expected, seen);
                return Ok(match (is_certain, is_same) {
                    (true, true) if now <= agree_until => Ended::Agreed,
                    (true, false) => Ended::Diverged,
                    (true, true) | (false, _) => Ended::TooSlow,
                });
            }
            self.real.wait().await?;
        }
    }

    /// Has the other simulators do the steps, when they begin or when they have ended, and tells
    /// whether all see what is expected.
    fn others_see(
        &mut self,
        steps: &[Step],
        begin: Duration,
        end: Duration,
        expected: &Seen,
    ) -> bool {
        let number = self.pairs.len();
        let mut is_same = true;
        for (index, other) in self.others.iter_mut().enumerate() {
            // Two simulators for each bit of the number, so that for any two steps one of them does
            // the first late and the second early, and another does the opposite. For the last
            // simulator all is late.
            let is_bit_set = number >> (index / 2) & 1 == 1;
            let is_late = index == 2 * STEPS_BITS || is_bit_set == (index % 2 == 1);
            other.perform(steps, if is_late { end } else { begin });
            is_same &= other.snapshot() == *expected;
        }
        is_same
    }

    fn note(&mut self, steps: &[Step], simulated: Seen, real: Seen) {
        self.pairs.push(Pair { steps: steps.to_vec(), simulated, real });
        self.early.forget();
        self.others.iter_mut().for_each(Simulated::forget);
        self.real.forget();
    }
}

/// Whether more of the same can no longer lead to what is expected.
fn contradicts(seen: &Seen, expected: &Seen) -> bool {
    let mut of_clients = seen.iter().filter(|(stream, _)| !matches!(stream, Stream::Queue(_)));
    of_clients.any(|(stream, saw)| {
        !expected.get(stream).is_some_and(|expected| expected.starts_with(saw))
    })
}

/// Whether the broker said of a queue that it is empty, where the simulator says otherwise.
fn has_other_zeros(seen: &Seen, expected: &Seen) -> bool {
    let is_other_zero = |(seen, expected): (&Saw, &Saw)| match (seen, expected) {
        (Saw::Declared { ready: 0, consumers: 0 }, Saw::Declared { .. })
        | (Saw::Removed { messages: 0 }, Saw::Removed { .. }) => seen != expected,
        _ => false,
    };
    let streams = seen.iter().filter_map(|(stream, saws)| Some((saws, expected.get(stream)?)));
    streams.flat_map(|(seen, expected)| seen.iter().zip(expected)).any(is_other_zero)
}
