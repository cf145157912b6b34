//! `rehop doctor`: what on the broker would harm a service.

use std::process::ExitCode;

use rehop_operator::doctor::{self, Check, Severity};

use super::options::Options;
use super::output;
use super::queues::Queues;
use super::report::{print, status};

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct Args {
    #[command(flatten)]
    queues: Queues,
    /// Print JSON: an object with findings, limits, asked_at and unseen
    #[arg(long)]
    json: bool,
    /// Exit with 3 only for findings of this severity or a worse one
    #[arg(long, value_enum, default_value_t, value_name = "SEVERITY")]
    fail_on: FailOn,
    /// Only print the list of all checks
    #[arg(long, conflicts_with_all = ["names", "json"])]
    list: bool,
}

/// As [`Severity`], for the command line.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum FailOn {
    /// Messages may be lost, expire or get stuck, or the service cannot work
    Error,
    /// Something does not work as configured, or would not survive the next failure
    Warning,
    /// Worth tidying up
    #[default]
    Notice,
}

impl FailOn {
    const fn severity(self) -> Severity {
        match self {
            Self::Error => Severity::Error,
            Self::Warning => Severity::Warning,
            Self::Notice => Severity::Notice,
        }
    }
}

/// Lines have at most 80 columns, because clap would wrap longer ones and break the layout.
const HELP: &str = "\
It creates, publishes and deletes nothing. To see how long messages have been
parked, it fetches the first message of each parked queue and gives it back,
which the broker counts as one delivery. To try permissions without publishing
or consuming, it sends requests that the broker refuses for another reason; the
broker logs them.

The management API shows what AMQP cannot: policies, bindings, unused wait
queues, messages that are stuck, nodes, alarms, feature flags, the members of
queues. Without it, the report ends with what could not be seen. The user needs
the tag `monitoring` there.

Examples:
  rehop doctor --namespace billing --queue orders
  rehop doctor --namespace billing --queue orders \\
    --management http://127.0.0.1:15672
  rehop doctor --fail-on error --management http://127.0.0.1:15672
  rehop doctor --json | jq '.findings[] | select(.severity == \"error\")'";

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<ExitCode> {
    if args.list {
        let mut table = output::table(["CHECK", "SEVERITY", "FINDS"]);
        for check in Check::ALL {
            table.add_row([check.id(), check.severity().as_str(), check.finds()]);
        }
        output::print(&table.trim_fmt())?;
        return Ok(ExitCode::SUCCESS);
    }
    let listed = options.settings()?;
    let is_partial = args.queues.leave_out_some_of(&listed);
    let mut report = doctor::examine(&args.queues.select(listed)?).await?;
    if is_partial {
        report.findings.retain(|finding| finding.check != Check::UnusedTier);
        let others = "wait queues that are no longer used: the settings list more queues than were asked for";
        report.unseen.push(others.to_owned());
    }
    print(&report, args.json, "healthy")?;
    Ok(status(&report, args.fail_on.severity()))
}
