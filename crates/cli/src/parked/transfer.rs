//! `rehop parked export` and `rehop parked import`.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Cursor, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use rehop_operator::format;
use rehop_operator::parked::{Exported, ImportPlan, ImportRequest, Imported, ParkedError};
use serde_json::json;

use super::list::{Scan, scan};
use super::progress::Printer;
use super::select::{FilterArgs, PlaceArgs};
use super::text;
use crate::options::Options;
use crate::{exit, input, output};

#[derive(Debug, clap::Args)]
pub(super) struct Export {
    #[command(flatten)]
    place: PlaceArgs,
    /// Look at the first N messages of the queue, or at `all`
    #[arg(long, value_name = "N", default_value = "all", value_parser = scan)]
    scan: Scan,
    /// Export what mask.headers and mask.json hide
    ///
    /// Messages with masked values cannot be imported.
    #[arg(long)]
    reveal: bool,
    /// Write to this new file, which only this user can read, not to standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    filter: FilterArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct Import {
    #[command(flatten)]
    place: PlaceArgs,
    /// The file of an export, or - for standard input
    ///
    /// Standard input, a pipe or a device is read into memory.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Publish the messages; without it, check the file
    ///
    /// The check covers the file and what the import needs, and says how many messages would be
    /// published.
    #[arg(long)]
    apply: bool,
    /// Why, for the log
    #[arg(long, value_name = "TEXT", requires = "apply")]
    why: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn export(args: Export, options: &Options) -> anyhow::Result<ExitCode> {
    let (parked, _) = super::open(args.place.place(), options).await?;
    let parked = if args.reveal { parked.reveal() } else { parked };
    let filter = args.filter.filter();
    let part = args.output.as_deref().map(Part::create).transpose()?;
    let mut out: Box<dyn Write + Send> = match &part {
        Some(part) => Box::new(BufWriter::new(&part.written)),
        None => Box::new(BufWriter::new(io::stdout())),
    };
    let (mut count, mut written, mut printer) = (0, Ok(()), Printer::new());
    let mut write = |exported: &Exported| -> anyhow::Result<()> {
        let line = text::json_line(exported)?;
        Ok(writeln!(out, "{line}")?)
    };
    let exported = parked
        .export(&filter, args.scan.0, |exported| {
            written = write(&exported);
            count += u64::from(written.is_ok());
            if args.output.is_some() {
                printer.exported(count);
            }
            written.is_ok()
        })
        .await;
    printer.end();
    let written = written.and_then(|()| Ok(out.flush()?));
    match written {
        // Whoever reads has seen enough, as `head` has.
        Err(error) if is_broken_pipe(&error) => return Ok(ExitCode::SUCCESS),
        Err(error) => return Err(error.context(unwritten(part.as_ref()))),
        Ok(()) => {}
    }
    if exported.is_err() {
        let place = part.as_ref().map(|part| format!("; they are in {}", part.path.display()));
        output::notice(&format!(
            "{} messages were exported; the export is not complete{}",
            format::count(count),
            place.unwrap_or_default()
        ));
    }
    exported?;
    if let (Some(file), Some(part)) = (&args.output, &part) {
        part.become_whole(file).with_context(|| unwritten(Some(part)))?;
        output::print(&format!(
            "{} messages exported to {}",
            format::count(count),
            file.display()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What could not be written. The messages are still in their queue.
fn unwritten(part: Option<&Part>) -> String {
    match part {
        Some(part) => {
            let path = part.path.display();
            format!("cannot write {path}, which is incomplete: delete it, and export again")
        }
        None => "cannot write the export: it is incomplete".to_owned(),
    }
}

/// A file that is being written. It has another name until it is whole, so that nobody takes a part
/// of an export for all of it, whatever ends the export.
struct Part {
    path: PathBuf,
    written: File,
}

impl Part {
    /// A new file for this user alone: the mask hides only what somebody has thought of.
    fn create(file: &Path) -> anyhow::Result<Self> {
        let mut path = file.as_os_str().to_owned();
        path.push(".incomplete");
        let path = PathBuf::from(path);
        let create =
            |path: &Path| File::options().write(true).create_new(true).mode(0o600).open(path);
        is_new(file).with_context(|| format!("cannot write {}", file.display()))?;
        let written = create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path, written })
    }

    /// All was written.
    fn become_whole(&self, file: &Path) -> io::Result<()> {
        self.written.sync_all()?;
        is_new(file)?;
        fs::rename(&self.path, file)
    }
}

fn is_new(file: &Path) -> io::Result<()> {
    match file.symlink_metadata() {
        Ok(_) => Err(ErrorKind::AlreadyExists.into()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

pub(super) async fn import(args: Import, options: &Options) -> anyhow::Result<ExitCode> {
    // The messages are read twice, so what can be read only once is kept. Read before `open`: from
    // then on a signal no longer ends the process while it waits for input.
    let spooled =
        input::spool(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let (parked, stop) = super::open(args.place.place(), options).await?;
    let open = || lines(&args.file, spooled.as_deref());
    let ImportPlan { to_import, already_there, .. } = parked.check_import(open()?).await?;
    if !args.apply {
        output::print(&if args.json {
            let queue = parked.queue();
            text::json(
                &json!({ "queue": queue, "to_import": to_import, "already_there": already_there }),
            )?
        } else {
            let known = match already_there {
                0 => String::new(),
                count => format!("; {} are already there", format::count(count)),
            };
            let (new, queue) = (format::count(to_import), text::line(parked.queue()));
            format!(
                "{new} messages would be imported into {queue}{known}. Nothing was done; --apply does it"
            )
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut request = ImportRequest::default();
    request.why.clone_from(&args.why);
    let imported = parked.import(&request, open()?, stop.cancelled()).await?;
    if !imported.is_stopped {
        compare(to_import + already_there, &imported)?;
    }
    if args.json {
        output::print(&text::json(&imported)?)?;
    } else {
        let (new, known) =
            (format::count(imported.imported), format::count(imported.already_there));
        let stopped = if imported.is_stopped { "\nstopped: it was told to stop" } else { "" };
        output::print(&format!("{new} imported, {known} were already there{stopped}"))?;
    }
    Ok(if imported.is_stopped { ExitCode::from(exit::UNFINISHED) } else { ExitCode::SUCCESS })
}

/// Checks that the import has read as many messages as the check before it.
fn compare(checked: u64, imported: &Imported) -> anyhow::Result<()> {
    let read = imported.imported + imported.already_there;
    if read != checked {
        bail!(
            "the file has changed: {} messages were checked, and then {} were read and {} of them imported",
            format::count(checked),
            format::count(read),
            format::count(imported.imported)
        );
    }
    Ok(())
}

type Lines<'a> = Box<dyn Iterator<Item = Result<Exported, ParkedError>> + Send + 'a>;

fn lines<'a>(file: &Path, spooled: Option<&'a [u8]>) -> anyhow::Result<Lines<'a>> {
    let reader: Box<dyn BufRead + Send + 'a> = match spooled {
        Some(bytes) => Box::new(Cursor::new(bytes)),
        None => Box::new(BufReader::new(
            File::open(file).with_context(|| format!("cannot read {}", file.display()))?,
        )),
    };
    Ok(Box::new((1..).zip(reader.lines()).map(|(line, text)| {
        let bad = |problem: String| ParkedError::BadLine { line, problem };
        let text = text.map_err(|error| bad(error.to_string()))?;
        // serde's message quotes no values but names of fields, which it also escapes.
        serde_json::from_str(&text).map_err(|error| {
            bad(format!("it is not an exported message, at column {}", error.column()))
        })
    })))
}

#[cfg(test)]
mod tests {
    use rehop_operator::parked::Imported;

    use super::compare;

    #[test]
    fn an_import_that_read_another_number_of_messages_than_its_check_fails() {
        let mut imported = Imported::default();
        (imported.imported, imported.already_there) = (2, 1);
        assert!(compare(3, &imported).is_ok());
        let error = compare(4, &imported).unwrap_err().to_string();
        assert!(
            error.contains("4 messages were checked, and then 3 were read and 2 of them imported"),
            "{error}"
        );
    }
}
