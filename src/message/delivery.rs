//! A delivery as it came, and what its headers tell.

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, ShortString};

use crate::retry::ledger::Ledger;

/// One `basic.deliver` of a message, as it came, and what its headers tell about its chain.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    /// What the broker delivered it by: after a wait, the return exchange.
    pub(crate) address: Address,
    /// What its producer published it to.
    pub(crate) origin: Address,
    pub(crate) redelivered: bool,
    pub(crate) delivery_tag: u64,
    pub(crate) properties: BasicProperties,
    pub(crate) body: Bytes,
    pub(crate) ledger: Ledger,
}

/// What a message is published to.
#[derive(Debug, Clone, PartialEq)]
pub struct Address {
    /// The exchange.
    pub exchange: ShortString,
    /// The routing key.
    pub routing_key: ShortString,
}

impl Delivery {
    pub(crate) fn header(&self, name: &str) -> Option<&AMQPValue> {
        header(&self.properties, name)
    }
}

pub(crate) fn header<'a>(properties: &'a BasicProperties, name: &str) -> Option<&'a AMQPValue> {
    properties.headers().as_ref()?.inner().get(name)
}
