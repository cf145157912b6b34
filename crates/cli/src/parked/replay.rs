//! `rehop parked replay`.

use std::process::ExitCode;
use std::time::Duration;

use rehop_operator::parked::{Parked, Progress, RampSettings, ReplayRequest};
use tokio_util::sync::CancellationToken;

use super::list::show_plan;
use super::plan::Verb;
use super::progress::{self, Printer};
use super::select::{ApplyArgs, FilterArgs, InFlightArgs, PlaceArgs};
use super::{answers, status, text};
use crate::options::{Options, Usage};
use crate::output;

/// The canary that is sent unless another number is asked for.
const CANARY: u32 = 5;

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
#[command(mut_arg("apply", |arg| arg.help("Send the messages; without it, print a plan")))]
#[command(mut_arg("expect", |arg| arg.help("Send nothing unless exactly N messages match")))]
pub(super) struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    apply: ApplyArgs,
    /// The work queue of messages that do not say where they belong
    #[arg(long, value_name = "QUEUE", hide_short_help = true)]
    to: Option<String>,
    /// Send N first, and wait for their fate
    ///
    /// 0 sends everything at once. With 0, or more than 5, --apply needs a filter, --expect or
    /// --all.
    #[arg(long, value_name = "N", default_value_t = CANARY)]
    canary: u32,
    /// How long to wait for the fate of each batch
    #[arg(long, hide_short_help = true, value_name = "DURATION", default_value = "1m", value_parser = humantime::parse_duration)]
    verdict: Duration,
    /// Stop when more than this share of the messages parks again or is discarded, in percent
    #[arg(long, hide_short_help = true, value_name = "PERCENT", default_value_t = 5.0)]
    max_failed: f64,
    /// Send at most this many messages a second
    #[arg(long, value_name = "N", hide_short_help = true)]
    rate: Option<f64>,
    /// Pause while the work queue has more ready messages than this
    #[arg(long, value_name = "N", hide_short_help = true)]
    max_ready: Option<u64>,
    /// Give the messages a new deadline, so long from now. Default: retry.max_age, counted from now
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, hide_short_help = true)]
    deadline: Option<Duration>,
    #[command(flatten)]
    in_flight: InFlightArgs,
    /// When all are sent, wait for their fate until nothing was heard for this long
    #[arg(
        long,
        hide_short_help = true,
        value_name = "DURATION",
        default_value = "10s",
        value_parser = humantime::parse_duration
    )]
    follow: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    filter: FilterArgs,
}

/// Lines have at most 80 columns, because clap would wrap longer ones and break the layout.
const HELP: &str = "\
Messages go back to the queue in which they failed, with their exchange, routing
key, history and trace. They start again: no attempts, no waits. First a canary
of 5, then 10, 100, 1000 and 10000 at a time, each after a verdict on the batch
before. A canary that fails is parked instead of waiting, and stops the replay.
One that its handler discards stops it, too; no copy of it is kept. Messages
that park again during the replay are not taken again.

A run learns the fate of 1,000,000 messages. It sends those beyond as well, and
counts them as unknown. For more: --limit 1000000, and repeat the command.

Examples:
  rehop parked replay --queue orders --class http_503
  rehop parked replay --queue orders --class http_503 --apply --expect 412
  rehop parked replay --queue orders --chain order-7 --apply --why 'ticket 7'";

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<ExitCode> {
    if args.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
        return Err(Usage("--rate must be above 0".to_owned()).into());
    }
    let filter = args.filter.filter();
    // With a canary, a mistake affects only a few messages.
    if args.canary == 0 || args.canary > CANARY {
        args.apply.check(&filter)?;
    }
    let (parked, stop) = super::open(args.place.place(), options).await?;
    let mut ramp = RampSettings::default();
    match args.canary {
        0 => ramp.batches.clear(),
        canary => ramp.batches[0] = canary,
    }
    (ramp.verdict_within, ramp.max_failed) = (args.verdict, args.max_failed / 100.0);
    let ApplyArgs { apply, expect, why, .. } = args.apply;
    let mut request = ReplayRequest::default();
    request.filter = filter;
    (request.ramp, request.expect, request.why, request.to) = (ramp, expect, why, args.to);
    (request.rate, request.max_ready, request.deadline) =
        (args.rate, args.max_ready, args.deadline);
    request.in_flight = Some(args.in_flight.in_flight);
    request.follow = args.follow;
    if !apply {
        return show_plan(&parked, request.filter, (Verb::Send, request.to.as_deref()), args.json)
            .await;
    }
    send(&parked, &request, &stop, args.json).await
}

async fn send(
    parked: &Parked,
    request: &ReplayRequest,
    stop: &CancellationToken,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let (mut printer, mut seen) = (Printer::new(), None);
    let observe = |progress: &Progress| {
        printer.replayed(progress);
        seen = Some(progress.clone());
    };
    let replayed = parked.replay(request, observe, stop.cancelled()).await;
    printer.end();
    if let (Err(error), Some(Progress { run, tally, fates, .. })) = (&replayed, seen) {
        if tally.moved > 0 {
            output::notice(&format!(
                "replay {run}, before the error: {}",
                progress::replayed(&tally, &fates, false)
            ));
        }
        progress::report_unconfirmed(&tally, error);
    }
    let replayed = replayed?;
    output::print(&if json { text::json(&replayed)? } else { answers::replayed(&replayed) })?;
    Ok(ExitCode::from(status::replayed(
        replayed.stopped.is_some(),
        &replayed.tally,
        &replayed.fates,
    )))
}
