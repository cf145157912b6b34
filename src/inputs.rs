//! How many inputs the property tests try, and the line that says so.

use std::io::Write;

use proptest::test_runner::Config;

/// As many inputs as usual, or `REHOP_TEST_INPUTS` times as many: for each run they are new ones.
pub(crate) fn inputs(usual: u32) -> Config {
    let factor = std::env::var("REHOP_TEST_INPUTS").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1);
    let cases = usual.saturating_mul(factor);
    // The test harness names a test's thread after the test, and captures what is printed but not what is written.
    if let Some(test) = std::thread::current().name() {
        let _ = writeln!(std::io::stderr(), "{test}: {cases} inputs");
    }
    Config::with_cases(cases)
}
