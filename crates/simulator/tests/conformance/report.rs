//! Shows where the simulator and a real broker differ.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::lockstep::Pair;
use crate::seen::Saw;

/// What both sides saw, step by step, with the first difference marked.
pub(crate) fn side_by_side(pairs: &[Pair]) -> String {
    let mut report = String::new();
    for pair in pairs {
        match pair.steps.as_slice() {
            [step] => writeln!(report, "  {step}").unwrap(),
            _ => writeln!(report, "  the topology is made").unwrap(),
        }
        let is_same = pair.simulated == pair.real;
        let streams = pair.simulated.keys().chain(pair.real.keys()).collect::<BTreeSet<_>>();
        for stream in streams {
            let (simulated, real) = (pair.simulated.get(stream), pair.real.get(stream));
            if simulated == real {
                for saw in simulated.into_iter().flatten().filter(|saw| !is_dull(saw)) {
                    writeln!(report, "      {stream}: {saw}").unwrap();
                }
                continue;
            }
            let none = Vec::new();
            let (simulated, real) = (simulated.unwrap_or(&none), real.unwrap_or(&none));
            for at in 0..simulated.len().max(real.len()) {
                let text =
                    |saw: Option<&Saw>| saw.map_or_else(|| "-".to_owned(), ToString::to_string);
                if simulated.get(at) == real.get(at) {
                    writeln!(report, "      {stream}: {}", text(simulated.get(at))).unwrap();
                } else {
                    writeln!(report, "   != {stream}: the simulator: {}", text(simulated.get(at)))
                        .unwrap();
                    writeln!(report, "      {stream}: the broker:    {}", text(real.get(at)))
                        .unwrap();
                }
            }
        }
        if !is_same {
            break;
        }
    }
    report
}

fn is_dull(saw: &Saw) -> bool {
    matches!(saw, Saw::Done | Saw::Subscribed | Saw::Confirmed)
}
