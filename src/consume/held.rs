//! A delivery that this process keeps for its next attempt.

use std::sync::Arc;

use tokio::time::Instant;

use crate::consume::started::Started;
use crate::consume::taken::Taken;
use crate::failure::Failure;
use crate::message::Delivery;
use crate::retry::ledger::Wait;
use crate::retry::outcome::Outcome;
use crate::timestamp::Timestamp;

/// Returns the delivery for its next attempt, with what this process knows of the chain, and when
/// that attempt is due.
pub(crate) fn hold(
    started: Started,
    wait: Option<Wait>,
    outcome: Outcome,
    failure: Option<&Failure>,
    decided_at: Timestamp,
) -> (Box<Taken>, Instant) {
    let Started { taken, chain, span } = started;
    let taken = *taken;
    let ledger = taken.delivery.ledger.held(failure, wait, outcome.is_defer(), decided_at);
    let due = Instant::now() + outcome.delay().unwrap_or_default();
    let delivery = Arc::unwrap_or_clone(taken.delivery);
    let delivery = Arc::new(Delivery { ledger, ..delivery });
    let chain = Some(Box::new(chain.next(span.context(), wait.is_some())));
    (Box::new(Taken { delivery, chain, unanswered: None, ..taken }), due)
}
