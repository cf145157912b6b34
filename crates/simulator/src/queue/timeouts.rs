//! `consumer_timeout` of 4.3: a quorum queue takes a message back that is not acked in time. Until
//! 4.2 the channel did this, in its way.

use super::{Effect, Queue, Return};
use crate::protocol::{Time, Version};

impl Queue {
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let has_timeouts = self.version >= Version::V4_3 && !self.is_classic();
        self.consumers.next_timeout().filter(|_| has_timeouts)
    }

    /// Takes back what has timed out, uncounted. The consumer gets nothing more until it has
    /// settled all of it after all.
    pub(super) fn time_out(&mut self) {
        if self.next_timeout().is_none_or(|time| time > self.now) {
            return;
        }
        for (channel, tag, entries) in self.consumers.take_timed_out(self.now) {
            self.effects.push(Effect::TimedOut(channel, tag));
            for entry in entries {
                self.give_back(entry, Return::TimedOut);
            }
        }
    }
}
