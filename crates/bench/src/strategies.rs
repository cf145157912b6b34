//! The ways to wait, side by side: rehop beside raw lapin that waits in the same way.

use crate::job::Job;
use crate::lab::Lab;
use crate::report::Report;
use crate::side::Side;
use crate::way::Way;
use crate::{Result, run, turns};

/// Each way's raw side first, then rehop.
fn contenders(lab: &Lab) -> Vec<(Way, Side)> {
    lab.ways().into_iter().flat_map(|way| [(way, Side::YARDSTICK), (way, Side::Rehop)]).collect()
}

/// Returns how many messages did not end as they should.
pub(crate) async fn compare(lab: &Lab) -> Result<usize> {
    let contenders = contenders(lab);
    let title = format!(
        "{} messages wait about two seconds once, in each way; in the process 50 ms",
        lab.effort.wait
    );
    let names = contenders.iter().map(|(way, side)| format!("{}: {}", way.name(), side.word()));
    let mut report = Report::new(title, names);
    for round in turns::rounds(lab.effort.rounds) {
        for turn in turns::order(round, contenders.len()) {
            let (way, side) = contenders[turn];
            lab.progress.say(&format!("strategies, {round}: {}, {}", way.name(), side.word()));
            report.add(turn, round, run::run(lab, Job::Wait(way), side).await?);
        }
    }
    lab.progress.clear();
    let failed = report.print_beside(|row| row - row % 2);
    if let Some(native) =
        contenders.iter().position(|contender| *contender == (Way::Native, Side::Rehop))
    {
        report.print_ratio("rehop, native : tiers", native, 1);
    }
    if !lab.knows_delayed_retry() {
        println!(
            "  native: not compared, because this broker does not know delayed retry (RabbitMQ has it from 4.3)"
        );
    }
    if !lab.has_delayed_exchanges {
        println!(
            "  delayed exchange: not compared, because this broker has no plugin rabbitmq_delayed_message_exchange"
        );
    }
    Ok(failed)
}
