//! Short words for scripts that are written by hand. They use channel 0 unless they say otherwise.

use crate::script::{Index, Key, Message, Settlement, Step, Table, Value};

/// No exchange or queue has this index.
pub(crate) const MISSING: Index = 9;

/// A quorum queue with these further arguments.
pub(crate) fn queue<const N: usize>(queue: Index, arguments: [(&'static str, Value); N]) -> Step {
    Step::DeclareQueue { channel: 0, queue, arguments: quorum(arguments) }
}

/// The arguments of a quorum queue.
pub(crate) fn quorum<const N: usize>(arguments: [(&'static str, Value); N]) -> Table {
    let mut all = vec![("x-queue-type", Value::Text("quorum"))];
    all.extend(arguments);
    all
}

pub(crate) fn exchange(exchange: Index, kind: &'static str) -> Step {
    Step::DeclareExchange { channel: 0, exchange, kind, arguments: Table::new() }
}

pub(crate) fn bind(queue: Index, exchange: Index, word: &'static str) -> Step {
    Step::Bind { channel: 0, queue, exchange, key: Key::Word(word), arguments: Table::new() }
}

pub(crate) fn limit(limit: i64) -> (&'static str, Value) {
    ("x-delivery-limit", Value::Number(limit))
}

pub(crate) fn ttl(millis: u32) -> (&'static str, Value) {
    ("x-message-ttl", Value::Time(millis))
}

/// Dead letters go through the default exchange to this queue.
pub(crate) fn dead_letters_to(queue: Index) -> [(&'static str, Value); 2] {
    [
        ("x-dead-letter-exchange", Value::Exchange(None)),
        ("x-dead-letter-routing-key", Value::Queue(queue)),
    ]
}

/// As it has to be for at-least-once to be that.
pub(crate) fn at_least_once() -> [(&'static str, Value); 2] {
    [
        ("x-dead-letter-strategy", Value::Text("at-least-once")),
        ("x-overflow", Value::Text("reject-publish")),
    ]
}

/// A message to a queue through the default exchange.
pub(crate) fn message(number: u32, queue: Index) -> Message {
    Message {
        number,
        exchange: None,
        key: Key::Queue(queue),
        is_mandatory: false,
        headers: Table::new(),
        expiration: None,
        priority: None,
        user: None,
    }
}

/// A message to an exchange.
pub(crate) fn routed(number: u32, exchange: Index, word: &'static str) -> Message {
    Message { exchange: Some(exchange), key: Key::Word(word), ..message(number, 0) }
}

impl Message {
    pub(crate) fn header(mut self, name: &'static str, value: Value) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(crate) fn expiring(self, millis: u32) -> Self {
        Self { expiration: Some(Value::Time(millis)), ..self }
    }

    pub(crate) fn of_priority(self, priority: u8) -> Self {
        Self { priority: Some(priority), ..self }
    }

    pub(crate) fn mandatory(self) -> Self {
        Self { is_mandatory: true, ..self }
    }
}

pub(crate) fn publish<const N: usize>(messages: [Message; N]) -> Step {
    Step::Publish { channel: 0, messages: messages.into() }
}

/// Messages with these numbers to a queue.
pub(crate) fn publish_to(queue: Index, numbers: impl IntoIterator<Item = u32>) -> Step {
    Step::Publish {
        channel: 0,
        messages: numbers.into_iter().map(|number| message(number, queue)).collect(),
    }
}

/// A subscription whose name is its number.
pub(crate) fn subscribe(channel: Index, queue: Index, tag: u32, prefetch: u16) -> Step {
    Step::Subscribe { channel, queue, tag, prefetch, is_no_ack: false, arguments: Table::new() }
}

pub(crate) fn get(channel: Index, queue: Index) -> Step {
    Step::Get { channel, queue, is_no_ack: false }
}

/// Settles the first message that a channel holds.
pub(crate) fn settle(channel: Index, how: Settlement) -> Step {
    Step::Settle { channel, pick: 0, is_multiple: false, how }
}

/// Settles the message that a channel holds at this place, and those before it.
pub(crate) fn settle_to(channel: Index, pick: usize, how: Settlement) -> Step {
    Step::Settle { channel, pick, is_multiple: true, how }
}

pub(crate) fn close(channel: Index) -> Step {
    Step::CloseChannel { channel }
}

/// The same steps over and over.
pub(crate) fn times<const N: usize>(count: usize, steps: [Step; N]) -> Vec<Step> {
    std::iter::repeat_n(steps, count).flatten().collect()
}

pub(crate) const ACK: Settlement = Settlement::Ack;
/// Back to the queue.
pub(crate) const REJECT: Settlement = Settlement::Reject { is_requeued: true };
pub(crate) const NACK: Settlement = Settlement::Nack { is_requeued: true };
/// Away, or dead-lettered.
pub(crate) const DROP: Settlement = Settlement::Reject { is_requeued: false };
