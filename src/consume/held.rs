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

/// The delivery as its next attempt gets it, with what this process knows of the chain, and when
/// that attempt is due.
pub(crate) fn hold(
    started: Started,
    wait: Option<Wait>,
    outcome: Outcome,
    failure: Option<&Failure>,
    since: Timestamp,
) -> (Taken, Instant) {
    let Started { taken, chain, span, .. } = started;
    let ledger = taken.delivery.ledger.held(failure, wait, outcome.is_defer(), since);
    let due = Instant::now() + outcome.delay().unwrap_or_default();
    let delivery = Arc::new(Delivery { ledger, ..Arc::unwrap_or_clone(taken.delivery) });
    let chain = Some(Box::new(chain.next(span.context(), wait.is_some())));
    (Taken { delivery, chain, unanswered: None, ..taken }, due)
}
