//! Runs the cases, prints the table as it goes, and says whether anything was lost.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::StreamExt as _;
use futures_util::future::LocalBoxFuture;

use crate::lab::Ground;
use crate::ledger::{Account, Place};

/// What a case needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// A corner of a broker that others use too.
    Corner,
    /// A broker of its own.
    Broker,
    /// A cluster of three.
    Cluster,
}

/// A named fault.
pub(crate) struct Case {
    pub(crate) sentence: &'static str,
    pub(crate) needs: Needs,
    /// Takes so long that only the long run has it.
    pub(crate) long_only: bool,
    run: Box<dyn Fn(Ground) -> LocalBoxFuture<'static, Account>>,
}

pub(crate) fn case<F, R>(needs: Needs, sentence: &'static str, run: F) -> Case
where
    F: Fn(Ground) -> R + 'static,
    R: Future<Output = Account> + 'static,
{
    Case { sentence, needs, long_only: false, run: Box::new(move |ground| run(ground).boxed_local()) }
}

impl Case {
    pub(crate) fn long_only(mut self) -> Self {
        self.long_only = true;
        self
    }
}

/// How the run on one version went.
#[derive(Default)]
pub(crate) struct Verdict {
    pub(crate) version: String,
    pub(crate) cases: usize,
    pub(crate) sent: usize,
    pub(crate) duplicates: usize,
    pub(crate) lost: usize,
    pub(crate) failed: Vec<String>,
}

/// No case may take longer, or the run would hang with it. The soak takes as long as it is told, and some minutes more.
fn case_limit() -> Duration {
    Duration::from_secs(900) + crate::cases::soak_lasts()
}

pub(crate) fn heading() {
    println!(
        "{:>7} {:>6} {:>7} {:>6} {:>7} {:>9} {:>5} {:>6} {:>10} {:>4} {:>6}  case",
        "version", "sent", "handled", "parked", "expired", "discarded", "stray", "queued", "duplicates", "lost", "s"
    );
}

/// The figures of all versions, under one heading.
pub(crate) fn sums(verdicts: &[Verdict]) {
    let row = |version: &str, sums: [usize; 4]| {
        println!("{version:>9} {:>6} {:>14} {:>5} {:>11}", sums[0], sums[1], sums[2], sums[3]);
    };
    println!("\n{:>9} {:>6} {:>14} {:>5} {:>11}", "RabbitMQ", "cases", "messages sent", "lost", "duplicates");
    let mut all = [0; 4];
    for verdict in verdicts {
        let sums = [verdict.cases, verdict.sent, verdict.lost, verdict.duplicates];
        row(&verdict.version, sums);
        all.iter_mut().zip(sums).for_each(|(all, one)| *all += one);
    }
    if verdicts.len() > 1 {
        row("all", all);
    }
}

/// Runs these cases on one version, some at a time, those that need much last and alone.
pub(crate) async fn run(ground: &Ground, cases: &[&Case]) -> Verdict {
    let version: Arc<str> = ground.version().await.into();
    let mut verdict = Verdict { version: version.to_string(), ..Verdict::default() };
    for (needs, at_once) in [(Needs::Corner, 4), (Needs::Broker, 2), (Needs::Cluster, 1)] {
        let runs = cases.iter().filter(|case| case.needs == needs).map(|case| {
            let (ground, version) = (ground.clone(), version.clone());
            async move {
                let begun = Instant::now();
                // A case that panics has failed; what it may have left half done was its own.
                let run = AssertUnwindSafe((case.run)(ground)).catch_unwind();
                let result = match tokio::time::timeout(case_limit(), run).await {
                    Ok(Ok(account)) => Ok(account),
                    Ok(Err(payload)) => Err(panic_text(payload.as_ref())),
                    Err(_) => Err(format!("not done within {:?}", case_limit())),
                };
                row(&version, case.sentence, &result, begun.elapsed());
                (case.sentence, result)
            }
        });
        let mut results = futures_util::stream::iter(runs).buffer_unordered(at_once);
        while let Some((sentence, result)) = results.next().await {
            verdict.cases += 1;
            match result {
                Ok(account) => {
                    verdict.sent += account.sent;
                    verdict.duplicates += account.duplicates;
                    verdict.lost += account.lost.len();
                    if !account.lost.is_empty() {
                        verdict.failed.push(format!("{version}: {sentence}: lost {:?}", account.lost));
                    }
                }
                Err(reason) => verdict.failed.push(format!("{version}: {sentence}: {reason}")),
            }
        }
    }
    verdict
}

fn row(version: &str, sentence: &str, result: &Result<Account, String>, took: Duration) {
    match result {
        Ok(account) => {
            let count = |place| account.count(place);
            println!(
                "{version:>7} {:>6} {:>7} {:>6} {:>7} {:>9} {:>5} {:>6} {:>10} {:>4} {:>6.1}  {sentence}{}",
                account.sent,
                count(Place::Handled),
                count(Place::Parked),
                count(Place::Expired),
                count(Place::Discarded),
                count(Place::Stray),
                count(Place::Queued),
                account.duplicates,
                account.lost.len(),
                took.as_secs_f64(),
                if account.note.is_empty() { String::new() } else { format!(" ({})", account.note) },
            );
        }
        Err(reason) => println!("{version:>7} FAILED after {:.1} s: {sentence}: {reason}", took.as_secs_f64()),
    }
}

thread_local! {
    /// Where this thread panicked last. All cases run on one thread.
    static PANICKED_AT: RefCell<String> = RefCell::default();
}

/// A panic is one line of the table.
pub(crate) fn quiet_panics() {
    std::panic::set_hook(Box::new(|info| {
        let at = info.location().map(ToString::to_string).unwrap_or_default();
        PANICKED_AT.with_borrow_mut(|panicked_at| *panicked_at = at);
    }));
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let at = PANICKED_AT.with_borrow(Clone::clone);
    let text = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref().copied());
    format!("{} ({at})", text.unwrap_or_default().replace('\n', " "))
}

/// The files under a directory in which a secret can be read.
pub(crate) fn files_with(directory: &Path, secret: &str) -> (usize, BTreeSet<String>) {
    let (mut read, mut found) = (0, BTreeSet::new());
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            read += 1;
            let contents = std::fs::read(&path).unwrap();
            if contents.windows(secret.len()).any(|window| window == secret.as_bytes()) {
                found.insert(path.display().to_string());
            }
        }
    }
    (read, found)
}
