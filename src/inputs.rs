//! What the property tests share: how many inputs they try, the line that says so, and long texts.

#![allow(dead_code, reason = "each package includes this file, and uses a part of it")]

use std::io::Write;

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, RngSeed};

/// As many inputs as usual, or `REHOP_TEST_INPUTS` times as many, which may be a fraction.
pub(crate) fn inputs(usual: u32) -> Config {
    times("REHOP_TEST_INPUTS", usual)
}

/// The same for inputs that are scripts for a model of the broker, each of which takes thousands of
/// steps: `REHOP_TEST_MODELS` times as many.
pub(crate) fn models(usual: u32) -> Config {
    times("REHOP_TEST_MODELS", usual)
}

/// Without the variable, the inputs are the same in each run, so that a change is judged by itself
/// and not by what a draw happens to find. With it they are new ones: `make nightly` looks for what
/// is rare.
fn times(variable: &str, usual: u32) -> Config {
    let factor = std::env::var(variable).ok();
    let rng_seed = if factor.is_some() { RngSeed::Random } else { RngSeed::Fixed(1) };
    let factor = factor.and_then(|factor| factor.parse().ok()).unwrap_or(1.0);
    let cases = (f64::from(usual) * factor).ceil() as u32;
    // The test harness names a test's thread after the test, and captures what is printed but not
    // what is written. One write, so that no other test's line gets in between.
    if let Some(test) = std::thread::current().name() {
        let line = format!("{test}: {cases} inputs\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    // Beside the other tests: what a run has found is tried again by those that follow.
    let found = FileFailurePersistence::SourceParallel("tests/proptest-regressions");
    Config { failure_persistence: Some(Box::new(found)), rng_seed, ..Config::with_cases(cases) }
}

/// Texts of up to so many characters: a random beginning, then one character again and again. Where
/// every character is random, making the text takes longer than what is tested with it.
pub(crate) fn texts(characters: usize) -> impl Strategy<Value = String> {
    (".{0,12}", any::<char>(), 0..=characters).prop_map(|(beginning, filler, length)| {
        beginning.chars().chain(std::iter::repeat(filler)).take(length).collect()
    })
}
