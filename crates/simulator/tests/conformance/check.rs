//! Checks one script on a real broker, again if need be, and shortens one that shows a difference.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rehop_simulator::Version;

use crate::lockstep::{self, Outcome, Pair};
use crate::naming::Naming;
use crate::real::Address;
use crate::rehearsal::is_certain;
use crate::script::Script;

/// By how much times are stretched, in percent, when a run was too slow for them.
const STRETCHES: [u64; 7] = [100, 200, 400, 800, 1600, 3200, 12_800];
const SHORTENED_FOR: Duration = Duration::from_secs(600);

/// A real broker and what it is compared with.
#[derive(Debug, Clone)]
pub(crate) struct Bench {
    pub(crate) version: Version,
    pub(crate) address: Address,
}

/// What became of a script.
#[derive(Debug)]
pub(crate) enum Verdict {
    Same {
        /// How often the broker was too slow.
        slow: usize,
        seen: Vec<Pair>,
    },
    /// It could not be played fast enough.
    TooSlow,
    Different(Vec<Pair>),
}

impl Bench {
    /// Plays a script, and again with longer times for as long as the broker is too slow for them.
    /// A difference has to show twice: on a busy machine the broker's own timers may be late, which
    /// nobody sees from outside.
    pub(crate) async fn check(&self, script: &Script) -> io::Result<Verdict> {
        let mut differed = None;
        for (slow, stretch) in STRETCHES.into_iter().enumerate() {
            let naming = Naming::new(fresh_prefix(), stretch);
            match lockstep::run(script, self.version, &self.address, naming).await? {
                Outcome::Agreed(seen) => return Ok(Verdict::Same { slow, seen }),
                Outcome::Diverged(pairs) if differed.is_some() => {
                    return Ok(Verdict::Different(pairs));
                }
                Outcome::Diverged(pairs) => differed = Some(pairs),
                Outcome::TooSlow => {}
            }
        }
        Ok(differed.map_or(Verdict::TooSlow, Verdict::Different))
    }

    /// Takes out steps for as long as the two sides still differ.
    pub(crate) async fn shorten(&self, script: &Script, pairs: Vec<Pair>) -> (Script, Vec<Pair>) {
        let until = Instant::now() + SHORTENED_FOR;
        let (mut shortest, mut found) = (script.clone(), pairs);
        let mut is_shorter = true;
        while is_shorter {
            is_shorter = false;
            let mut at = shortest.topology.len() + shortest.steps.len();
            while at > 0 && Instant::now() < until {
                at -= 1;
                let mut shorter = shortest.clone();
                match at.checked_sub(shorter.topology.len()) {
                    Some(step) if step < shorter.steps.len() => drop(shorter.steps.remove(step)),
                    Some(_) => continue,
                    None => drop(shorter.topology.remove(at)),
                }
                if !is_certain(&shorter, self.version) {
                    continue;
                }
                if let Ok(Verdict::Different(pairs)) = self.check(&shorter).await {
                    (shortest, found, is_shorter) = (shorter, pairs, true);
                }
            }
        }
        (shortest, found)
    }
}

/// Keeps all runs on a broker apart, also those of other processes.
fn fresh_prefix() -> String {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    format!("c{}-{}.", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed))
}
