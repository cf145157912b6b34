//! `rehop parked`: see parked messages, understand them, and send them back.

mod answers;
mod discard;
mod edit;
mod list;
mod plan;
mod progress;
mod replay;
mod restore;
mod select;
mod show;
pub(super) mod text;
mod transfer;

use std::process::ExitCode;

use clap::Subcommand;
use rehop::doctor::{Finding, lowered_delivery_limit};
use rehop::parked::{Parked, Place};

use super::options::Options;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Group the messages by reason, class and error
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
    /// Write messages as JSON, one per line, with masked values; they stay in the queue
    Export(transfer::Export),
    /// Publish exported messages to the parked queue
    Import(transfer::Import),
}

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::List(args) => list::run(args, options).await,
        Command::Show(args) => show::run(args, options).await,
        Command::Replay(args) => replay::run(args, options).await,
        Command::Discard(args) => discard::run(args, options).await,
        Command::Restore(args) => restore::run(args, options).await,
        Command::Edit(args) => edit::run(args, options).await,
        Command::Export(args) => transfer::export(args, options).await,
        Command::Import(args) => transfer::import(args, options).await,
    }
}

/// It stopped by itself, or messages parked again.
const STOPPED: u8 = 3;
/// Everything was sent, and the fate of some is unknown.
const UNKNOWN: u8 = 4;

/// The messages that the command line names.
async fn open(place: &select::PlaceArgs, options: &Options, reveal: bool) -> anyhow::Result<Parked> {
    let parked = open_at(place.place(), options).await?;
    Ok(if reveal { parked.reveal() } else { parked })
}

/// Warns if looking at the messages could do harm.
async fn open_at(place: Place, options: &Options) -> anyhow::Result<Parked> {
    let settings = options.loader()?.load()?;
    let parked = Parked::open(&settings, place)?;
    match lowered_delivery_limit(&settings, parked.queue()).await {
        Ok(None) => {}
        Ok(Some(Finding { object, seen, remedy, .. })) => tracing::warn!("{object}: {seen}; {remedy}"),
        Err(error) => {
            tracing::warn!(
                "cannot see whether a policy lowers the delivery limit of queue {:?}: {error}",
                parked.queue()
            );
        }
    }
    Ok(parked)
}
