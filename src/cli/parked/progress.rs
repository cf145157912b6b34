//! Progress on standard error: often on a terminal, every few seconds elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use rehop::parked::Progress;

use super::text::number;

pub(super) struct Printer {
    is_terminal: bool,
    every: Duration,
    last: Option<Instant>,
}

impl Printer {
    pub(super) fn new() -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self { is_terminal, every: Duration::from_millis(if is_terminal { 250 } else { 5_000 }), last: None }
    }

    pub(super) fn show(&mut self, progress: &Progress) {
        let since = self.last.get_or_insert_with(Instant::now);
        if since.elapsed() < self.every {
            return;
        }
        *since = Instant::now();
        let (tally, fates) = (&progress.tally, &progress.fates);
        let paused = if progress.is_paused { "; paused, the queue is long" } else { "" };
        let line = format!(
            "{} of {} moved; {} handled, {} parked again, {} waiting, {} unknown{paused}",
            number(tally.moved),
            number(tally.snapshot),
            number(fates.handled),
            number(fates.parked_again),
            number(fates.waiting),
            number(fates.unknown()),
        );
        // If standard error is closed, there is nowhere to report it.
        let _ =
            if self.is_terminal { write!(io::stderr(), "\r{line}\u{1b}[K") } else { writeln!(io::stderr(), "{line}") };
    }

    pub(super) fn end(&mut self) {
        if self.is_terminal && self.last.is_some() {
            let _ = write!(io::stderr(), "\r\u{1b}[K");
        }
    }
}
