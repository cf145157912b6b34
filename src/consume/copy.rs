//! The copies that may take a delivery's place, written.

use std::sync::Arc;

use bytes::Bytes;

use crate::broker::lane::Outgoing;
use crate::consume::started::Started;
use crate::failure::Failure;
use crate::retry::decision::Reason;
use crate::retry::ledger::{Ledger, Wait};
use crate::timestamp::Timestamp;
use crate::wait::Path;
use crate::wire::{HeadersTooLarge, Resting};

/// A copy that is written and not sent yet. Boxed where it is passed on, because most deliveries
/// need none and their tasks should stay small.
pub(crate) struct WrittenCopy {
    pub(crate) outgoing: Arc<Outgoing>,
    /// Only if headers that did not fit were appended to the body, which may make it too large for
    /// the broker. Published if `outgoing` is unpublishable: the message's own body, without
    /// rehop's headers.
    pub(crate) bare: Option<Arc<Outgoing>>,
    /// The queue, or the exchange, that will hold it, as spans and metrics name it.
    pub(crate) destination: String,
}

/// The copy that waits.
///
/// # Errors
///
/// When the message's own headers leave no room for rehop's.
pub(crate) fn waiting(
    started: &Started,
    wait: Wait,
    is_defer: bool,
    failure: Option<&Failure>,
) -> Result<Box<WrittenCopy>, HeadersTooLarge> {
    let Started { taken, chain, span, .. } = started;
    let ledger =
        with_chain_id(started, taken.delivery.ledger.waiting(failure, is_defer, wait.since));
    let trace = chain.waiting_headers(span.context());
    let (context, delivery) = (taken.context.clone(), taken.delivery.clone());
    let room = context.publishing.room();
    let properties = context.contract.checked_wait_copy(&delivery, &ledger, wait, &trace, room)?;
    let addresses = &context.addresses;
    let exchange = match wait.path {
        Path::Ladder { .. } => addresses.ladder.clone(),
        Path::Delayed => addresses.delay.clone(),
        // The last two need no copy and never get here.
        Path::Tier | Path::Return | Path::Hold => addresses.wait.clone(),
    };
    let destination = context.names.holder(wait.path, wait.leg);
    let (routing_key, body) = (delivery.origin.routing_key.clone(), delivery.body.clone());
    let write = move || context.contract.wait_copy(&delivery, &ledger, wait, &trace, room);
    let mut outgoing = Outgoing::new(exchange, routing_key, body, properties, write);
    outgoing.mandatory = wait.path != Path::Delayed;
    Ok(Box::new(WrittenCopy { outgoing: Arc::new(outgoing), bare: None, destination }))
}

/// The copy that is parked.
pub(crate) fn parked(
    started: &Started,
    reason: Reason,
    failure: Option<&Failure>,
    parked_at: Timestamp,
) -> Box<WrittenCopy> {
    let Started { taken, chain, span, .. } = started;
    let ledger = with_chain_id(started, taken.delivery.ledger.after(failure, parked_at));
    let trace = chain.headers(span.context());
    let (context, delivery) = (taken.context.clone(), taken.delivery.clone());
    let destination = context.config.parked.clone();
    let (exchange, routing_key) = (context.addresses.park.clone(), context.addresses.queue.clone());
    let room = context.publishing.room();
    let body = delivery.body.clone();
    let write =
        move || context.contract.parked_copy(&delivery, &ledger, reason, parked_at, &trace, room);
    let Resting { properties, overflow } = write();
    let (mut whole, mut bare) = (body.clone(), None);
    if !overflow.is_empty() {
        whole = Bytes::from([&body[..], &overflow].concat());
        let (context, delivery) = (taken.context.clone(), taken.delivery.clone());
        let write = move || context.contract.bare_copy(&delivery);
        let outgoing = Outgoing::new(exchange.clone(), routing_key.clone(), body, write(), write);
        bare = Some(Arc::new(outgoing));
    }
    let outgoing =
        Outgoing::new(exchange, routing_key, whole, properties, move || write().properties);
    Box::new(WrittenCopy { outgoing: Arc::new(outgoing), bare, destination })
}

/// The ledger that a copy carries, with the id of its chain.
fn with_chain_id(started: &Started, mut ledger: Ledger) -> Ledger {
    ledger.chain_id.get_or_insert_with(|| started.chain.id.to_string());
    ledger
}
