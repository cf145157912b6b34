//! Looks at a live broker: finds what would make a service lose, delay or multiply messages, and
//! says what to do about it (feature `doctor`).
//!
//! Nothing is created, changed or taken: [`examine`] and [`plan`] only look. The broker compares
//! arguments by itself; permissions are tried with requests that it refuses for another reason,
//! which leaves lines in its log. The management API
//! ([`broker.management_url`](rehop::settings::BrokerSettings::management_url)) shows much more
//! than AMQP, such as policies and bindings; without it the report says what could not be seen.
//!
//! `rehop doctor` and `rehop topology verify`, `plan` and `prune` are this module on the command
//! line.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let mut settings = rehop::Settings::load()?;
//! settings.queue_mut("orders");
//! let report = rehop_operator::doctor::examine(&settings).await?;
//! for finding in &report.findings {
//!     println!("{}: {}, {}", finding.object, finding.seen, finding.remedy);
//! }
//! # Ok(()) }
//! ```

mod amqp;
mod check;
mod checks;
mod dead_letters;
mod examination;
mod management;
mod observed;
mod parked_since;
mod plan;
mod policies;
mod pruner;
mod report;
mod resting;
mod routing;
mod subject;
mod untold;
mod unused;
mod usage;
mod users;

use std::time::SystemTime;

pub use check::{Check, Severity};
pub use plan::{Action, Plan, Planned};
pub use policies::unfit_for_policies;
pub use pruner::{Pruned, Pruning, prune, unused};
pub use report::{Finding, Report};
pub use resting::harm_of_looking;
pub use unused::{Prunable, Unused, Verdict};
pub use usage::Usage;

use examination::Examination;
use untold::{untold, untold_policies};
use usage::usages;

use rehop::Error;
use rehop::Settings;
use rehop::Timestamp;

/// Looks at everything that the settings' queues need and depend on.
///
/// It takes a second or so, and 6 seconds more if messages seem to be stuck. It fetches the first
/// message of each parked queue and gives it back, to see its age; the broker counts that as a
/// delivery, far below the queue's limit.
///
/// # Errors
///
/// When the settings are wrong, or the broker cannot be reached by AMQP. If the management API
/// cannot be used, that is a finding.
pub async fn examine(settings: &Settings) -> Result<Report, Error> {
    let asked_at = Timestamp::from(SystemTime::now());
    let mut examination = Examination::of(settings).await?;
    examination.at_heads_of_parked_queues().await?;
    let findings = checks::findings(
        &examination.subject,
        &examination.seen,
        Timestamp::from(SystemTime::now()),
    );
    let mut unseen = std::mem::take(&mut examination.seen.unseen);
    unseen.extend(
        examination.seen.management.iter().flat_map(|seen| untold(&examination.subject, seen)),
    );
    let limits = examination.seen.management.as_ref().map(usages).unwrap_or_default();
    let asked_at = examination.seen.management.as_ref().map(|_| asked_at);
    examination.end().await;
    Ok(Report::new(findings, unseen).with_counts(limits, asked_at))
}

/// Compares the topology alone with the settings: exchanges, queues, bindings, arguments, and the
/// policies on them.
///
/// # Errors
///
/// As [`examine`].
pub async fn verify(settings: &Settings) -> Result<Report, Error> {
    let examination = Examination::of(settings).await?;
    let findings = checks::findings(
        &examination.subject,
        &examination.seen,
        Timestamp::from(SystemTime::now()),
    );
    let mut unseen = examination.seen.unseen.clone();
    let policies = |seen| untold_policies(&examination.subject, seen);
    unseen.extend(examination.seen.management.iter().flat_map(policies));
    examination.end().await;
    Ok(Report::new(findings, unseen).drift())
}

/// What [`Topology::declare`](rehop::Topology::declare) would do, and the steps for what it cannot
/// do.
///
/// # Errors
///
/// As [`examine`].
pub async fn plan(settings: &Settings) -> Result<Plan, Error> {
    let examination = Examination::of(settings).await?;
    let plan = plan::plan(&examination.subject, &examination.seen);
    examination.end().await;
    Ok(plan)
}
