//! `rehop parked list`.

use std::process::ExitCode;

use rehop::parked::{Filter, ListRequest, Listing, Parked, ParkedError};

use super::plan::plan;
use super::progress::Printer;
use super::select::{FilterArgs, PlaceArgs};
use super::{answers, text};
use crate::cli::options::Options;
use crate::cli::output;

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// Look at this many messages from the head of the queue, or at `all`
    #[arg(long, value_name = "N", default_value = "1000", value_parser = window)]
    window: Window,
    /// Also print the first messages one by one, at most this many
    #[arg(long, value_name = "N", default_value_t = 0)]
    rows: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    filter: FilterArgs,
}

/// Lines have at most 80 columns, because clap would wrap longer ones and break the layout.
const HELP: &str = "\
Looking changes nothing: the messages stay in the queue, in their order.

Examples:
  rehop parked list --queue orders
  rehop parked list --queue orders --reason exhausted --since 2h --rows 20
  rehop parked list --stray --window all --json";

#[derive(Debug, Clone, Copy)]
pub(super) struct Window(pub(super) Option<u64>);

pub(super) fn window(text: &str) -> Result<Window, String> {
    match text {
        "all" => Ok(Window(None)),
        number => number.parse().map(|number| Window(Some(number))).map_err(|_| "expected a number, or all".to_owned()),
    }
}

/// Lists, and shows how far it is.
async fn look(parked: &Parked, request: &ListRequest) -> Result<Listing, ParkedError> {
    let mut printer = Printer::new();
    let wanted = |depth: u64| request.window.map_or(depth, |window| window.min(depth));
    let listing = parked.list_observed(request, |seen| printer.looked(seen.looked_at, wanted(seen.depth))).await;
    printer.end();
    listing
}

/// Prints what a command would do to the messages that match, instead of doing it.
pub(super) async fn show_plan(parked: &Parked, filter: Filter, verb: &str, json: bool) -> anyhow::Result<ExitCode> {
    let mut request = ListRequest::all(filter);
    request.check_destinations = verb == "send";
    let listing = look(parked, &request).await?;
    output::print(&if json { text::json(&listing)? } else { plan(&listing, verb, std::env::args()) })?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<ExitCode> {
    let (parked, _) = super::open(args.place.place(), options).await?;
    let mut request = ListRequest::all(args.filter.filter());
    (request.window, request.rows) = (args.window.0, args.rows);
    let listing = look(&parked, &request).await?;
    if args.json {
        output::print(&text::json(&listing)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::print(&answers::listing(&listing))?;
    Ok(ExitCode::SUCCESS)
}
