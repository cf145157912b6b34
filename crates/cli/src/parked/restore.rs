//! `rehop parked restore`.

use std::process::ExitCode;

use rehop_operator::format;
use rehop_operator::parked::{Place, Progress, RestoreRequest};

use super::list::show_plan;
use super::plan::Verb;
use super::progress::{self, Printer};
use super::select::{ApplyArgs, FilterArgs, InFlightArgs};
use super::{answers, status, text};
use crate::options::Options;
use crate::output;

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct Args {
    #[command(flatten)]
    apply: ApplyArgs,
    #[command(flatten)]
    in_flight: InFlightArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    filter: FilterArgs,
}

/// Lines have at most 80 columns, because clap would wrap longer ones and break the layout.
const HELP: &str = "\
Discarded messages go back to the end of the parked or stray queue that they
were discarded from, with the headers that they had there. Each discard prints
its run; --run takes exactly the messages that it moved, as long as they are
among the discarded ones. A message whose queue does not exist stays there.

Examples:
  rehop parked restore --run 6fa15d2d04c8
  rehop parked restore --run 6fa15d2d04c8 --apply --expect 17 --why 'too many'";

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<ExitCode> {
    let filter = args.filter.filter();
    args.apply.check(&filter)?;
    let (parked, stop) = super::open(Place::Discarded, options).await?;
    let ApplyArgs { apply, expect, why, .. } = args.apply;
    if !apply {
        return show_plan(&parked, filter, (Verb::Restore, None), args.json).await;
    }
    let mut request = RestoreRequest::default();
    (request.filter, request.expect, request.why) = (filter, expect, why);
    request.in_flight = Some(args.in_flight.in_flight);
    let (mut printer, mut seen) = (Printer::new(), None);
    let observe = |progress: &Progress| {
        printer.moved(progress);
        seen = Some(progress.tally.clone());
    };
    let restored = parked.restore(&request, observe, stop.cancelled()).await;
    printer.end();
    if let (Err(error), Some(tally)) = (&restored, seen) {
        if tally.moved > 0 {
            output::notice(&format!(
                "{} were restored before the error",
                format::count(tally.moved)
            ));
        }
        progress::report_unconfirmed(&tally, error);
    }
    let restored = restored?;
    if args.json {
        output::print(&text::json(&restored)?)?;
    } else {
        let mut lines = vec![format!("{} restored", format::count(restored.tally.moved))];
        lines.extend(answers::left(&restored.tally, Verb::Restore));
        lines.extend(restored.stopped.as_ref().map(answers::stopped));
        output::print(&lines.join("\n"))?;
    }
    Ok(ExitCode::from(status::moved(restored.stopped.is_some(), &restored.tally)))
}
