//! `rehop parked list`.

use std::process::ExitCode;

use rehop_operator::parked::{Filter, ListRequest, Parked};

use super::plan::{Verb, plan, with_fixed_times};
use super::progress::list_with_progress;
use super::select::{FilterArgs, PlaceArgs};
use super::{answers, list_all, text};
use crate::options::Options;
use crate::output;

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
// Without a place it is about all of them.
#[command(mut_group("PlaceArgs", |group| group.required(false)))]
pub(super) struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// Look at the first N messages of a queue, or at `all`
    #[arg(long, value_name = "N", default_value = "1000", value_parser = scan)]
    scan: Scan,
    /// Also print the first N messages one by one
    #[arg(long, value_name = "N", default_value_t = 0)]
    rows: usize,
    /// Print JSON
    ///
    /// An object; without --queue, --stray or --discarded an array of objects.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    filter: FilterArgs,
}

/// Lines have at most 80 columns, because clap would wrap longer ones and break the layout.
const HELP: &str = "\
Without --queue, --stray or --discarded it lists every queue: the parked queue
of each work queue in the settings, the stray and the discarded messages. With
--management it also finds the parked queues of work queues that the settings do
not list. --scan, --rows and --limit then apply to each queue.

The messages stay in the queue, in their order. On RabbitMQ 3.10 and 4.0 each
look counts as a delivery.

Examples:
  rehop parked list --management http://127.0.0.1:15672
  rehop parked list --queue orders
  rehop parked list --queue orders --reason exhausted --since 2h --rows 20
  rehop parked list --stray --scan all --json";

#[derive(Debug, Clone, Copy)]
pub(super) struct Scan(pub(super) Option<u64>);

pub(super) fn scan(text: &str) -> Result<Scan, String> {
    match text {
        "all" => Ok(Scan(None)),
        number => number
            .parse()
            .map(|number| Scan(Some(number)))
            .map_err(|_| "expected a number, or all".to_owned()),
    }
}

/// Prints what a command would do to the messages that match, instead of doing it.
pub(super) async fn show_plan(
    parked: &Parked,
    filter: Filter,
    (verb, to): (Verb, Option<&str>),
    json: bool,
) -> anyhow::Result<ExitCode> {
    let mut request = ListRequest::all(filter);
    request.planned = Some(verb.planned());
    let listing = list_with_progress(parked, &request).await?;
    // A path need not be UTF-8.
    let arguments = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    let arguments = with_fixed_times(arguments, &request.filter);
    output::print(&if json {
        text::json(&listing)?
    } else {
        plan(&listing, (verb, to), arguments)
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<ExitCode> {
    let (filter, is_json) = (args.filter.filter(), args.json);
    let request = |filter| {
        let mut request = ListRequest::all(filter);
        (request.scan, request.rows) = (args.scan.0, args.rows);
        request
    };
    let Some(place) = args.place.optional_place() else {
        return list_all::list(&request(filter), is_json, options).await;
    };
    let (parked, _) = super::open(place, options).await?;
    let listing = list_with_progress(&parked, &request(filter)).await?;
    output::print(&if is_json { text::json(&listing)? } else { answers::listing(&listing) })?;
    Ok(ExitCode::SUCCESS)
}
