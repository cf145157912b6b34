//! `rehop parked edit`.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, bail};
use rehop_operator::format;
use rehop_operator::parked::{EditRequest, Edited, ParkedError};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::select::PlaceArgs;
use super::text;
use crate::options::Options;
use crate::{exit, input, output};

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// The id of its chain; without --apply a unique prefix is enough
    ///
    /// A chain is a message with all its attempts. Lists, logs and spans show its id.
    #[arg(value_name = "CHAIN")]
    chain: String,
    /// The message's place in the queue, where several are of the chain; `show` prints it
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    position: Option<u64>,
    /// The file with the new body, or - for standard input
    ///
    /// Without it $VISUAL or $EDITOR opens the present body, unmasked.
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// Send the edited message; without it, only check it
    ///
    /// What was written in the editor is then lost.
    #[arg(long)]
    apply: bool,
    /// Why, for the log and the trace; the original carries it
    #[arg(long, value_name = "TEXT", requires = "apply")]
    why: Option<String>,
    /// The work queue, if the message does not say where it belongs
    #[arg(long, hide_short_help = true, value_name = "QUEUE")]
    to: Option<String>,
    /// Give the message a new deadline, so long from now. Default: retry.max_age, counted from now
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, hide_short_help = true)]
    deadline: Option<Duration>,
    /// How long to wait for its fate
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    follow: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Lines have at most 80 columns, because clap would wrap longer ones and break the layout.
const HELP: &str = "\
The edited message is sent to the queue in which it failed, with its history.
The original is kept in <namespace>.discarded for seven days.

Examples:
  rehop parked edit --queue orders order-7 --body fixed.json --apply
  EDITOR=nano rehop parked edit --queue orders order-7 --apply --why 'ticket 7'";

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<ExitCode> {
    // Read before `open`: from then on a signal no longer ends the process while it waits for
    // standard input.
    let read = |file: &PathBuf| {
        input::read(file).with_context(|| format!("cannot read {}", file.display()))
    };
    let given = args.body.as_ref().map(read).transpose()?;
    let (parked, stop) = super::open(args.place.place(), options).await?;
    // What is sent needs the whole id: if its message is gone by now, the id may be a prefix of
    // another one.
    let (message, original) = match args.apply {
        true => parked.body(&args.chain, args.position).await?,
        false => parked.body_by_prefix(&args.chain, args.position).await?,
    };
    let body = match given {
        Some(body) => body,
        None => written(&original, &stop)?,
    };
    if body[..] == original[..] {
        bail!("the body is the same as before; nothing was sent");
    }
    if !args.apply {
        let destination = message.destination.as_ref().or(args.to.as_ref());
        output::print(&plan(&message.chain, destination, [&body, &original], args.json)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut request = EditRequest::new(message.chain, body);
    (request.original, request.position) = (Some(original), args.position);
    (request.why, request.to, request.deadline, request.follow) =
        (args.why, args.to, args.deadline, args.follow);
    let edited = parked.edit(&request).await?;
    let (word, status) = fate(&edited);
    if args.json {
        output::print(&text::json(&edited)?)?;
    } else {
        output::print(&format!(
            "replay {}: sent to {}; {word}",
            edited.run,
            text::line(&edited.destination)
        ))?;
    }
    Ok(ExitCode::from(status))
}

/// What would be done.
fn plan(
    chain: &str,
    destination: Option<&String>,
    [body, original]: [&[u8]; 2],
    is_json: bool,
) -> anyhow::Result<String> {
    let (bytes, before) = (body.len() as u64, original.len() as u64);
    if is_json {
        let plan = json!({ "chain": chain, "destination": destination, "bytes": bytes, "bytes_before": before });
        return text::json(&plan);
    }
    let to = destination
        .map_or_else(|| "an unknown queue; --to names it".to_owned(), |queue| text::line(queue));
    Ok(format!(
        "{}: a body of {} bytes in place of {} would go to {to}. Nothing was done; --apply does it",
        text::line(chain),
        format::count(bytes),
        format::count(before),
    ))
}

/// What became of the edited message, in words and as an exit status.
fn fate(edited: &Edited) -> (&'static str, u8) {
    match edited.fates {
        fates if fates.handled > 0 => ("it was handled", 0),
        fates if fates.parked_again > 0 => ("it parked again", exit::UNFINISHED),
        fates if fates.discarded > 0 => ("its handler discarded it", exit::UNFINISHED),
        fates if fates.waiting > 0 => ("it failed, and waits for another attempt", exit::UNKNOWN),
        _ => (
            "its fate is unknown: it may still be in its queue, or its consumer does not report it; if it crashes its consumer, the broker \
             parks it in the end",
            exit::UNKNOWN,
        ),
    }
}

/// The body that is written in an editor.
fn written(original: &[u8], stop: &CancellationToken) -> anyhow::Result<Vec<u8>> {
    let edited = edited(original, stop)?;
    // Ctrl-C reaches the editor as well.
    if stop.is_cancelled() {
        return Err(ParkedError::Stopped.into());
    }
    Ok(edited)
}

/// What an editor makes of the body. The file is readable to this user alone. It is removed, unless
/// a signal arrived while an editor was open that has then saved it: Ctrl-C means something else to
/// some editors.
fn edited(original: &[u8], stop: &CancellationToken) -> anyhow::Result<Vec<u8>> {
    let set = |name| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty());
    let Some(editor) = set("VISUAL").or_else(|| set("EDITOR")) else {
        bail!("no editor is set: set EDITOR, or name a file with --body");
    };
    let file = std::env::temp_dir().join(format!("rehop-edit-{:016x}", rand::random::<u64>()));
    let edited = edit_file(&editor, &file, original);
    if stop.is_cancelled() && edited.as_ref().is_ok_and(|edited| edited != original) {
        output::notice(&format!(
            "the edited body is kept in {0}; to send it, name it with --body {0}",
            file.display()
        ));
        return edited;
    }
    let _ = fs::remove_file(&file);
    if stop.is_cancelled() {
        return Err(ParkedError::Stopped.into());
    }
    edited
}

fn edit_file(editor: &str, file: &Path, original: &[u8]) -> anyhow::Result<Vec<u8>> {
    let what = || format!("cannot edit {}", file.display());
    let mut opened = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .with_context(what)?;
    opened.write_all(original).with_context(what)?;
    drop(opened);
    // As git does: the variable may hold arguments.
    let status = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(file)
        .status()
        .with_context(what)?;
    if !status.success() {
        bail!("the editor ended with an error; nothing was sent");
    }
    fs::read(file).with_context(what)
}
