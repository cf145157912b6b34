//! The command line.

use crate::Result;
use crate::effort::Effort;

pub(crate) const USAGE: &str = "\
usage: throughput [--quick] [--rounds N] [CASE]...

cases (all of them if none is named):
  success     preloaded messages are handled
  queues      the same in one queue of a service that consumes 1, 10 and 100
  wait        preloaded messages wait once
  requeue     preloaded messages are requeued up to the delivery limit, and parked
  steady      messages arrive at fixed rates and wait once; finds the highest sustained rate
  strategies  preloaded messages wait once, in each way
  rates       the case steady for the ladder and native
  spread      messages wait on the ladder, each for a time of its own
  parked      parked messages are listed, and then replayed
  tracing     what telemetry costs

--quick takes a tenth of the messages and fewer rounds: enough to see that it runs, not enough to compare. --rounds N counts N
rounds; steady, rates and spread ignore it.";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    Success,
    Queues,
    Wait,
    Requeue,
    Steady,
    Strategies,
    Rates,
    Spread,
    Parked,
    Tracing,
}

impl Case {
    const ALL: [(&str, Self); 10] = [
        ("success", Self::Success),
        ("queues", Self::Queues),
        ("wait", Self::Wait),
        ("requeue", Self::Requeue),
        ("steady", Self::Steady),
        ("strategies", Self::Strategies),
        ("rates", Self::Rates),
        ("spread", Self::Spread),
        ("parked", Self::Parked),
        ("tracing", Self::Tracing),
    ];
}

#[derive(Debug)]
pub(crate) struct Arguments {
    /// In the order in which they run.
    pub(crate) cases: Vec<Case>,
    pub(crate) effort: Effort,
}

impl Arguments {
    /// `None` for `--help`.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>> {
        let (mut named, mut effort, mut rounds) = (Vec::new(), Effort::FULL, None);
        while let Some(word) = words.next() {
            match word.as_str() {
                // Added by cargo.
                "--bench" => {}
                "--quick" => effort = Effort::QUICK,
                "--rounds" => {
                    let number = words
                        .next()
                        .and_then(|number| number.parse().ok())
                        .filter(|number| *number > 0);
                    rounds =
                        Some(number.ok_or_else(|| {
                            format!("--rounds needs a number above 0\n\n{USAGE}")
                        })?);
                }
                "--help" | "-h" => return Ok(None),
                name => match Case::ALL.iter().find(|(known, _)| *known == name) {
                    Some((_, case)) => named.push(*case),
                    None => return Err(format!("unknown argument {name:?}\n\n{USAGE}").into()),
                },
            }
        }
        if let Some(rounds) = rounds {
            (effort.rounds, effort.tracing_rounds) = (rounds, rounds);
        }
        let chosen = |case: &Case| named.is_empty() || named.contains(case);
        let cases = Case::ALL.iter().map(|(_, case)| *case).filter(chosen).collect();
        Ok(Some(Self { cases, effort }))
    }
}
