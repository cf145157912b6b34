//! Runs worlds, one seed after the other, and reports the first that breaks a promise.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rehop_worlds::{Scenario, check, run};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1_000);
    let first: u64 = arguments.next().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    std::panic::set_hook(Box::new(|_| {}));
    if count == 1 {
        let scenario = Scenario::draw(first);
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{scenario}");
        match run(&scenario) {
            Err(error) => {
                let _ = writeln!(out, "error: {error}");
            }
            Ok(outcome) => {
                for recorded in &outcome.events {
                    let _ = writeln!(out, "{:>9.3?} {:?}", recorded.at, recorded.event);
                }
                for (name, view) in &outcome.queues {
                    let _ = writeln!(out, "{name}: {view:?}");
                }
                for violation in check(&scenario, &outcome) {
                    let _ = writeln!(out, "{violation}");
                }
            }
        }
        return ExitCode::SUCCESS;
    }
    let began = Instant::now();
    let next = AtomicU64::new(first);
    let found = Mutex::new(BTreeMap::<String, Vec<(u64, String)>>::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let scenario = Scenario::draw(seed);
                    let result = std::panic::catch_unwind(|| run(&scenario).map(|outcome| check(&scenario, &outcome)));
                    let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match result {
                        Ok(Ok(violations)) => {
                            for violation in violations {
                                found
                                    .entry(format!("{:?}", violation.promise))
                                    .or_default()
                                    .push((seed, violation.to_string()));
                            }
                        }
                        Ok(Err(error)) => found.entry("error".to_owned()).or_default().push((seed, error.to_string())),
                        Err(_) => found.entry("panic".to_owned()).or_default().push((seed, String::new())),
                    }
                }
            });
        }
    });
    let mut out = std::io::stdout().lock();
    let found = found.into_inner().unwrap_or_default();
    for (promise, cases) in &found {
        let seeds: std::collections::BTreeSet<_> = cases.iter().map(|(seed, _)| seed).collect();
        let _ = writeln!(out, "{promise}: {} worlds", seeds.len());
        for (seed, what) in cases.iter().take(4) {
            let _ = writeln!(out, "   seed {seed}: {what}");
        }
    }
    let _ = writeln!(out, "{count} worlds in {:.1} s", began.elapsed().as_secs_f64());
    if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
