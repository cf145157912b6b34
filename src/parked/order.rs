//! What is to be moved, and how fast; and what the operations share.

use std::time::{Duration, SystemTime};

use crate::parked::copies::Move;
use crate::parked::filter::Filter;
use crate::parked::limit::DeliveryLimit;
use crate::parked::message::Raw;
use crate::parked::progress::Progress;
use crate::parked::requests::ReplayRequest;
use crate::timestamp::Timestamp;

pub(crate) type Observe<'a> = &'a mut (dyn FnMut(&Progress) + Send);
/// Completes when the operation is to end. Must not be polled again after that.
pub(crate) type StopSignal<'a> = &'a mut (dyn Future<Output = ()> + Send + Unpin);

/// How many messages may be in flight; a kill may duplicate as many.
pub(crate) fn in_flight(asked: Option<u16>) -> usize {
    usize::from(asked.unwrap_or(ReplayRequest::DEFAULT_IN_FLIGHT).max(1))
}

/// What is to be moved, and how fast.
pub(crate) struct Order<'a> {
    pub(crate) action: Move,
    pub(crate) filter: &'a Filter,
    /// For messages that do not say where they belong.
    pub(crate) to: Option<&'a str>,
    /// How many messages may be in flight.
    pub(crate) in_flight: usize,
    /// How many messages a second are sent at most.
    pub(crate) rate: Option<f64>,
    /// Sending pauses while a work queue has more ready messages than this.
    pub(crate) max_ready: Option<u64>,
    /// How long messages may be held.
    pub(crate) hold: Duration,
    /// The largest prefetch of one subscription.
    pub(crate) prefetch: u16,
    pub(crate) limit: DeliveryLimit,
}

pub(crate) fn raw(delivery: &lapin::message::Delivery) -> Raw<'_> {
    Raw {
        exchange: delivery.exchange.as_str(),
        routing_key: delivery.routing_key.as_str(),
        properties: &delivery.properties,
        body: &delivery.data,
        redelivered: delivery.redelivered,
    }
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}
