//! The printed row of one side at one rate.

use super::passage::Passage;
use crate::distribution::Distribution;

pub(crate) struct Row {
    rate: u32,
    side: &'static str,
    passages: Vec<Passage>,
}

impl Row {
    pub(crate) fn new(rate: u32, side: &'static str) -> Self {
        Self { rate, side, passages: Vec::new() }
    }

    pub(crate) fn add(&mut self, passage: Passage) {
        self.passages.push(passage);
    }

    /// Whether the rate was sustained in every run.
    pub(crate) fn is_sustained(&self) -> bool {
        self.passages.iter().all(|passage| passage.flow.is_sustained)
    }

    pub(crate) fn print_heading() {
        println!(
            "  {:>6}  {:<24} {:>9} {:>10} {:>9}   late p50 p99 max (ms)    {:>9}  {:>5} {:>5}",
            "rate/s", "", "arrived/s", "finished/s", "backlog/s", "sustained", "lost", "again"
        );
    }

    /// Prints the mean rates of all runs, and the lateness over all their messages. Returns how
    /// many messages did not end as they should.
    pub(crate) fn print(&self) -> usize {
        let mean = |of: fn(&Passage) -> f64| {
            self.passages.iter().map(of).sum::<f64>() / self.passages.len() as f64
        };
        let late = Distribution::of(
            self.passages.iter().flat_map(|passage| passage.lateness.iter().copied()),
        );
        let audits = || self.passages.iter().map(|passage| &passage.audit);
        println!(
            "  {:>6}  {:<24} {:>9.0} {:>10.0} {:>9.0}   {:>6.0} {:>6.0} {:>7.0}    {:>9}  {:>5} {:>5}",
            self.rate,
            self.side,
            mean(|passage| passage.flow.arrived),
            mean(|passage| passage.flow.finished),
            mean(|passage| passage.flow.backlog_growth),
            late.median(),
            late.quantile(0.99),
            late.max(),
            if self.is_sustained() { "yes" } else { "no" },
            audits().map(|audit| audit.lost.len()).sum::<usize>(),
            audits().map(|audit| audit.again).sum::<usize>()
        );
        audits().for_each(|audit| print!("{audit}"));
        audits().map(|audit| audit.failed()).sum()
    }
}
