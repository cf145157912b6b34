//! `rehop parked export` and `rehop parked import`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Cursor, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use rehop::parked::{Exported, ParkedError};

use super::list::{Window, window};
use super::select::{FilterArgs, PlaceArgs};
use super::{STOPPED, text};
use crate::cli::options::Options;
use crate::cli::{input, output, signals};

#[derive(Debug, clap::Args)]
pub(super) struct Export {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Look at this many messages from the head of the queue, or at `all`
    #[arg(long, value_name = "N", default_value = "all", value_parser = window)]
    window: Window,
    /// Export what mask.headers and mask.json hide. Without it such messages cannot be imported
    #[arg(long)]
    reveal: bool,
    /// Write to this file, which must not exist. Default: standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Import {
    #[command(flatten)]
    place: PlaceArgs,
    /// The file of an export, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Publish the messages to the parked queue. Without this the command only checks the file
    #[arg(long)]
    apply: bool,
}

pub(super) async fn export(args: Export, options: &Options) -> anyhow::Result<ExitCode> {
    let parked = super::open(&args.place, options, args.reveal).await?;
    let mut written = Ok(());
    let mut out: Box<dyn Write + Send> = match &args.output {
        Some(file) => Box::new(File::create_new(file).with_context(|| format!("cannot write {}", file.display()))?),
        None => Box::new(BufWriter::new(io::stdout())),
    };
    let mut write = |exported: Exported| -> anyhow::Result<()> {
        let line = text::json_line(&exported)?;
        Ok(writeln!(out, "{line}")?)
    };
    let count = parked
        .export(&args.filter.filter(), args.window.0, |exported| {
            written = write(exported);
            written.is_ok()
        })
        .await?;
    let written = written.and_then(|()| Ok(out.flush()?));
    match written {
        // Whoever reads has seen enough, as `head` has.
        Err(error) if is_broken_pipe(&error) => return Ok(ExitCode::SUCCESS),
        Err(error) => return Err(error.context("cannot write the export")),
        Ok(()) => {}
    }
    if let Some(file) = &args.output {
        output::print(&format!("{} messages exported to {}", text::number(count), file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

pub(super) async fn import(args: Import, options: &Options) -> anyhow::Result<ExitCode> {
    let parked = super::open(&args.place, options, false).await?;
    // Standard input can be read only once, so it is kept.
    let spooled = if args.file.as_os_str() == "-" { Some(input::read(&args.file)?) } else { None };
    let open = || lines(&args.file, spooled.as_deref());
    let mut count = 0;
    for message in open()? {
        let message: Exported = message?;
        message.check().map_err(|problem| ParkedError::BadLine { line: count + 1, problem })?;
        count += 1;
    }
    if !args.apply {
        output::print(&format!(
            "{} messages would be imported into {}. Nothing was done; --apply does it",
            text::number(count),
            text::line(parked.queue())
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let stop = signals::watch()?;
    let imported = parked.import(open()?, stop.cancelled()).await?;
    output::print(&format!(
        "{} imported, {} were already there",
        text::number(imported.imported),
        text::number(imported.already_there)
    ))?;
    Ok(if imported.is_stopped { ExitCode::from(STOPPED) } else { ExitCode::SUCCESS })
}

type Lines<'a> = Box<dyn Iterator<Item = Result<Exported, ParkedError>> + Send + 'a>;

fn lines<'a>(file: &Path, spooled: Option<&'a [u8]>) -> anyhow::Result<Lines<'a>> {
    let reader: Box<dyn BufRead + Send + 'a> = match spooled {
        Some(bytes) => Box::new(Cursor::new(bytes)),
        None => Box::new(BufReader::new(File::open(file).with_context(|| format!("cannot read {}", file.display()))?)),
    };
    Ok(Box::new((1..).zip(reader.lines()).map(|(line, text)| {
        let bad = |problem: String| ParkedError::BadLine { line, problem };
        let text = text.map_err(|error| bad(error.to_string()))?;
        // serde's message quotes no values but names of fields, which it also escapes.
        serde_json::from_str(&text)
            .map_err(|error| bad(format!("not an exported message, at column {}", error.column())))
    })))
}
