//! What an operation does to the messages of a queue, and how fast.

use std::time::Duration;

use crate::parked::copies::Move;
use crate::parked::filter::Filter;
use crate::parked::limit::DeliveryLimit;
use crate::telemetry::MoveMetrics;

/// What is to be moved, and how fast.
pub(crate) struct Job<'a> {
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
    pub(crate) metrics: MoveMetrics,
}
