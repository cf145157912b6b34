//! Runs the cases, several at a time, and collects their results.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::StreamExt as _;
use futures_util::future::LocalBoxFuture;

use crate::ground::Ground;
use crate::ledger::Account;
use crate::table;

/// What a case needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// A part of a shared broker.
    Corner,
    /// A broker of its own.
    Broker,
    /// A cluster, or brokers of several versions. These need Docker, and run only with the first
    /// version.
    Docker,
    /// The whole machine, without any other case.
    Machine,
}

/// A named fault.
pub(crate) struct Case {
    pub(crate) sentence: &'static str,
    pub(crate) needs: Needs,
    /// Only the long run includes it: it takes long, or simulated worlds decide the same.
    pub(crate) long_only: bool,
    /// In its long form it needs the whole machine.
    is_large_if_long: bool,
    /// It takes long, so it starts before others. Otherwise the run would end waiting for it.
    is_first: bool,
    run: Box<dyn Fn(Ground) -> LocalBoxFuture<'static, Account>>,
}

pub(crate) fn case<F, R>(needs: Needs, sentence: &'static str, run: F) -> Case
where
    F: Fn(Ground) -> R + 'static,
    R: Future<Output = Account> + 'static,
{
    Case {
        sentence,
        needs,
        long_only: false,
        is_large_if_long: false,
        is_first: false,
        run: Box::new(move |ground| run(ground).boxed_local()),
    }
}

impl Case {
    pub(crate) fn long_only(mut self) -> Self {
        self.long_only = true;
        self
    }

    pub(crate) fn large_if_long(mut self) -> Self {
        self.is_large_if_long = true;
        self
    }

    pub(crate) fn first(mut self) -> Self {
        self.is_first = true;
        self
    }

    fn needs(&self, is_long: bool) -> Needs {
        if is_long && self.is_large_if_long { Needs::Machine } else { self.needs }
    }
}

/// The result of the run on one version.
#[derive(Default)]
pub(crate) struct Verdict {
    pub(crate) version: String,
    pub(crate) cases: usize,
    pub(crate) sent: usize,
    pub(crate) duplicates: usize,
    pub(crate) lost: usize,
    pub(crate) recovery: Option<Duration>,
    pub(crate) failed: Vec<String>,
}

impl Verdict {
    pub(crate) fn add(&mut self, account: &Account) {
        self.sent += account.sent;
        self.duplicates += account.duplicates;
        self.lost += account.lost.len();
        self.recovery = self.recovery.max(account.recovery);
    }
}

/// The time limit of a case, so that the run cannot hang. The soak test takes its configured time
/// and some minutes more.
fn case_limit() -> Duration {
    Duration::from_secs(1_800) + crate::cases::soak_lasts()
}

/// Runs these cases on one version. Most of them wait most of the time, so there are more at once
/// than a machine has cores. Those that need more of the machine run last.
pub(crate) async fn run(ground: &Ground, cases: &[&Case]) -> Verdict {
    let version = ground.version().await;
    let mut verdict = Verdict { version: version.clone(), ..Verdict::default() };
    let of = |needs: Needs, at_once: usize| {
        let mut cases: Vec<_> =
            cases.iter().copied().filter(|case| case.needs(ground.long) == needs).collect();
        cases.sort_by_key(|case| !case.is_first);
        run_all(ground, &version, cases, at_once)
    };
    let (corners, brokers) =
        futures_util::future::join(of(Needs::Corner, 6), of(Needs::Broker, 2)).await;
    let clusters = of(Needs::Docker, 1).await;
    let alone = of(Needs::Machine, 1).await;
    for (sentence, account, failure) in [corners, brokers, clusters, alone].into_iter().flatten() {
        verdict.cases += 1;
        verdict.add(&account);
        verdict.failed.extend(failure.map(|failure| format!("{version}: {sentence}: {failure}")));
    }
    verdict
}

/// The sentence of a case, its account, and why it failed if it did.
type Outcome = (&'static str, Account, Option<String>);

async fn run_all(
    ground: &Ground,
    version: &str,
    cases: Vec<&Case>,
    at_once: usize,
) -> Vec<Outcome> {
    let runs = cases.into_iter().map(|case| async move {
        let begun = Instant::now();
        let (account, failure) = judge(case, ground.clone()).await;
        table::row(version, case.sentence, &account, failure.as_deref(), begun.elapsed());
        (case.sentence, account, failure)
    });
    futures_util::stream::iter(runs).buffer_unordered(at_once).collect().await
}

/// The account of a case, if there is one, and why it failed if it did.
async fn judge(case: &Case, ground: Ground) -> (Account, Option<String>) {
    // A case that panics has failed. Anything it left half done was its own.
    let run = AssertUnwindSafe((case.run)(ground)).catch_unwind();
    match tokio::time::timeout(case_limit(), run).await {
        Ok(Ok(account)) => {
            let failure = (!account.is_right()).then(|| account.complaint());
            (account, failure)
        }
        Ok(Err(payload)) => (Account::default(), Some(panic_text(payload.as_ref()))),
        Err(_) => (Account::default(), Some(format!("not done within {:?}", case_limit()))),
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
    let text = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref().copied());
    format!("{} ({at})", text.unwrap_or_default().replace('\n', " "))
}

/// The files below a directory that contain a secret.
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
