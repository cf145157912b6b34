//! `x-max-length`: what a queue does when it holds too much.

use super::Queue;
use crate::death::Reason;
use crate::names::Publisher;
use crate::policy::Overflow;
use crate::protocol::Version;

impl Queue {
    /// Messages that count towards the limit. Those that wait for dead-lettering at least once do,
    /// and on 4.3 the delayed ones.
    fn length(&self) -> usize {
        let delayed = if self.version >= Version::V4_3 { self.delayed.entries.len() } else { 0 };
        self.ready() + delayed + self.discards.len()
    }

    fn is_over_limit(&self) -> bool {
        self.settings.max_length.is_some_and(|max| self.length() > max)
    }

    /// A quorum queue that turned publishers away takes them again at four fifths of its limit.
    pub(super) fn is_below_soft_limit(&self) -> bool {
        self.settings.max_length.is_some_and(|max| self.length() <= max - max.div_ceil(5))
    }

    /// Whether a publish is refused. A quorum queue is not exact: it tells its publishers when it
    /// is over its limit, so it comes to hold one message more than that. It takes what comes
    /// without a publisher, which is what dead-lettering at most once sends.
    pub(super) fn turns_away(&mut self, publisher: Option<Publisher>) -> bool {
        let refuses = self.settings.overflow == Overflow::RejectPublish;
        if self.is_classic() {
            return refuses && self.settings.max_length.is_some_and(|max| self.ready() >= max);
        }
        let is_over = refuses && self.is_over_limit();
        publisher.is_some_and(|publisher| *self.publishers.entry(publisher).or_insert(is_over))
    }

    pub(super) fn enforce_limits(&mut self, was_below: bool) {
        let admit_all = |queue: &mut Self| {
            queue.publishers.values_mut().for_each(|is_turned_away| *is_turned_away = false)
        };
        if self.settings.max_length.is_none() {
            // 3.10 does not tell the publishers that it has turned away, and goes on refusing them.
            // It takes messages of others.
            if self.version > Version::V3_10 {
                admit_all(self);
            }
        } else if self.settings.overflow == Overflow::DropHead {
            let mut dropped = Vec::new();
            while self.is_over_limit() {
                let Some(entry) = self.take_next() else { break };
                dropped.push(entry);
            }
            // Until 4.2 a quorum queue dead-letters the last first.
            if self.version < Version::V4_3 && !self.is_classic() {
                dropped.reverse();
            }
            for entry in dropped {
                self.dead_letter(Reason::MaxLength, entry);
            }
        } else if self.is_over_limit() {
            self.publishers.values_mut().for_each(|is_turned_away| *is_turned_away = true);
        } else if !was_below && self.is_below_soft_limit() {
            admit_all(self);
        }
    }
}
