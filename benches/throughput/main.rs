//! Throughput of rehop beside raw lapin, interleaved in one run on one real broker.
//!
//! `make bench`, or `cargo bench --features cli --bench throughput -- [quick] [success] [wait] [requeue] [tracing]`.

#![allow(clippy::unwrap_used, reason = "a benchmark may panic, and so may its helpers")]
#![allow(clippy::print_stdout, reason = "a benchmark is read on standard output")]

mod job;
mod raw;
mod rehop_side;
mod report;
mod tracing_cost;

use std::error::Error;

use job::{Bench, Job, Sizes};
use report::Report;

/// A broker and 500 messages under way leave a core of two to the broker, and are what the fastest raw client here used.
const PREFETCH: u16 = 500;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    // `cargo bench` and `cargo test` add flags of their own.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if let Some(unknown) =
        words.iter().find(|word| !["quick", "success", "wait", "requeue", "tracing"].contains(&word.as_str()))
    {
        return Err(format!("unknown word {unknown:?}: quick, success, wait, requeue or tracing").into());
    }
    let asked = |word: &str| words.iter().any(|other| other == word);
    let everything = !["success", "wait", "requeue", "tracing"].iter().any(|word| asked(word));
    let sizes = if asked("quick") { Sizes::QUICK } else { Sizes::FULL };
    let bench = Bench::start(sizes).await?;
    println!(
        "RabbitMQ {}, {} rounds each, 1 KiB messages, quorum queues, prefetch {PREFETCH}",
        bench.version(),
        sizes.rounds
    );

    let mut lost = 0;
    for job in [Job::Success, Job::Wait, Job::Requeue] {
        if everything || asked(job.word()) {
            lost += compare(&bench, job).await?;
        }
    }
    if everything || asked("tracing") {
        lost += tracing_cost::compare(&bench).await?;
    }
    println!("\nlost in all: {lost}");
    if lost > 0 { Err("messages were lost".into()) } else { Ok(()) }
}

/// Runs all variants of a job in turn, round after round, so that whatever else the machine does hits them alike.
async fn compare(bench: &Bench, job: Job) -> Result<u64> {
    let mut report = Report::new(job.title(bench.sizes), raw::SAME_TOPOLOGY);
    for round in 0..bench.sizes.rounds {
        for variant in raw::variants(job) {
            report.add(variant.name(), raw::run(bench, job, variant, round).await?);
        }
        report.add("rehop", rehop_side::run(bench, job, "rehop", round).await?);
    }
    Ok(report.print())
}
