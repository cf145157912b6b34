//! That a message was dead-lettered, and why.

use lapin::types::{AMQPValue, FieldArray, FieldTable};

use crate::headers::long_string;
use crate::names::Name;
use crate::protocol::Time;

/// Why a message is dead-lettered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Rejected,
    Expired,
    MaxLength,
    DeliveryLimit,
}

impl Reason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::MaxLength => "maxlen",
            Self::DeliveryLimit => "delivery_limit",
        }
    }
}

/// That a message was dead-lettered, from one queue for one reason.
#[derive(Debug, Clone)]
pub(crate) struct Death {
    pub(crate) queue: Name,
    pub(crate) reason: Reason,
    pub(crate) exchange: Name,
    pub(crate) routing_keys: Vec<Name>,
    pub(crate) count: i64,
    /// Of the first time.
    pub(crate) time: Time,
    pub(crate) original_expiration: Option<Time>,
}

impl Death {
    /// As `x-death` shows it.
    pub(crate) fn table(&self) -> FieldTable {
        let keys: Vec<_> = self.routing_keys.iter().map(|key| long_string(key)).collect();
        let mut table = FieldTable::default();
        table.insert("count".into(), AMQPValue::LongLongInt(self.count));
        table.insert("reason".into(), long_string(self.reason.as_str()));
        table.insert("queue".into(), long_string(&self.queue));
        table.insert("time".into(), AMQPValue::Timestamp(self.time.as_secs()));
        table.insert("exchange".into(), long_string(&self.exchange));
        table.insert("routing-keys".into(), AMQPValue::FieldArray(FieldArray::from(keys)));
        if let Some(expiration) = self.original_expiration {
            table.insert(
                "original-expiration".into(),
                long_string(&expiration.as_millis().to_string()),
            );
        }
        table
    }
}
