//! `rehop parked discard`.

use std::process::ExitCode;

use rehop_operator::format;
use rehop_operator::parked::{DiscardRequest, Progress};

use super::list::show_plan;
use super::plan::{Verb, command};
use super::progress::{self, Printer};
use super::select::{ApplyArgs, FilterArgs, InFlightArgs, UndiscardedArgs};
use super::{answers, status, text};
use crate::options::Options;
use crate::output;

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
#[command(mut_arg("apply", |arg| arg.help("Discard the messages; without it, print a plan")))]
#[command(mut_arg("expect", |arg| arg.help("Discard nothing unless exactly N messages match")))]
#[command(mut_arg("why", |arg| arg.help(WHY)))]
pub(super) struct Args {
    #[command(flatten)]
    place: UndiscardedArgs,
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

const WHY: &str = "Why, for the log and the trace; the discarded messages carry it";

/// Lines have at most 80 columns, because clap would wrap longer ones and break the layout.
const HELP: &str = "\
Discarded messages are kept for seven days in the queue <namespace>.discarded.
`rehop parked list --discarded` shows them, `restore` moves them back to where
they were, and `replay --discarded` sends them to their work queue.

Examples:
  rehop parked discard --queue orders --until 30d
  rehop parked discard --queue orders --until 30d --apply --expect 17";

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<ExitCode> {
    let filter = args.filter.filter();
    args.apply.check(&filter)?;
    let (parked, stop) = super::open(args.place.place(), options).await?;
    let ApplyArgs { apply, expect, why, .. } = args.apply;
    if !apply {
        return show_plan(&parked, filter, (Verb::Discard, None), args.json).await;
    }
    let mut request = DiscardRequest::default();
    (request.filter, request.expect, request.why) = (filter, expect, why);
    request.in_flight = Some(args.in_flight.in_flight);
    let (mut printer, mut seen) = (Printer::new(), None);
    let observe = |progress: &Progress| {
        printer.moved(progress);
        seen = Some(progress.clone());
    };
    let discarded = parked.discard(&request, observe, stop.cancelled()).await;
    printer.end();
    if let (Err(error), Some(Progress { run, tally, .. })) = (&discarded, seen) {
        if tally.moved > 0 {
            let moved = format::count(tally.moved);
            output::notice(&format!(
                "{moved} were discarded before the error; to undo it: {}",
                undo(&run, options)
            ));
        }
        progress::report_unconfirmed(&tally, error);
    }
    let discarded = discarded?;
    if args.json {
        output::print(&text::json(&discarded)?)?;
    } else {
        let mut lines = vec![format!("{} discarded", format::count(discarded.tally.moved))];
        lines.extend(answers::left(&discarded.tally, Verb::Discard));
        if discarded.tally.moved > 0 {
            lines.push(format!("to undo it: {}", undo(&discarded.run, options)));
        }
        lines.extend(discarded.stopped.as_ref().map(answers::stopped));
        output::print(&lines.join("\n"))?;
    }
    Ok(ExitCode::from(status::moved(discarded.stopped.is_some(), &discarded.tally)))
}

/// The command that moves back what this run has discarded.
fn undo(run: &str, options: &Options) -> String {
    let restore = ["rehop", "parked", "restore", "--run", run].map(str::to_owned);
    command(restore.into_iter().chain(options.arguments()))
}
