//! Makes a scenario that breaks a promise as short as it can be while it still breaks it.

use crate::check::{Promise, check};
use crate::run::run;
use crate::scenario::Scenario;

impl Scenario {
    /// The shortest scenario found that breaks the same promise, by leaving out faults, messages
    /// and attempts.
    pub fn shrunk(&self, promise: Promise) -> Self {
        let mut shortest = self.clone();
        loop {
            let candidates = shortest.shorter();
            let Some(shorter) = candidates.into_iter().find(|scenario| scenario.breaks(promise))
            else {
                return shortest;
            };
            shortest = shorter;
        }
    }

    fn breaks(&self, promise: Promise) -> bool {
        let outcome = run(self);
        outcome.is_ok_and(|outcome| {
            check(self, &outcome).iter().any(|broken| broken.promise == promise)
        })
    }

    /// This scenario with something left out, the largest parts first.
    fn shorter(&self) -> Vec<Self> {
        let mut shorter = Vec::new();
        for part in parts(self.messages.len()) {
            let mut scenario = self.clone();
            scenario.messages.drain(part);
            shorter.push(scenario);
        }
        for part in parts(self.faults.len()) {
            let mut scenario = self.clone();
            scenario.faults.drain(part);
            shorter.push(scenario);
        }
        for number in 0..self.replays.len() {
            let mut scenario = self.clone();
            scenario.replays.remove(number);
            shorter.push(scenario);
        }
        for (number, message) in self.messages.iter().enumerate() {
            if message.attempts.len() > 1 {
                let mut scenario = self.clone();
                scenario.messages[number].attempts.remove(0);
                shorter.push(scenario);
            }
        }
        shorter
    }
}

/// Ranges of a list: its halves, its quarters, and so on down to single elements.
fn parts(count: usize) -> Vec<std::ops::Range<usize>> {
    let mut parts = Vec::new();
    let mut size = count / 2;
    while size > 0 {
        parts.extend((0..count).step_by(size).map(|start| start..(start + size).min(count)));
        size /= 2;
    }
    if count == 1 {
        parts.push(0..1);
    }
    parts
}
