//! `consumer_timeout` of 4.3: a quorum queue takes a message back that is not acked in time. Until 4.2 the channel did this, in its way.

use std::collections::VecDeque;

use super::{Effect, Queue, Return};
use crate::protocol::{Time, Version};

impl Queue {
    fn has_timeouts(&self) -> bool {
        self.version >= Version::V4_3 && !self.is_classic()
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        if self.has_timeouts() { self.consumers.next_timeout() } else { None }
    }

    /// Takes back what has timed out, uncounted. The consumer gets nothing more until it has settled all of it after all.
    pub(super) fn time_out(&mut self, now: Time, effects: &mut VecDeque<Effect>) {
        if !self.has_timeouts() || self.consumers.next_timeout().is_none_or(|time| time > now) {
            return;
        }
        for (channel, tag, entries) in self.consumers.take_timed_out(now, &mut self.last_active) {
            effects.push_back(Effect::TimedOut { channel, tag });
            for entry in entries {
                self.give_back(now, entry, Return::TimedOut, effects);
            }
        }
        self.consumers.rest_timed_out();
        self.consumers.activate_next();
    }
}
