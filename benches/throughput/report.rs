//! Rates, ratios and losses.

use std::collections::BTreeMap;
use std::time::Duration;

/// One run of one variant.
pub(crate) struct Run {
    pub(crate) messages: usize,
    pub(crate) took: Duration,
    pub(crate) lost: u64,
}

/// All runs of one job.
pub(crate) struct Report {
    title: String,
    yardstick: &'static str,
    order: Vec<String>,
    runs: BTreeMap<String, Vec<Run>>,
}

impl Report {
    /// `yardstick` names the variant that the others are compared with.
    pub(crate) fn new(title: String, yardstick: &'static str) -> Self {
        Self { title, yardstick, order: Vec::new(), runs: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, variant: &str, run: Run) {
        eprintln!("  {variant}: {:.2} s", run.took.as_secs_f64());
        if !self.order.iter().any(|known| known == variant) {
            self.order.push(variant.to_owned());
        }
        self.runs.entry(variant.to_owned()).or_default().push(run);
    }

    /// Prints medians, and ratios of rates: above 1 is faster than the yardstick. Returns the losses.
    pub(crate) fn print(&self) -> u64 {
        println!("\n{}", self.title);
        println!("  {:<44} {:>9} {:>11} {:>7} {:>5}", "", "seconds", "messages/s", "ratio", "lost");
        let yardstick = self.runs.get(self.yardstick).map(|runs| median_rate(runs));
        let mut lost = 0;
        for variant in &self.order {
            let Some(runs) = self.runs.get(variant) else { continue };
            let lost_here: u64 = runs.iter().map(|run| run.lost).sum();
            let rate = median_rate(runs);
            let seconds = runs.first().map_or(0.0, |run| run.messages as f64 / rate);
            let ratio = yardstick.map_or(f64::NAN, |yardstick| rate / yardstick);
            println!("  {variant:<44} {seconds:>9.2} {rate:>11.0} {ratio:>7.2} {lost_here:>5}");
            lost += lost_here;
        }
        lost
    }
}

fn median_rate(runs: &[Run]) -> f64 {
    let mut rates: Vec<_> = runs.iter().map(|run| run.messages as f64 / run.took.as_secs_f64()).collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
