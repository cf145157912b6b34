//! The ways to wait that are compared.

use std::time::Duration;

use rehop::Settings;
use rehop::settings::WaitStrategy;

/// How each message waits. All but the last two take about two seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Tiers,
    /// As many legs, from wait queue to wait queue.
    Ladder(u32),
    Native,
    /// In an exchange of the delayed-message plugin.
    DelayedExchange,
    /// For a shorter time, because what waits in the process counts against the prefetch, which
    /// would bound the rate.
    InProcess,
    /// On the ladder of the default settings, each message for a time of its own.
    Spread,
}

impl Way {
    pub(crate) const TIERS: Duration = Duration::from_secs(2);
    pub(crate) const IN_PROCESS: Duration = Duration::from_millis(50);

    /// How long this message waits.
    pub(crate) fn wait(self, id: usize) -> Duration {
        match self {
            // No whole number of milliseconds makes exactly two seconds of four legs.
            Self::Ladder(_) | Self::Spread => {
                Duration::from_millis(self.legs(id).into_iter().sum())
            }
            Self::Tiers | Self::Native | Self::DelayedExchange => Self::TIERS,
            Self::InProcess => Self::IN_PROCESS,
        }
    }

    /// The longest wait of any message.
    pub(crate) fn longest_wait(self) -> Duration {
        match self {
            Self::Spread => Duration::from_secs(30),
            Self::Tiers
            | Self::Ladder(_)
            | Self::Native
            | Self::DelayedExchange
            | Self::InProcess => self.wait(0),
        }
    }

    /// The rungs of a ladder's wait in milliseconds, in the order in which they are taken.
    pub(crate) fn legs(self, id: usize) -> Vec<u64> {
        match self {
            Self::Ladder(1) => vec![2_000],
            Self::Ladder(2) => vec![1_600, 400],
            Self::Ladder(_) => vec![1_072, 536, 268, 134],
            Self::Spread => {
                let seconds = seconds(id);
                let rungs = (0..5).rev().map(|bit| 1 << bit).filter(|rung| seconds & rung > 0);
                rungs.map(|rung| rung * 1_000).collect()
            }
            Self::Tiers | Self::Native | Self::DelayedExchange | Self::InProcess => Vec::new(),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tiers => "tiers",
            Self::Ladder(1) => "ladder, 1 leg",
            Self::Ladder(2) => "ladder, 2 legs",
            Self::Ladder(_) => "ladder, 4 legs",
            Self::Native => "native",
            Self::DelayedExchange => "delayed exchange",
            Self::InProcess => "in-process, 50 ms",
            Self::Spread => "ladder, random delays",
        }
    }

    /// How long messages wait, in words.
    pub(crate) fn length(self) -> &'static str {
        match self {
            Self::Spread => "1 s to 30 s",
            Self::Tiers | Self::Ladder(_) | Self::Native | Self::DelayedExchange => "about 2 s",
            Self::InProcess => "50 ms",
        }
    }

    /// Configures it.
    pub(crate) fn choose(self, settings: &mut Settings) {
        settings.retry.strategy = Some(match self {
            Self::Tiers => WaitStrategy::Tiers,
            Self::Ladder(_) | Self::Spread => WaitStrategy::Ladder,
            Self::Native => WaitStrategy::Native,
            Self::DelayedExchange => WaitStrategy::DelayedExchange,
            Self::InProcess => WaitStrategy::InProcess,
        });
        if let Self::Ladder(_) = self
            && let Some(lowest) = self.legs(0).last()
        {
            settings.ladder.rung = Duration::from_millis(*lowest);
            settings.ladder.max = Duration::from_secs(10);
        }
    }
}

/// One to fifteen seconds, or twice as long: a ladder with the default settings rounds none of
/// these up, so what is measured is lateness alone. By Fibonacci hashing, messages that come one
/// after another have nothing in common.
fn seconds(id: usize) -> u64 {
    let hash = (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (hash % 15 + 1) << (hash / 15 % 2)
}
