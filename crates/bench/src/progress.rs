//! One line that says what is running, on a terminal only.

use std::io::{IsTerminal, Write, stderr};
use std::time::Instant;

pub(crate) struct Progress {
    started: Instant,
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), is_terminal: stderr().is_terminal() }
    }

    pub(crate) fn say(&self, text: &str) {
        self.write(&format!("[{:>4} s] {text}", self.started.elapsed().as_secs()));
    }

    /// Clears the line before a result is printed.
    pub(crate) fn clear(&self) {
        self.write("");
    }

    fn write(&self, line: &str) {
        if self.is_terminal {
            // Measuring goes on if the terminal has been closed.
            let _ = write!(stderr(), "\r\x1b[2K{line}");
        }
    }
}
