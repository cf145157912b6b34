//! Progress on standard error.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use tokio::time::Instant;

/// One line that is rewritten on a terminal; elsewhere a line every few seconds.
pub(crate) struct Progress {
    shown: bool,
    terminal: bool,
    started: Instant,
    updated: Option<Instant>,
}

impl Progress {
    const PLAIN_EVERY: Duration = Duration::from_secs(2);
    /// Back to the beginning of the line, and erase it.
    const REWRITE: &str = "\r\x1b[K";

    pub(crate) fn new(shown: bool) -> Self {
        Self {
            shown,
            terminal: shown && stderr().is_terminal(),
            started: Instant::now(),
            updated: None,
        }
    }

    pub(crate) fn event(&self, text: &str) {
        self.erase();
        if self.shown {
            eprintln!("{:5.1} s  {text}", self.started.elapsed().as_secs_f64());
        }
    }

    pub(crate) fn update(&mut self, text: &str) {
        self.erase();
        if self.terminal {
            eprint!("  {text}");
        } else if self.shown
            && self.updated.is_none_or(|updated| updated.elapsed() >= Self::PLAIN_EVERY)
        {
            self.updated = Some(Instant::now());
            eprintln!("  {text}");
        }
    }

    pub(crate) fn erase(&self) {
        if self.terminal {
            eprint!("{}", Self::REWRITE);
        }
    }
}
