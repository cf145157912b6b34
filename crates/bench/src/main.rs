//! Compares rehop with raw lapin on one real broker: throughput, lateness, and what happens to each
//! message.
//!
//! `make bench ARGS="[--quick] [--rounds N] [CASE]..."`; `--help` lists the cases.

#![allow(clippy::unwrap_used, reason = "a benchmark may panic, and so may its helpers")]
#![allow(
    clippy::disallowed_methods,
    reason = "no connection here opens many channels, and no subscription is dropped before it is answered"
)]
#![allow(clippy::print_stdout, reason = "a benchmark is read on standard output")]

mod arguments;
mod audit;
mod collect;
mod corner;
mod cpu;
mod distribution;
mod effort;
mod instruments;
mod job;
mod lab;
mod parked;
mod progress;
mod raw;
mod rehop_side;
mod report;
mod run;
mod side;
mod steady;
mod strategies;
mod task;
mod tracing_cost;
mod turns;
mod way;
mod witness;

use std::error::Error;

use arguments::{Arguments, Case};
use job::Job;
use lab::Lab;
use report::Report;
use side::Side;
use way::Way;

/// The prefetch with which the raw client was fastest on a machine of two cores, one of which the
/// broker uses.
const PREFETCH: u16 = 500;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let Some(arguments) = Arguments::parse(std::env::args().skip(1))? else {
        println!("{}", arguments::USAGE);
        return Ok(());
    };
    instruments::check();
    let lab = Lab::start(arguments.effort).await?;
    println!(
        "RabbitMQ {}, {} rounds each after a warm-up, 1 KiB messages, quorum queues, prefetch {PREFETCH}",
        lab.version(),
        lab.effort.rounds
    );
    println!(
        "time runs from the first call of a handler until each message has had its last one, or is in the parked queue; client and \
         broker are the microseconds of CPU time per message, the client's from its first attempt on"
    );

    let mut failed = 0;
    for case in arguments.cases {
        failed += match case {
            Case::Success => compare(&lab, Job::Success, &Side::all(Job::Success)).await?,
            Case::Queues => compare(&lab, Job::Success, &Side::OF_QUEUES).await?,
            Case::Wait => {
                let job = Job::Wait(Way::Tiers);
                compare(&lab, job, &Side::all(job)).await?
            }
            Case::Requeue => compare(&lab, Job::Requeue, &Side::all(Job::Requeue)).await?,
            Case::Steady => steady::compare(&lab).await?,
            Case::Strategies => strategies::compare(&lab).await?,
            Case::Rates => steady::compare_strategies(&lab).await?,
            Case::Spread => steady::compare_spread(&lab).await?,
            Case::Parked => parked::compare(&lab).await?,
            Case::Tracing => tracing_cost::compare(&lab).await?,
        };
    }
    println!("\nmessages lost or in the wrong place: {failed}");
    if failed > 0 { Err("not every message ended as it should".into()) } else { Ok(()) }
}

/// Runs all sides of a job in turn, round after round, so that other load on the machine affects
/// them alike. Returns how many messages did not end as they should.
async fn compare(lab: &Lab, job: Job, sides: &[Side]) -> Result<usize> {
    let mut report = Report::new(job.title(lab.effort), sides.iter().map(|side| side.name()));
    for round in turns::rounds(lab.effort.rounds) {
        for turn in turns::order(round, sides.len()) {
            let side = sides[turn];
            lab.progress.say(&format!("{}, {round}: {}", job.word(), side.name()));
            let run = run::run(lab, job, side).await?;
            report.add(turn, round, run);
        }
    }
    lab.progress.clear();
    Ok(report.print())
}
