//! The table that is printed while the cases run, and the one at the end.

use std::time::Duration;

use crate::expectation::{Cause, Fate};
use crate::ledger::Account;
use crate::runner::Verdict;

pub(crate) fn heading() {
    println!(
        "{:>7} {:>6} {:>7} {:>6} {:>7} {:>9} {:>5} {:>6} {:>10} {:>4} {:>9} {:>6}  case",
        "version",
        "sent",
        "handled",
        "parked",
        "expired",
        "discarded",
        "stray",
        "queued",
        "duplicates",
        "lost",
        "recovered",
        "s"
    );
}

pub(crate) fn row(
    version: &str,
    sentence: &str,
    account: &Account,
    failure: Option<&str>,
    took: Duration,
) {
    if let Some(failure) = failure {
        println!("{version:>7} FAILED after {:.1} s: {sentence}: {failure}", took.as_secs_f64());
        return;
    }
    let expired = account.count(Fate::Parked(Cause::Expired));
    println!(
        "{version:>7} {:>6} {:>7} {:>6} {expired:>7} {:>9} {:>5} {:>6} {:>10} {:>4} {:>9} {:>6.1}  {sentence}{}",
        account.sent,
        account.count(Fate::Handled),
        account.parked() - expired,
        account.count(Fate::Discarded),
        account.count(Fate::Stray),
        account.count(Fate::Queued),
        account.duplicates,
        account.lost.len(),
        seconds(account.recovery),
        took.as_secs_f64(),
        if account.note.is_empty() { String::new() } else { format!(" ({})", account.note) },
    );
}

/// The figures of all versions, under one heading.
pub(crate) fn sums(verdicts: &[Verdict]) {
    let row = |version: &str, verdict: &Verdict| {
        println!(
            "{version:>9} {:>6} {:>9} {:>5} {:>11} {:>15} {:>7}",
            verdict.cases,
            verdict.sent,
            verdict.lost,
            verdict.duplicates,
            seconds(verdict.recovery),
            verdict.failed.len(),
        );
    };
    println!(
        "\n{:>9} {:>6} {:>9} {:>5} {:>11} {:>15} {:>7}",
        "RabbitMQ", "cases", "messages", "lost", "duplicates", "worst recovery", "failed"
    );
    let mut all = Verdict::default();
    for verdict in verdicts {
        row(&verdict.version, verdict);
        all.cases += verdict.cases;
        all.sent += verdict.sent;
        all.lost += verdict.lost;
        all.duplicates += verdict.duplicates;
        all.recovery = all.recovery.max(verdict.recovery);
        all.failed.extend(verdict.failed.iter().cloned());
    }
    if verdicts.len() > 1 {
        row("all", &all);
    }
}

fn seconds(time: Option<Duration>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()))
}
