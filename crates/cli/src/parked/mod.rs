//! `rehop parked`: see parked messages, understand them, and send them back.

mod answers;
mod discard;
mod edit;
mod list;
mod list_all;
mod plan;
mod progress;
mod replay;
mod restore;
mod select;
mod show;
mod status;
pub(super) mod text;
mod transfer;

use std::process::ExitCode;

use clap::Subcommand;
use rehop_operator::parked::{Parked, ParkedError, Place};
use tokio_util::sync::CancellationToken;

use super::options::Options;
use super::{exit, limits, output, signals};

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Traces, metrics and logs go to an OpenTelemetry collector if a variable such as
OTEL_EXPORTER_OTLP_ENDPOINT asks for it, as for `rehop relay`.")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List messages by reason, class and error; by default of all queues
    List(list::Args),
    /// Show one message: history, headers, body, and where a replay would send it
    Show(show::Args),
    /// Send messages back to the queue in which they failed
    Replay(replay::Args),
    /// Move messages into the discarded queue, which keeps them for seven days
    Discard(discard::Args),
    /// Move discarded messages back to where they were
    Restore(restore::Args),
    /// Send one message back with another body, and keep the original among the discarded ones
    Edit(edit::Args),
    /// Write messages as JSON, with masked values; they stay in the queue
    Export(transfer::Export),
    /// Publish exported messages to the parked, stray or discarded queue
    Import(transfer::Import),
}

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<ExitCode> {
    let ended = match args.command {
        Command::List(args) => list::run(args, options).await,
        Command::Show(args) => show::run(args, options).await,
        Command::Replay(args) => replay::run(args, options).await,
        Command::Discard(args) => discard::run(args, options).await,
        Command::Restore(args) => restore::run(args, options).await,
        Command::Edit(args) => edit::run(args, options).await,
        Command::Export(args) => transfer::export(args, options).await,
        Command::Import(args) => transfer::import(args, options).await,
    };
    match ended {
        Err(error) if is_stop(&error) => {
            output::notice(&format!("stopped: {error}"));
            Ok(ExitCode::from(exit::UNFINISHED))
        }
        ended => ended,
    }
}

fn is_stop(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ParkedError::Stopped | ParkedError::Incomplete { .. }))
}

/// Opens the messages of a place, and returns the token that a signal cancels. Looks at the
/// messages end with it by themselves; an operation that moves messages must be given it. Warns if
/// looking could do harm.
async fn open(place: Place, options: &Options) -> anyhow::Result<(Parked, CancellationToken)> {
    let stop = signals::watch()?;
    let settings = options.settings()?;
    let parked = Parked::open(&settings, place)?.stopped_by(stop.clone().cancelled_owned());
    let queue = [parked.queue().to_owned()];
    tokio::select! {
        () = limits::warn(&settings, &queue) => {}
        () = stop.cancelled() => return Err(ParkedError::Stopped.into()),
    }
    Ok((parked, stop))
}
