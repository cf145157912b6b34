//! Copies that should not have been sent as they were.

use std::time::Duration;

use rehop::settings::WaitStrategy;

use super::{Checker, Promise};
use crate::network::{OddCopy, Oddity};

/// How soon the loss of a channel is noticed on which nothing is subscribed.
const LOSS_NOTICED: Duration = Duration::from_millis(550);

impl Checker<'_> {
    pub(super) fn check_copy(&mut self, copy: &OddCopy) {
        let promise = match copy.oddity {
            Oddity::AfterLoss { lost } if copy.sent <= lost + LOSS_NOTICED => return,
            Oddity::AfterLoss { .. } => Promise::NoCopyAfterALoss,
            Oddity::WhileBlocked => Promise::NoCopyDuringAnAlarm,
            // What waits in its queue has nowhere to keep them. Its parked copy tells the last.
            Oddity::WithoutHistory { failures, has_failed, .. }
                if self.is_native(&copy.message) && (failures > 0 || !has_failed) =>
            {
                return;
            }
            Oddity::WithoutHistory { .. } => Promise::CopiesTellTheirHistory,
        };
        self.broken(copy.sent, promise, format!("{copy:?}"));
    }

    pub(super) fn is_native(&self, message: &str) -> bool {
        let number = message.parse().ok().filter(|number| *number < self.scenario.messages.len());
        number.is_some_and(|number| self.queue_of(number).strategy == WaitStrategy::Native)
    }
}
