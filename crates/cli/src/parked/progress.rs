//! Progress on standard error: often on a terminal, every few seconds elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use rehop_operator::format;
use rehop_operator::parked::{Fates, ListRequest, Listing, Parked, ParkedError, Progress, Tally};

use crate::output;

pub(super) struct Printer {
    is_terminal: bool,
    every: Duration,
    last: Option<Instant>,
}

impl Printer {
    pub(super) fn new() -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self {
            is_terminal,
            every: Duration::from_millis(if is_terminal { 250 } else { 5_000 }),
            last: None,
        }
    }

    pub(super) fn looked(&mut self, looked_at: u64, wanted: u64) {
        self.show_on_terminal(|| {
            format!("looked at {} of {}", format::count(looked_at), format::count(wanted))
        });
    }

    pub(super) fn exported(&mut self, count: u64) {
        self.show_on_terminal(|| format!("{} exported", format::count(count)));
    }

    pub(super) fn moved(&mut self, progress: &Progress) {
        self.show(|| moved(&progress.tally));
    }

    pub(super) fn replayed(&mut self, progress: &Progress) {
        self.show(|| replayed(&progress.tally, &progress.fates, progress.is_paused));
    }

    /// A look changes nothing, so a log need not say how far it came.
    fn show_on_terminal(&mut self, line: impl FnOnce() -> String) {
        if self.is_terminal {
            self.show(line);
        }
    }

    fn show(&mut self, line: impl FnOnce() -> String) {
        let since = self.last.get_or_insert_with(Instant::now);
        if since.elapsed() < self.every {
            return;
        }
        *since = Instant::now();
        let line = line();
        // If standard error is closed, there is nowhere to report it.
        let _ = if self.is_terminal {
            write!(io::stderr(), "\r{line}\u{1b}[K")
        } else {
            writeln!(io::stderr(), "{line}")
        };
    }

    pub(super) fn end(&mut self) {
        if self.is_terminal && self.last.is_some() {
            let _ = write!(io::stderr(), "\r\u{1b}[K");
        }
    }
}

/// Lists the messages, and prints its progress.
pub(super) async fn list_with_progress(
    parked: &Parked,
    request: &ListRequest,
) -> Result<Listing, ParkedError> {
    let mut printer = Printer::new();
    let wanted = |depth: u64| request.scan.map_or(depth, |scan| scan.min(depth));
    let listing = parked
        .list_observed(request, |seen| printer.looked(seen.looked_at, wanted(seen.depth)))
        .await;
    printer.end();
    listing
}

fn moved(tally: &Tally) -> String {
    format!("{} of {} moved", format::count(tally.moved), format::count(tally.snapshot))
}

pub(super) fn replayed(tally: &Tally, fates: &Fates, is_paused: bool) -> String {
    format!(
        "{}; {} handled, {} parked again, {} waiting, {} discarded, {} unknown{}",
        moved(tally),
        format::count(fates.handled),
        format::count(fates.parked_again),
        format::count(fates.waiting),
        format::count(fates.discarded),
        format::count(fates.unknown()),
        if is_paused { "; paused, the queue is long" } else { "" }
    )
}

/// Says how many copies may exist twice after an operation has failed, unless its error says so.
pub(super) fn report_unconfirmed(tally: &Tally, error: &ParkedError) {
    if tally.unconfirmed > 0 && !matches!(error, ParkedError::CopyNotAccepted { .. }) {
        output::notice(&unconfirmed(tally.unconfirmed));
    }
}

fn unconfirmed(copies: u64) -> String {
    format!(
        "copies sent and not confirmed, so that their messages may exist twice: {}",
        format::count(copies)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_shows_every_fate() {
        let (mut tally, mut fates) = (Tally::default(), Fates::default());
        (tally.snapshot, tally.moved) = (1_500, 15);
        (fates.sent, fates.handled, fates.parked_again, fates.waiting, fates.discarded) =
            (15, 1, 2, 3, 4);
        let expected =
            "15 of 1,500 moved; 1 handled, 2 parked again, 3 waiting, 4 discarded, 5 unknown";
        assert_eq!(replayed(&tally, &fates, false), expected);
        assert_eq!(
            replayed(&tally, &fates, true),
            format!("{expected}; paused, the queue is long")
        );
        assert_eq!(moved(&tally), "15 of 1,500 moved");
        assert!(unconfirmed(1_200).ends_with(" may exist twice: 1,200"));
    }
}
