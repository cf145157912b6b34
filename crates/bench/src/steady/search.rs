//! Finds the highest sustained rate by halving the gap to the lowest rate that is not sustained.

use std::fmt;

#[derive(Debug, Clone, Default)]
pub(crate) struct Search {
    sustained: u32,
    /// Rates that were not sustained. One below a sustained rate is noise and does not count.
    failed: Vec<u32>,
}

impl Search {
    pub(crate) fn learn(&mut self, rate: u32, is_sustained: bool) {
        if is_sustained {
            self.sustained = self.sustained.max(rate);
        } else {
            self.failed.push(rate);
        }
    }

    /// The rate to try next: twice the highest if none was too high.
    pub(crate) fn next(&self) -> u32 {
        match self.lowest_failed() {
            Some(failed) => (self.sustained + failed) / 2,
            None => self.sustained * 2,
        }
    }

    pub(crate) fn highest(&self) -> u32 {
        self.sustained
    }

    fn lowest_failed(&self) -> Option<u32> {
        self.failed.iter().copied().filter(|failed| *failed > self.sustained).min()
    }
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "highest sustained rate {}/s", self.sustained)?;
        match self.lowest_failed() {
            Some(failed) => write!(f, "; not {failed}/s"),
            None => f.write_str("; no tried rate was too high"),
        }
    }
}
