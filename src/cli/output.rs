//! What the tool prints.

use std::io::{self, ErrorKind, Write};

use anyhow::Context;
use comfy_table::{ContentArrangement, Table, presets};

/// Prints to standard output. A reader that has seen enough, such as `head`, is no error.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let written =
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.write_all(b"\n")).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write to standard output"),
        _ => Ok(()),
    }
}

pub(super) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&serde_json::to_string_pretty(value)?)
}

/// One line, with its causes, to standard error.
pub(super) fn error(error: &anyhow::Error) {
    let line = format!("{error:#}").replace('\n', " ");
    // There is no other place to say that standard error is closed.
    let _ = writeln!(io::stderr(), "error: {line}");
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
