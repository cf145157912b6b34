//! How many messages and rounds, and for how long.

use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Counted rounds. In six rounds, three sides run once in each possible order.
    pub(crate) rounds: usize,
    /// More rounds, because differences of a few per cent have to show. In eight rounds, each of
    /// four variants runs twice at each position.
    pub(crate) tracing_rounds: usize,
    pub(crate) success: usize,
    pub(crate) wait: usize,
    pub(crate) requeue: usize,
    pub(crate) parked: usize,
    pub(crate) steady: Pace,
    /// For messages that wait for up to 30 s.
    pub(crate) spread: Pace,
}

/// How long messages arrive at one rate, and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Not counted. Best longer than the wait, so that messages both arrive and return when
    /// counting starts.
    pub(crate) warm_up: Duration,
    pub(crate) counted: Duration,
    /// How often each side runs at each rate.
    pub(crate) rounds: usize,
    /// How many more rates are tried to find the highest sustained one.
    pub(crate) search: usize,
    /// How long overdue messages may take to finish after the arrivals end. Then they count as
    /// unfinished.
    pub(crate) grace: Duration,
}

impl Effort {
    pub(crate) const FULL: Self = Self {
        rounds: 6,
        tracing_rounds: 8,
        success: 50_000,
        wait: 20_000,
        requeue: 5_000,
        parked: 100_000,
        steady: Pace {
            warm_up: Duration::from_secs(3),
            counted: Duration::from_secs(12),
            rounds: 2,
            search: 4,
            grace: Duration::from_secs(15),
        },
        spread: Pace {
            warm_up: Duration::from_secs(31),
            counted: Duration::from_secs(100),
            rounds: 1,
            search: 0,
            grace: Duration::from_secs(15),
        },
    };
    pub(crate) const QUICK: Self = Self {
        rounds: 2,
        tracing_rounds: 2,
        success: 5_000,
        wait: 2_000,
        requeue: 500,
        parked: 10_000,
        steady: Pace {
            warm_up: Duration::from_secs(3),
            counted: Duration::from_secs(7),
            rounds: 1,
            search: 2,
            grace: Duration::from_secs(10),
        },
        spread: Pace {
            warm_up: Duration::from_secs(1),
            counted: Duration::from_secs(10),
            rounds: 1,
            search: 0,
            grace: Duration::from_secs(10),
        },
    };
}
