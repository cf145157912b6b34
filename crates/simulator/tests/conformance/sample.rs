//! Random scripts. `REHOP_CONFORMANCE_SCRIPTS` says how many, from the seed
//! `REHOP_CONFORMANCE_FIRST` on, and `REHOP_CONFORMANCE_SEED` names the only one to play.

use std::env;
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use rehop_simulator::Version;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet, spawn_blocking};

use crate::bench::{bench, name};
use crate::check::{Bench, Verdict};
use crate::generate;
use crate::rehearsal::{is_certain, to_the_point};
use crate::report::side_by_side;
use crate::script::Script;

const SCRIPTS: u64 = 120;
const SEED: &str = "REHOP_CONFORMANCE_SEED";
/// More scripts at a time do not make a broker of two cores faster, but each of them slower.
const AT_ONCE: usize = 12;
/// After so many differences the rest would only repeat them.
const SHOWN: usize = 10;

#[derive(Default)]
struct Tally {
    same: usize,
    slow: usize,
    too_slow: Vec<u64>,
    steps: usize,
    different: Vec<(u64, String)>,
}

#[tokio::test]
async fn random_scripts_show_the_same_on_the_simulator_and_on_the_broker() {
    LocalSet::new().run_until(sample()).await;
}

async fn sample() {
    let bench = bench().await;
    let seeds = match number(SEED) {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("REHOP_CONFORMANCE_FIRST").unwrap_or(0);
            first..first + number("REHOP_CONFORMANCE_SCRIPTS").unwrap_or(SCRIPTS)
        }
    };
    let began = Instant::now();
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    let mut tally = Tally::default();
    for seed in seeds {
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        while let Some(done) = running.try_join_next() {
            tally.add(done.unwrap());
        }
        if tally.different.len() >= SHOWN {
            break;
        }
        let bench = bench.clone();
        running.spawn_local(async move {
            // The simulator alone takes no part in the run, and must not hold it up.
            let script = spawn_blocking(move || certain_script(seed, bench.version)).await.unwrap();
            let verdict = bench.check(&script).await;
            drop(place);
            (seed, described(&bench, seed, &script, verdict).await)
        });
    }
    while let Some(done) = running.join_next().await {
        tally.add(done.unwrap());
    }
    println_past_the_harness(&format!(
        "conformance with {}: {} scripts, {} steps, {:.1} s; too slow at first: {}, not compared: {:?}",
        name(bench.version),
        tally.same,
        tally.steps,
        began.elapsed().as_secs_f64(),
        tally.slow,
        tally.too_slow,
    ));
    let different = tally.different.iter().take(SHOWN).fold(String::new(), |mut all, (_, text)| {
        write!(all, "\n{text}").unwrap();
        all
    });
    assert!(tally.different.is_empty(), "{different}");
    let few = 2 + tally.same / 10;
    assert!(
        tally.too_slow.len() <= few,
        "the broker was too slow for the scripts of {:?}",
        tally.too_slow
    );
}

enum Done {
    Same { slow: usize, steps: usize },
    TooSlow,
    Different(String),
}

impl Tally {
    fn add(&mut self, (seed, done): (u64, Done)) {
        match done {
            Done::Same { slow, steps } => {
                self.same += 1;
                self.steps += steps;
                self.slow += usize::from(slow > 0);
            }
            Done::TooSlow => self.too_slow.push(seed),
            Done::Different(text) => self.different.push((seed, text)),
        }
    }
}

/// The first script of a seed whose outcome does not depend on luck.
fn certain_script(seed: u64, version: Version) -> Script {
    let mut scripts = (0..).map(|salt| to_the_point(generate::script(seed, salt), version));
    scripts.find(|script| is_certain(script, version)).unwrap()
}

async fn described(
    bench: &Bench,
    seed: u64,
    script: &Script,
    verdict: io::Result<Verdict>,
) -> Done {
    let version = name(bench.version);
    let again = format!("make conformance VERSIONS={version} SEED={seed}");
    match verdict {
        Ok(Verdict::Same { slow, seen }) => {
            if number(SEED).is_some() {
                println_past_the_harness(&format!("{script}\nseen:\n{}", side_by_side(&seen)));
            }
            Done::Same { slow, steps: seen.len() }
        }
        Ok(Verdict::TooSlow) => Done::TooSlow,
        Ok(Verdict::Different(pairs)) => {
            // To play a script many times takes long, and a seed that is named is worth it.
            let (script, pairs) = if number(SEED).is_some() {
                bench.shorten(script, pairs).await
            } else {
                (script.clone(), pairs)
            };
            let seen = side_by_side(&pairs);
            Done::Different(format!(
                "seed {seed} on {version} shows a difference. Again: {again}\n{script}\nseen:\n{seen}"
            ))
        }
        Err(error) => {
            Done::Different(format!("seed {seed} on {version}: {error}. Again: {again}\n{script}"))
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

/// The harness shows what a test prints only if it fails.
fn println_past_the_harness(line: &str) {
    use std::io::Write as _;
    // A closed standard error must not make a test fail.
    let _ = writeln!(std::io::stderr(), "{line}");
}
