//! Plays a script that is written by hand. It has to show the same on both sides, and then a test
//! may say what that is.

use rehop_simulator::Version;

use crate::bench::{bench, name};
use crate::check::Verdict;
use crate::lockstep::Pair;
use crate::report::side_by_side;
use crate::script::{Index, Script, Step};
use crate::seen::{Saw, Stream};

/// What was seen.
pub(crate) struct Played {
    version: Version,
    pairs: Vec<Pair>,
}

/// Plays a script on the broker that all tests share.
pub(crate) async fn play(
    topology: impl Into<Vec<Step>>,
    steps: impl IntoIterator<Item = Step>,
) -> Played {
    let script = Script { topology: topology.into(), steps: steps.into_iter().collect() };
    let bench = bench().await;
    let version = bench.version;
    match bench.check(&script).await.unwrap() {
        Verdict::Same { seen: pairs, .. } => Played { version, pairs },
        Verdict::Different(pairs) => {
            panic!("{} shows a difference\n{}", name(version), side_by_side(&pairs))
        }
        Verdict::TooSlow => panic!("{} was too slow for\n{script}", name(version)),
    }
}

impl Played {
    /// The one for this version: 3.10, 4.0, 4.3.
    pub(crate) fn by_version<T>(&self, [v3_10, v4_0, v4_3]: [T; 3]) -> T {
        match self.version {
            Version::V3_10 => v3_10,
            Version::V4_0 => v4_0,
            Version::V4_3 => v4_3,
        }
    }

    /// Every message that came to a client while the script lasted, in order.
    pub(crate) fn came(&self) -> Vec<String> {
        let saws = self
            .pairs
            .iter()
            .filter(|pair| drained(pair).is_none())
            .flat_map(|pair| pair.real.values().flatten());
        let message = |saw: &Saw| match saw {
            Saw::Delivered(copy) | Saw::Got { copy, .. } => Some(copy.message.clone()),
            _ => None,
        };
        saws.filter_map(message).collect()
    }

    /// How often a message came to a client while the script lasted.
    pub(crate) fn deliveries(&self, message: &str) -> usize {
        self.came().iter().filter(|came| *came == message).count()
    }

    /// What was left in a queue at the end, in order.
    pub(crate) fn left(&self, queue: Index) -> Vec<String> {
        let saws = self
            .pairs
            .iter()
            .filter(|pair| drained(pair) == Some(queue))
            .flat_map(|pair| pair.real.values().flatten());
        let message = |saw: &Saw| match saw {
            Saw::Delivered(copy) => Some(copy.message.clone()),
            _ => None,
        };
        saws.filter_map(message).collect()
    }

    /// With which code and text channels and connections were closed, in order.
    pub(crate) fn closed(&self) -> Vec<String> {
        let text = |saw: &Saw| match saw {
            Saw::Closed { code, text } => Some(format!("{code} {text}")),
            _ => None,
        };
        self.pairs.iter().flat_map(|pair| pair.real.values().flatten()).filter_map(text).collect()
    }

    /// How many publishes the broker did not take.
    pub(crate) fn refused(&self) -> usize {
        self.pairs
            .iter()
            .flat_map(|pair| pair.real.values().flatten())
            .filter(|saw| **saw == Saw::Refused)
            .count()
    }

    /// A header, as it was shown each time that the message came or was taken out at the end.
    pub(crate) fn header(&self, message: &str, header: &str) -> Vec<String> {
        let value = |saw: &Saw| match saw {
            Saw::Delivered(copy) | Saw::Got { copy, .. } if copy.message == message => {
                Some(copy.properties.get(header).cloned().unwrap_or_else(|| "-".to_owned()))
            }
            _ => None,
        };
        self.pairs.iter().flat_map(|pair| pair.real.values().flatten()).filter_map(value).collect()
    }

    /// How many subscriptions the broker ended.
    pub(crate) fn cancelled(&self) -> usize {
        let streams = self.pairs.iter().flat_map(|pair| &pair.real);
        let ends = streams.filter(|(stream, _)| matches!(stream, Stream::Subscription(..)));
        ends.flat_map(|(_, saws)| saws).filter(|saw| **saw == Saw::Cancelled).count()
    }
}

/// The queue that a step took everything out of.
fn drained(pair: &Pair) -> Option<Index> {
    match pair.steps.as_slice() {
        [Step::Subscribe { tag: 900, queue, .. }] => Some(*queue),
        _ => None,
    }
}
