//! What happens to a message, by its kind, and how many attempts that takes.

use std::ops::RangeInclusive;

use rehop_testing::{Publish, Received};
use serde_json::{Value, json};

use crate::record::{Millis, now};
use crate::service::{ASKS, Does, Job, QueueConfig};

/// Where a message ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    Handled,
    Parked(Cause),
    Discarded,
    Stray,
    /// In its work queue, or in a wait queue: it has not ended.
    Queued,
}

/// Why a message is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    Exhausted,
    Permanent,
    Expired,
    Undecodable,
    Unpublishable,
    /// The broker has parked it, because it was redelivered too often.
    DeliveryLimit,
    Unknown,
}

impl Cause {
    /// The reason in a parked message's headers.
    pub(crate) fn of(message: &Received) -> Self {
        match message.headers.get("rehop-reason").and_then(Value::as_str) {
            Some("exhausted") => Self::Exhausted,
            Some("permanent") => Self::Permanent,
            Some("expired") => Self::Expired,
            Some("undecodable") => Self::Undecodable,
            Some("unpublishable") => Self::Unpublishable,
            Some(_) => Self::Unknown,
            None => Self::by_the_broker(message),
        }
    }

    fn by_the_broker(message: &Received) -> Self {
        let deaths = message.headers.get("x-death").and_then(Value::as_array);
        let reasons: Vec<&str> =
            deaths.into_iter().flatten().filter_map(|death| death["reason"].as_str()).collect();
        match () {
            () if reasons.contains(&"delivery_limit") => Self::DeliveryLimit,
            () if reasons.contains(&"rejected") => Self::Unpublishable,
            () => Self::Unknown,
        }
    }
}

/// What is expected of one message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expected {
    pub(crate) id: u64,
    /// Which of the service's queues it was sent to.
    pub(crate) queue: usize,
    pub(crate) does: Does,
    pub(crate) fate: Fate,
    /// The case expects another fate than that of its kind.
    pub(crate) diverted: bool,
    pub(crate) deadline: Option<Millis>,
    /// A message that was sent but not confirmed may be nowhere.
    pub(crate) confirmed: bool,
}

impl Expected {
    pub(crate) fn new(id: u64, queue: usize, does: Does, config: &QueueConfig) -> Self {
        let deadline = match does {
            Does::Expired => Some(now() - 1),
            Does::Expiring => Some(now() + config.delays.iter().sum::<u64>() as Millis - 50),
            _ => None,
        };
        Self {
            id,
            queue,
            does,
            fate: fate(does, config),
            diverted: false,
            deadline,
            confirmed: false,
        }
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        match self.does {
            Does::Undecodable => format!("no job {}", self.id).into_bytes(),
            does => serde_json::to_vec(&Job { id: self.id, does }).unwrap(),
        }
    }

    pub(crate) fn message(&self, queue: &str) -> Publish {
        let message = Publish::to_queue(queue).body(self.body()).message_id(self.id.to_string());
        match self.deadline {
            Some(deadline) => message.header("rehop-expires-at", json!(deadline)),
            None => message,
        }
    }
}

fn fate(does: Does, config: &QueueConfig) -> Fate {
    match does {
        Does::Succeed | Does::Slow(_) | Does::Gate | Does::HangOnce => Fate::Handled,
        Does::GateFail if config.waits() >= 1 => Fate::Handled,
        Does::Fail(waits) if waits <= config.waits() => Fate::Handled,
        Does::Ask(_) => fate(Does::Fail(ASKS), config),
        Does::Permanent | Does::GatePark => Fate::Parked(Cause::Permanent),
        Does::Discard => Fate::Discarded,
        Does::Undecodable => Fate::Parked(Cause::Undecodable),
        Does::Expired | Does::Expiring => Fate::Parked(Cause::Expired),
        Does::Poison(_) | Does::LatePoison(_) => Fate::Parked(Cause::DeliveryLimit),
        Does::Fail(_)
        | Does::GateFail
        | Does::Panic
        | Does::Hang
        | Does::Block(_)
        | Does::Allocate(_) => Fate::Parked(Cause::Exhausted),
    }
}

/// How often and how soon a queue's messages may be attempted, with the widest settings of the
/// case's services.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Policy {
    pub(crate) immediate: u32,
    pub(crate) waits: u32,
    pub(crate) delivery_limit: u32,
    /// The shortest that each wait may take.
    pub(crate) delays: Vec<u64>,
}

impl Policy {
    pub(crate) fn widen(&mut self, config: &QueueConfig) {
        self.immediate = self.immediate.max(config.immediate);
        self.waits = self.waits.max(config.waits());
        self.delivery_limit = self.delivery_limit.max(config.delivery_limit);
        for (index, delay) in config.delays.iter().enumerate() {
            match self.delays.get_mut(index) {
                Some(least) => *least = (*least).min(*delay),
                None => self.delays.push(*delay),
            }
        }
    }

    /// How many handler runs bring a message of this kind to its fate, unless a fault removes or
    /// adds one.
    pub(crate) fn runs(&self, does: Does) -> RangeInclusive<u32> {
        let at_once = self.immediate + 1;
        let until_exhausted = (self.waits + 1)..=(self.waits + 1) * at_once;
        match does {
            Does::Succeed
            | Does::Slow(_)
            | Does::Gate
            | Does::Permanent
            | Does::GatePark
            | Does::Discard => 1..=1,
            Does::HangOnce => 1..=2,
            Does::GateFail => 2..=at_once + 1,
            Does::Fail(waits) if waits <= self.waits => (waits + 1)..=waits * at_once + 1,
            Does::Ask(_) => self.runs(Does::Fail(ASKS)),
            Does::Undecodable | Does::Expired => 0..=0,
            Does::Expiring => 0..=*until_exhausted.end(),
            Does::Poison(_) => 1..=self.delivery_limit + 1,
            Does::LatePoison(waits) => (waits + 1)..=waits * at_once + self.delivery_limit + 1,
            Does::Fail(_) | Does::Panic | Does::Hang | Does::Block(_) | Does::Allocate(_) => {
                until_exhausted
            }
        }
    }
}
