//! Checks one script on a real broker, again if need be, and shortens one that shows a difference.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rehop_simulator::Version;

use crate::lockstep::{self, Outcome, Pair};
use crate::real::Address;
use crate::rehearsal::is_certain;
use crate::script::Script;
use crate::world::World;

/// By how much times are stretched, in percent, when a run was too slow for them.
const STRETCHES: [u64; 5] = [100, 200, 400, 800, 1600];
/// So often must a script show a difference. RabbitMQ's own processes run beside each other, and the simulator is right if it does
/// what one of their orders leads to.
const DIFFERENCES: usize = 3;
const SHORTENED_FOR: Duration = Duration::from_secs(90);

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
        /// What the two sides saw when they differed, before they agreed.
        differences: Vec<Vec<Pair>>,
        /// How often the broker was too slow.
        slow: usize,
        seen: Vec<Pair>,
    },
    /// It could not be played fast enough.
    TooSlow,
    Different(Vec<Pair>),
}

impl Bench {
    /// Plays a script until both sides agree, or differ too often.
    pub(crate) async fn check(&self, script: &Script) -> io::Result<Verdict> {
        let (mut stretch, mut differences) = (0, Vec::new());
        loop {
            let world = World::new(fresh_prefix(), STRETCHES[stretch]);
            match lockstep::run(script, self.version, &self.address, world).await? {
                Outcome::Agreed(seen) => return Ok(Verdict::Same { differences, slow: stretch, seen }),
                Outcome::Diverged(pairs) => {
                    if differences.len() + 1 == DIFFERENCES {
                        return Ok(Verdict::Different(pairs));
                    }
                    differences.push(pairs);
                }
                Outcome::TooSlow if stretch + 1 == STRETCHES.len() => return Ok(Verdict::TooSlow),
                Outcome::TooSlow => stretch += 1,
            }
        }
    }

    /// Takes out steps for as long as the two sides still differ.
    pub(crate) async fn shorten(&self, script: &Script, pairs: Vec<Pair>) -> io::Result<(Script, Vec<Pair>)> {
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
                if let Verdict::Different(pairs) = self.check(&shorter).await? {
                    (shortest, found, is_shorter) = (shorter, pairs, true);
                }
            }
        }
        Ok((shortest, found))
    }
}

/// Keeps all runs on a broker apart, also those of other processes.
fn fresh_prefix() -> String {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    format!("c{}-{}.", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed))
}
