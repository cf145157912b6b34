//! `rehop parked discard`.

use std::process::ExitCode;

use rehop::parked::{DiscardRequest, ListRequest, Place};

use super::plan::plan;
use super::progress::Printer;
use super::select::{FilterArgs, PlaceArgs};
use super::{STOPPED, text};
use crate::cli::options::{Options, Usage};
use crate::cli::{output, signals};

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Discard the messages. Without this the command prints a plan
    #[arg(long)]
    apply: bool,
    /// Discard nothing unless exactly this many messages match
    #[arg(long, value_name = "N", requires = "apply")]
    expect: Option<u64>,
    /// Why; the discarded messages carry it
    #[arg(long, value_name = "TEXT", requires = "apply")]
    why: Option<String>,
    /// Move one message at a time: at most one duplicate if this process is killed, instead of up to 100
    #[arg(long)]
    strict: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Lines have at most 80 columns, because clap would wrap longer ones and break the layout.
const HELP: &str = "\
Discarded messages are kept for seven days in the queue <namespace>.discarded.
`rehop parked list --discarded` shows them, `restore` moves them back to where
they were, and `replay --discarded` sends them to their work queue.

Examples:
  rehop parked discard --queue orders --older-than 30d
  rehop parked discard --queue orders --older-than 30d --apply --expect 17";

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<ExitCode> {
    if args.place.place() == Place::Discarded {
        return Err(Usage("these messages are discarded already".to_owned()).into());
    }
    let parked = super::open(&args.place, options, false).await?;
    let filter = args.filter.filter();
    if !args.apply {
        let listing = parked.list(&ListRequest::all(filter)).await?;
        output::print(&if args.json { text::json(&listing)? } else { plan(&listing, "discard", std::env::args()) })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut request = DiscardRequest::default();
    (request.filter, request.expect, request.why) = (filter, args.expect, args.why);
    request.in_flight = args.strict.then_some(1);
    let stop = signals::watch()?;
    let mut printer = Printer::new();
    let discarded = parked.discard(&request, |progress| printer.show(progress), stop.cancelled()).await;
    printer.end();
    let discarded = discarded?;
    if args.json {
        output::print(&text::json(&discarded)?)?;
    } else {
        let mut lines = vec![format!("{} discarded", text::number(discarded.tally.moved))];
        if discarded.tally.moved > 0 {
            lines.push(format!("to undo it: rehop parked restore --run {}", discarded.run));
        }
        lines.extend(discarded.stopped.iter().map(|stop| format!("stopped: {}", text::line(&stop.to_string()))));
        output::print(&lines.join("\n"))?;
    }
    Ok(if discarded.stopped.is_some() { ExitCode::from(STOPPED) } else { ExitCode::SUCCESS })
}
