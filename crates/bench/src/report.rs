//! The runs of one job, side by side.

use crate::audit::Audit;
use crate::distribution::Distribution;
use crate::run::Run;
use crate::turns::Round;

pub(crate) struct Report {
    title: String,
    /// The first is the one that the others are compared with.
    sides: Vec<Runs>,
}

/// All runs of one side.
struct Runs {
    name: String,
    /// One for each counted round.
    rates: Vec<f64>,
    /// In microseconds.
    cpu: Vec<f64>,
    broker_cpu: Vec<f64>,
    messages: usize,
    lateness: Vec<f64>,
    audit: Audit,
}

impl Report {
    pub(crate) fn new(title: String, sides: impl Iterator<Item = impl Into<String>>) -> Self {
        let empty = |name| Runs {
            name,
            rates: Vec::new(),
            cpu: Vec::new(),
            broker_cpu: Vec::new(),
            messages: 0,
            lateness: Vec::new(),
            audit: Audit::default(),
        };
        Self { title, sides: sides.map(|name| empty(name.into())).collect() }
    }

    /// Adds a run. Of a warm-up, only the audit counts.
    pub(crate) fn add(&mut self, side: usize, round: Round, run: Run) {
        let runs = &mut self.sides[side];
        if round != Round::WarmUp {
            runs.rates.push(run.rate());
            runs.cpu.extend(run.cpu.map(|cpu| cpu.as_secs_f64() * 1e6));
            runs.broker_cpu.extend(run.broker_cpu.map(|cpu| cpu.as_secs_f64() * 1e6));
            runs.messages = run.messages;
            runs.lateness.extend(run.lateness);
        }
        runs.audit.add(run.audit);
    }

    /// Prints medians, and the ratios of rates between runs of the same round: above 1 is faster
    /// than the first side. Returns how many messages did not end as they should.
    pub(crate) fn print(&self) -> usize {
        self.print_beside(|_| 0)
    }

    /// The same with a yardstick for each side.
    pub(crate) fn print_beside(&self, yardstick: impl Fn(usize) -> usize) -> usize {
        let has_waits = self.sides.iter().any(|runs| !runs.lateness.is_empty());
        let late = if has_waits { "   late p50 p99 max (ms)" } else { "" };
        println!("\n{}", self.title);
        println!(
            "  {:<44} {:>9} {:>11}   {:^17}   {:>6} {:>6}{late}  {:>5} {:>5}",
            "", "seconds", "messages/s", "ratio min med max", "client", "broker", "lost", "again"
        );
        for (side, runs) in self.sides.iter().enumerate() {
            runs.print(&self.sides[yardstick(side)]);
        }
        // All messages were there from the start, so each should have ended.
        self.sides.iter().map(|runs| runs.audit.failed() + runs.audit.unfinished.len()).sum()
    }
}

impl Report {
    /// Prints the ratio of two sides' rates.
    pub(crate) fn print_ratio(&self, name: &str, side: usize, other: usize) {
        let ratio = self.sides[side].ratio(&self.sides[other]);
        println!("  {name:<44} {:>38.2} {:>5.2} {:>5.2}", ratio.min(), ratio.median(), ratio.max());
    }
}

impl Runs {
    /// Between runs of the same round.
    fn ratio(&self, yardstick: &Self) -> Distribution {
        Distribution::of(self.rates.iter().zip(&yardstick.rates).map(|(rate, other)| rate / other))
    }

    fn print(&self, yardstick: &Self) {
        let rate = Distribution::of(self.rates.iter().copied()).median();
        let ratio = self.ratio(yardstick);
        let cpu = Distribution::of(self.cpu.iter().copied()).median();
        let broker_cpu = Distribution::of(self.broker_cpu.iter().copied()).median();
        print!("  {:<44} {:>9.2} {rate:>11.0}", self.name, self.messages as f64 / rate);
        print!(
            "   {:>5.2} {:>5.2} {:>5.2}   {cpu:>6.0} {broker_cpu:>6.0}",
            ratio.min(),
            ratio.median(),
            ratio.max()
        );
        if !self.lateness.is_empty() {
            let late = Distribution::of(self.lateness.iter().copied());
            print!("   {:>6.0} {:>6.0} {:>7.0}", late.median(), late.quantile(0.99), late.max());
        }
        println!("  {:>5} {:>5}", self.audit.lost.len(), self.audit.again);
        print!("{}", self.audit);
    }
}
