//! What the tool prints.

use std::io::{self, ErrorKind, Write};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use comfy_table::{ContentArrangement, Table, presets};

use super::parked::text::line;

/// Prints to standard output. It is not an error if the reader closes the pipe early, as `head`
/// does.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.write_all(b"\n"))
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Prints what a process says at its end. It does not change how the process ends: the terminal may
/// be closed, or nobody may read it.
pub(super) fn print_at_end(text: String) {
    within_two_seconds(move || {
        if let Err(error) = print(&text) {
            tracing::warn!("{error:#}: {text}");
        }
    });
}

/// Writes in another thread, and goes on if that is held up.
fn within_two_seconds(write: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        write();
        // Nobody may be waiting any more.
        let _ = done.send(());
    });
    let _ = is_done.recv_timeout(Duration::from_secs(2));
}

pub(super) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&serde_json::to_string_pretty(value)?)
}

/// Prints a line to standard error, in addition to the command's output or instead of it.
pub(super) fn notice(text: &str) {
    // If standard error is closed, there is nowhere to report it.
    let _ = writeln!(io::stderr(), "{}", line(text));
}

/// Prints the error with its causes on one line to standard error. It may quote what a broker, an
/// endpoint or a message says, so nothing in it may command the terminal.
pub(super) fn error(error: &anyhow::Error) {
    let line = line(&with_causes(error).replace('\n', " "));
    within_two_seconds(move || {
        // If standard error is closed, there is nowhere to report it.
        let _ = writeln!(io::stderr(), "error: {line}");
    });
}

/// An error's text, and those of its causes that it does not contain: most of rehop's errors quote
/// what caused them.
fn with_causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// A table without frames, as wide as the terminal allows.
pub(super) fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_the_error_quotes_is_not_repeated() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot read the file: {0}; check its name")]
        struct Unreadable(#[source] io::Error);
        let unreadable = Unreadable(io::Error::other("it is not there"));
        let error = anyhow::Error::new(unreadable).context("cannot start");
        assert_eq!(
            with_causes(&error),
            "cannot start: cannot read the file: it is not there; check its name"
        );
    }
}
