//! What a queue holds, as an operator sees it.

use lapin::BasicProperties;

use super::{Entry, Queue};

/// What a queue holds, as the management API shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueView {
    /// Ready messages, in their order, by the `message_id` of each.
    pub ready: Vec<String>,
    /// Delivered and not settled.
    pub unacked: Vec<String>,
    /// Dead-lettered at least once, and not confirmed by their target yet.
    pub dead_lettering: Vec<String>,
    /// Waiting for a delayed retry.
    pub delayed: Vec<String>,
}

/// How many messages a queue has taken and given up by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turnover {
    /// They have come as dead letters.
    pub dead_letters: u64,
    /// It has refused them, or given them up because they expired or were too many.
    pub dropped: u64,
}

impl QueueView {
    /// All messages that the queue holds, wherever they are.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        let Self { ready, unacked, dead_lettering, delayed } = self;
        ready.iter().chain(unacked).chain(dead_lettering).chain(delayed).map(String::as_str)
    }
}

impl Queue {
    /// The properties of the first message of this `message_id` that the queue holds.
    pub(crate) fn properties_of(&self, id: &str) -> Option<&BasicProperties> {
        let returned = self.returns.iter().chain(self.backlog.iter());
        let kept = returned.chain(self.consumers.held()).chain(self.discards.iter());
        let mut properties =
            kept.chain(self.delayed.entries.values()).map(|entry| &*entry.message.properties);
        properties.find(|properties| {
            properties.message_id().as_ref().is_some_and(|found| found.as_str() == id)
        })
    }

    /// What the management API shows.
    pub(crate) fn view(&self) -> QueueView {
        QueueView {
            ready: self.returns.iter().chain(self.backlog.iter()).map(message_id).collect(),
            unacked: self.consumers.held().map(message_id).collect(),
            dead_lettering: self.discards.iter().map(message_id).collect(),
            delayed: self.delayed.entries.values().map(message_id).collect(),
        }
    }
}

fn message_id(entry: &Entry) -> String {
    entry.message.properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default()
}
