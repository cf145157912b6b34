//! Proof by fault injection that nothing is lost.
//!
//! Every message that was published and confirmed ends as expected for its kind: handled, parked
//! for its reason, discarded, stray or still queued. Anything else that is found is a duplicate,
//! which the case must allow explicitly, or a failure. Each case is a named fault, and proves that
//! the fault happened. The table is printed while the cases run, and the exit code is 1 if anything
//! is wrong.
//!
//! Variables:
//!
//! - `REHOP_TEST_RABBITMQ_TAG`: which RabbitMQ; by default 4.3.
//! - `REHOP_FAULTS_VERSIONS`: several versions, one at a time, such as `4.3 4.0 3.10`. Clusters and
//!   upgrades run only with the first.
//! - `REHOP_FAULTS_LONG`: `1` runs every case, in its long form.
//! - `REHOP_FAULTS_SOAK`: how many minutes the soak test of the long form lasts; by default 2.
//!
//! Arguments select cases: those whose sentences contain one of the arguments.

#![allow(clippy::print_stdout, reason = "the table is read on standard output")]
#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

mod cases;
mod clock;
mod evidence;
mod expectation;
mod ground;
mod lab;
mod ledger;
mod load;
mod operator;
mod record;
mod runner;
mod service;
mod table;

use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use ground::Ground;
use rand::distr::{Alphanumeric, SampleString as _};
use runner::{Case, Needs, Verdict};

fn main() -> ExitCode {
    service::run_if_asked();
    operator::run_if_asked();
    let cases = cases::all();
    if std::env::args().any(|argument| argument == "--list") {
        cases.iter().for_each(|case| println!("{}", case.sentence));
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let selection =
        Selection { words, long: variable("REHOP_FAULTS_LONG").is_some_and(|value| value != "0") };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let passed = runtime.block_on(run(&cases, &selection));
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Which cases to run.
struct Selection {
    words: Vec<String>,
    long: bool,
}

impl Selection {
    /// The cases for the version with this index. Counts the skipped ones by reason.
    fn of<'a>(
        &self,
        cases: &'a [Case],
        index: usize,
        skipped: &mut BTreeMap<&str, usize>,
    ) -> Vec<&'a Case> {
        let named = |case: &&Case| {
            self.words.is_empty()
                || self.words.iter().any(|word| case.sentence.contains(word.as_str()))
        };
        let mut selected = Vec::new();
        for case in cases.iter().filter(named) {
            match self.reason_to_skip(case, index) {
                None => selected.push(case),
                Some(reason) => *skipped.entry(reason).or_default() += 1,
            }
        }
        selected
    }

    fn reason_to_skip(&self, case: &Case, index: usize) -> Option<&'static str> {
        if case.long_only && !self.long && self.words.is_empty() {
            return Some("for the long run");
        }
        match case.needs {
            Needs::Docker if index > 0 => {
                Some("of clusters and upgrades, which run with the first version only")
            }
            Needs::Docker if !docker_answers() => {
                Some("of clusters and upgrades, which need Docker")
            }
            Needs::Docker | Needs::Broker | Needs::Corner | Needs::Machine => None,
        }
    }
}

fn docker_answers() -> bool {
    let asked =
        Command::new("docker").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

async fn run(cases: &[Case], selection: &Selection) -> bool {
    let begun = Instant::now();
    let versions: Vec<Option<String>> = match variable("REHOP_FAULTS_VERSIONS") {
        Some(versions) => versions
            .split_whitespace()
            .map(|version| Some(format!("{version}-management")))
            .collect(),
        None => vec![variable("REHOP_TEST_RABBITMQ_TAG")],
    };
    let password = Alphanumeric.sample_string(&mut rand::rng(), 24);
    let directory = std::env::temp_dir().join(format!("rehop-faults-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (mut verdicts, mut skipped): (Vec<Verdict>, BTreeMap<&str, usize>) = Default::default();
    runner::quiet_panics();
    table::heading();
    for (index, tag) in versions.into_iter().enumerate() {
        let selected = selection.of(cases, index, &mut skipped);
        let ground = Ground::new(tag, selection.long, directory.clone(), password.as_str().into());
        if !selected.is_empty() {
            verdicts.push(runner::run(&ground, &selected).await);
        }
    }
    table::sums(&verdicts);
    let mut failed: Vec<String> =
        verdicts.iter().flat_map(|verdict| verdict.failed.iter().cloned()).collect();
    if verdicts.is_empty() {
        failed.push(format!("no case was run: {:?} selects no case that can run", selection.words));
    }
    let (files, telling) = runner::files_with(&directory, &password);
    println!(
        "the password is in {} of the services' {files} files; {:.0} s",
        telling.len(),
        begun.elapsed().as_secs_f64()
    );
    if !telling.is_empty() {
        failed.push(format!("the password is in {telling:?}"));
    }
    if !skipped.is_empty() {
        let skipped: Vec<String> =
            skipped.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        println!("skipped: {}", skipped.join("; "));
    }
    for failure in &failed {
        println!("FAILED: {failure}");
    }
    if failed.is_empty() {
        std::fs::remove_dir_all(&directory).unwrap();
    } else {
        println!("the services' logs are in {}", directory.display());
    }
    failed.is_empty()
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
