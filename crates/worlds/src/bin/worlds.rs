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
/// Each seed is a world: its broker, network, queues, messages and faults follow from it. The same
/// seed gives the same run.
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
        Ok(Ok(outcome)) => {
            drop(write!(stdout(), "{}", Story { scenario: &scenario, outcome: &outcome }))
        }
        _ => drop(writeln!(stdout(), "{scenario}\nit did not come to its end")),
    }
    if first.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// After so many broken promises, further worlds say little.
const ENOUGH: usize = 100;

/// A world that takes longer than this, even on a busy machine, does not end: something asks for
/// the time again and again, so the time does not pass.
const LONGEST: Duration = Duration::from_secs(300);

/// The broken promises that were found, by seed, each with the time that it took to find it.
type Found = BTreeMap<Option<Promise>, Vec<(u64, Duration, String)>>;

fn run_all(first: u64, worlds: u64) -> ExitCode {
    let began = Instant::now();
    let (next, finished) = (AtomicU64::new(0), AtomicU64::new(0));
    let found = Mutex::new(Found::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let present: Vec<_> = (0..threads).map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for present in &present {
            let (next, finished, found) = (&next, &finished, &found);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let failed = found
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .values()
                        .map(Vec::len)
                        .sum::<usize>();
                    if number >= worlds || failed >= ENOUGH {
                        next.store(worlds, Ordering::Relaxed);
                        return;
                    }
                    *present.lock().unwrap_or_else(PoisonError::into_inner) =
                        Some((first + number, Instant::now()));
                    let broken = broken(first + number);
                    *present.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    finished.fetch_add(1, Ordering::Relaxed);
                    for (promise, what) in broken {
                        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                        found.entry(promise).or_default().push((
                            first + number,
                            began.elapsed(),
                            what,
                        ));
                    }
                }
            });
        }
        scope.spawn(|| show_progress(&next, worlds, began, &present));
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    report(&found, finished.into_inner(), began.elapsed())
}

/// Since when a thread has run the world of this seed.
type Present = Mutex<Option<(u64, Instant)>>;

/// A line that changes on a terminal, and a line each minute elsewhere. Ends the program if a world
/// does not end.
fn show_progress(next: &AtomicU64, worlds: u64, began: Instant, present: &[Present]) {
    let is_terminal = stderr().is_terminal();
    let every = if is_terminal { 1 } else { 60 };
    for second in 1.. {
        std::thread::sleep(Duration::from_secs(1));
        for present in present {
            let present = *present.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((seed, since)) = present
                && since.elapsed() > LONGEST
            {
                let _ = writeln!(
                    stdout(),
                    "FAILED: the world of seed {seed} does not end: its time stands still"
                );
                std::process::exit(1);
            }
        }
        let done = next.load(Ordering::Relaxed).min(worlds);
        if done == worlds
            && present.iter().all(|of| of.lock().unwrap_or_else(PoisonError::into_inner).is_none())
        {
            return;
        }
        if second % every == 0 {
            let rate = done / began.elapsed().as_secs().max(1);
            let (start, end) = if is_terminal { ("\r", "") } else { ("", "\n") };
            let _ = write!(stderr(), "{start}{done} of {worlds} worlds, {rate} each second{end}");
        }
    }
}

fn report(found: &Found, worlds: u64, took: Duration) -> ExitCode {
    let mut out = stdout().lock();
    for (promise, cases) in found {
        let seeds: BTreeSet<_> = cases.iter().map(|(seed, ..)| *seed).collect();
        let soonest =
            cases.iter().map(|(_, after, _)| after.as_secs_f64()).fold(f64::MAX, f64::min);
        let promise =
            promise.map_or_else(|| "no outcome".to_owned(), |promise| format!("{promise:?}"));
        let _ = writeln!(
            out,
            "FAILED: {promise}, in {} of {worlds} worlds, first after {soonest:.1} s",
            seeds.len()
        );
        for (seed, _, what) in cases.iter().take(3) {
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
