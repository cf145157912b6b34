//! Nothing is lost: proof by fault.
//!
//! Every message that was published and confirmed must end in exactly one of: handled, parked, expired, discarded, stray,
//! still queued. Each case is a fault with a name. The table is printed as it goes, and the exit code is 1 on any loss.
//!
//! | variable | meaning |
//! |---|---|
//! | `REHOP_TEST_RABBITMQ_TAG` | which RabbitMQ; by default 4.3 |
//! | `REHOP_FAULTS_VERSIONS` | several, one after the other, such as `4.3 4.0 3.10`; the cluster is of the first only |
//! | `REHOP_FAULTS_LONG` | `1`: every case, in its long form |
//! | `REHOP_FAULTS_SOAK` | how many minutes the soak of the long form lasts; by default 2 |
//!
//! Arguments select the cases whose sentences contain one of them.

#![allow(clippy::print_stdout, reason = "the table is read on standard output")]
#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

mod cases;
mod lab;
mod ledger;
mod runner;
mod service;

use std::process::ExitCode;
use std::time::Instant;

use lab::Ground;
use rand::distr::{Alphanumeric, SampleString as _};
use runner::{Case, Needs, Verdict};

fn main() -> ExitCode {
    service::run_if_asked();
    let cases = cases::all();
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if std::env::args().any(|argument| argument == "--list") {
        cases.iter().for_each(|case| println!("{}", case.sentence));
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let passed = runtime.block_on(run(&cases, &wanted));
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(cases: &[Case], wanted: &[String]) -> bool {
    let begun = Instant::now();
    let long = variable("REHOP_FAULTS_LONG").is_some_and(|value| value != "0");
    let versions: Vec<Option<String>> = match variable("REHOP_FAULTS_VERSIONS") {
        Some(versions) => versions.split_whitespace().map(|version| Some(format!("{version}-management"))).collect(),
        None => vec![variable("REHOP_TEST_RABBITMQ_TAG")],
    };
    let password = Alphanumeric.sample_string(&mut rand::rng(), 24);
    let directory = std::env::temp_dir().join(format!("rehop-faults-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let mut verdicts: Vec<Verdict> = Vec::new();
    runner::quiet_panics();
    runner::heading();
    for (index, tag) in versions.into_iter().enumerate() {
        let selected: Vec<&Case> = cases
            .iter()
            .filter(|case| wanted.is_empty() || wanted.iter().any(|word| case.sentence.contains(word)))
            .filter(|case| long || !case.long_only || !wanted.is_empty())
            .filter(|case| index == 0 || case.needs != Needs::Cluster)
            .collect();
        let ground = Ground::new(tag, long, directory.clone(), password.as_str().into());
        verdicts.push(runner::run(&ground, &selected).await);
    }
    runner::sums(&verdicts);
    let mut failed: Vec<String> = verdicts.into_iter().flat_map(|verdict| verdict.failed).collect();
    let (files, telling) = runner::files_with(&directory, &password);
    println!(
        "the password is in {} of the services' {files} logs; {:.0} s",
        telling.len(),
        begun.elapsed().as_secs_f64()
    );
    if !telling.is_empty() {
        failed.push(format!("the password is in {telling:?}"));
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
