//! Runs worlds, one seed after the other, on all cores, and tells of those that break a promise.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use rehop_worlds::{Promise, Scenario, Story, check, run};

/// Runs whole services on a simulated RabbitMQ, in virtual time, and checks what rehop promises.
///
/// Each seed is a world: its broker, network, queues, messages and faults follow from it. The same seed gives the same run.
#[derive(Parser)]
struct Arguments {
    /// How many worlds to run.
    #[arg(long, default_value_t = 100_000)]
    worlds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run only the world of this seed, shorten it if it breaks a promise, and tell its story.
    #[arg(long, conflicts_with_all = ["worlds", "first"])]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let Arguments { worlds, first, seed } = Arguments::parse();
    // Handlers panic as planned. A panic of rehop's own is told with its world.
    std::panic::set_hook(Box::new(|_| {}));
    match seed {
        Some(seed) => tell(seed),
        None => run_all(first, worlds),
    }
}

/// What a world broke; nothing if it kept every promise.
fn broken(seed: u64) -> Vec<(Option<Promise>, String)> {
    let scenario = Scenario::draw(seed);
    match std::panic::catch_unwind(|| run(&scenario)) {
        Ok(Ok(outcome)) => {
            let broken = check(&scenario, &outcome).into_iter();
            broken.map(|violation| (Some(violation.promise), violation.to_string())).collect()
        }
        Ok(Err(error)) => vec![(None, format!("the world did not begin: {error}"))],
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            vec![(None, format!("rehop or the simulator panicked: {}", text.unwrap_or_default()))]
        }
    }
}

fn tell(seed: u64) -> ExitCode {
    let mut scenario = Scenario::draw(seed);
    let first = broken(seed).into_iter().next();
    if let Some((Some(promise), _)) = first {
        scenario = scenario.shrunk(promise);
    }
    match std::panic::catch_unwind(|| run(&scenario)) {
        Ok(Ok(outcome)) => drop(write!(stdout(), "{}", Story { scenario: &scenario, outcome: &outcome })),
        _ => drop(writeln!(stdout(), "{scenario}\nit did not come to its end")),
    }
    if first.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// After so many broken promises, further worlds say little.
const ENOUGH: usize = 100;

fn run_all(first: u64, worlds: u64) -> ExitCode {
    let began = Instant::now();
    let (next, finished) = (AtomicU64::new(0), AtomicU64::new(0));
    let found = Mutex::new(BTreeMap::<Option<Promise>, Vec<(u64, String)>>::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let failed =
                        found.lock().unwrap_or_else(PoisonError::into_inner).values().map(Vec::len).sum::<usize>();
                    if number >= worlds || failed >= ENOUGH {
                        next.store(worlds, Ordering::Relaxed);
                        return;
                    }
                    let broken = broken(first + number);
                    finished.fetch_add(1, Ordering::Relaxed);
                    for (promise, what) in broken {
                        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                        found.entry(promise).or_default().push((first + number, what));
                    }
                }
            });
        }
        scope.spawn(|| show_progress(&next, worlds, began));
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    report(&found, finished.into_inner(), began.elapsed())
}

/// A line that changes on a terminal, and a line each minute elsewhere.
fn show_progress(next: &AtomicU64, worlds: u64, began: Instant) {
    let is_terminal = stderr().is_terminal();
    let every = if is_terminal { 1 } else { 60 };
    for second in 1.. {
        std::thread::sleep(Duration::from_secs(1));
        let done = next.load(Ordering::Relaxed).min(worlds);
        if done == worlds {
            return;
        }
        if second % every == 0 {
            let rate = done / began.elapsed().as_secs().max(1);
            let (start, end) = if is_terminal { ("\r", "") } else { ("", "\n") };
            let _ = write!(stderr(), "{start}{done} of {worlds} worlds, {rate} each second{end}");
        }
    }
}

fn report(found: &BTreeMap<Option<Promise>, Vec<(u64, String)>>, worlds: u64, took: Duration) -> ExitCode {
    let mut out = stdout().lock();
    for (promise, cases) in found {
        let seeds: BTreeSet<_> = cases.iter().map(|(seed, _)| *seed).collect();
        let promise = promise.map_or_else(|| "no outcome".to_owned(), |promise| format!("{promise:?}"));
        let _ = writeln!(out, "FAILED: {promise}, in {} of {worlds} worlds", seeds.len());
        for (seed, what) in cases.iter().take(3) {
            let _ = writeln!(out, "  seed {seed}: {what}");
        }
        if let Some(seed) = seeds.first() {
            let _ = writeln!(out, "  its story: make worlds SEED={seed}");
        }
    }
    let rate = worlds as f64 / took.as_secs_f64().max(0.001);
    let _ = writeln!(out, "{worlds} worlds in {:.0} s, {rate:.0} each second", took.as_secs_f64());
    if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
