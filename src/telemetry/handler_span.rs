//! The span of `tracing` around a handler: a service's own log lines say which attempt they belong
//! to.

use tracing::Span;

use crate::message::Delivery;

/// The target, for filters.
pub(crate) const TARGET: &str = "rehop::handler";

/// At level ERROR, so that a filter such as `warn` keeps it, and the lines that pass keep their
/// context.
pub(crate) fn handler_span(queue: &str, chain: &str, delivery: &Delivery) -> Span {
    tracing::error_span!(target: TARGET, "handle", queue, chain, attempt = delivery.ledger.attempt())
}
