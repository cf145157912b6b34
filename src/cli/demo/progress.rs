//! What is seen while the demo runs, on standard error: a live line on a terminal, plain lines elsewhere.

use std::time::{Duration, Instant};

use console::Term;
use indicatif::{ProgressBar, ProgressStyle};

/// How often a plain line is written.
const PLAIN_EVERY: Duration = Duration::from_secs(2);

pub(super) enum Progress {
    /// For machines.
    Silent,
    Live(ProgressBar),
    Plain(Plain),
}

pub(super) struct Plain {
    of: u64,
    written: Option<Instant>,
}

impl Progress {
    pub(super) fn new(silent: bool, of: u64) -> Self {
        if silent {
            Self::Silent
        } else if Term::stderr().is_term() {
            let bar = ProgressBar::new(of);
            let style = ProgressStyle::with_template("{spinner} {bar:24} {pos}/{len} ended  {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            Self::Live(bar)
        } else {
            Self::Plain(Plain { of, written: None })
        }
    }

    /// Something worth a line of its own.
    pub(super) fn event(&self, text: &str) {
        match self {
            Self::Silent => {}
            Self::Live(bar) => bar.suspend(|| eprintln!("{text}")),
            Self::Plain(_) => eprintln!("{text}"),
        }
    }

    /// How far it is.
    pub(super) fn update(&mut self, ended: u64, text: String) {
        match self {
            Self::Silent => {}
            Self::Live(bar) => {
                bar.set_position(ended);
                bar.set_message(text);
                bar.tick();
            }
            Self::Plain(plain) if plain.written.is_some_and(|written| written.elapsed() < PLAIN_EVERY) => {}
            Self::Plain(plain) => {
                plain.written = Some(Instant::now());
                eprintln!("  {ended}/{} ended, {text}", plain.of);
            }
        }
    }

    pub(super) fn finish(&self) {
        if let Self::Live(bar) = self {
            bar.finish_and_clear();
        }
    }
}
