//! When messages expire.

use super::{Entry, Queue};
use crate::death::Reason;
use crate::message::Message;
use crate::protocol::{Time, Version};

impl Queue {
    /// The lower of the queue's and the message's own time-to-live counts.
    pub(super) fn expiry_of(&self, message: &Message) -> Option<Time> {
        let ttl = [self.settings.message_ttl, message.ttl].into_iter().flatten().min()?;
        // A quorum queue gives a message of time-to-live 0 the rest of the millisecond.
        Some(
            self.now + if ttl.is_zero() && !self.is_classic() { Time::from_millis(1) } else { ttl },
        )
    }

    /// Messages expire at the head only: one behind another that lives longer has to wait.
    pub(super) fn expire(&mut self) {
        let now = self.now;
        let mut expired = Vec::new();
        if self.version >= Version::V4_3 && !self.is_classic() {
            // 4.3 looks at the returned messages and at the head of each priority.
            if self.next_expiry().is_some_and(|time| time <= now) {
                let count = self.returns.iter().take_while(|entry| entry.is_expired(now)).count();
                expired.extend(self.returns.drain(..count));
                self.backlog.take_expired(now, &mut expired);
            }
        } else {
            while self.next().is_some_and(|entry| entry.is_expired(now)) {
                expired.extend(self.take_next());
            }
        }
        for entry in expired {
            self.dead_letter(Reason::Expired, entry);
        }
    }

    pub(super) fn next(&self) -> Option<&Entry> {
        self.returns.front().or_else(|| self.backlog.next())
    }

    pub(super) fn next_expiry(&self) -> Option<Time> {
        if self.version >= Version::V4_3 && !self.is_classic() {
            return self
                .returns
                .front()
                .into_iter()
                .chain(self.backlog.heads())
                .filter_map(|entry| entry.expires)
                .min();
        }
        self.next()?.expires
    }
}
