//! What is counted, logged and reported after an attempt.

use crate::clock;
use crate::consume::started::Started;
use crate::consume::taken::Taken;
use crate::consume::unsettled::Unsettled;
use crate::failure::Failure;
use crate::handler::FailureEvent;
use crate::retry::decision::Reason;
use crate::retry::outcome::Outcome;
use crate::timestamp::Timestamp;
use crate::wire::receipt::Parking;

/// Counts what became of the delivery, logs its failure, and tells the service of it: here and
/// nowhere else.
pub(crate) fn account(
    started: &Started,
    settled: Result<Outcome, Unsettled>,
    failure: Option<&Failure>,
) {
    let Started { taken, chain, .. } = started;
    let Taken { context, delivery, .. } = &**taken;
    let (ledger, chain) = (&delivery.ledger, &*chain.id);
    let (queue, attempt) = (context.config.queue.as_str(), ledger.attempt());
    let error = failure.map(Failure::message).unwrap_or_default();
    let outcome = match settled {
        Ok(outcome) => outcome,
        Err(why) => {
            context.summary.update(|summary| match why.is_handed_back() {
                true => summary.handed_back += 1,
                false => summary.unsettled += 1,
            });
            let (why, advice) = (why.text(), why.advice(context.config.counts_deliveries));
            tracing::warn!(
                queue,
                chain,
                attempt,
                error,
                "the message was not settled, because {why}; it comes again{advice}"
            );
            return;
        }
    };
    context.summary.settled(outcome);
    if let Some(replay) = &ledger.replay {
        context.metrics.replayed(outcome);
        context.receipts.send(replay, outcome, |reason| parking_receipt(started, reason, failure));
    }
    context.metrics.settled(outcome, attempt, Timestamp::now().since(ledger.first_seen));
    match outcome {
        Outcome::Ack => tracing::trace!(queue, chain, attempt, "message handled"),
        Outcome::Requeue | Outcome::Wait(_) => log_retry(started, outcome, failure),
        Outcome::Defer(delay) => {
            tracing::debug!(
                queue,
                chain,
                attempt,
                delay_ms = delay.as_millis(),
                error,
                "message deferred"
            );
        }
        Outcome::Park(reason) => {
            tracing::warn!(queue, chain, attempt, %reason, error, "message parked")
        }
        Outcome::Discard(reason) => {
            tracing::warn!(queue, chain, attempt, %reason, error, "message discarded")
        }
    }
    started.tell(Some(outcome), failure);
    report(started, outcome, failure);
}

/// What the headers of the parked copy say as well.
fn parking_receipt(started: &Started, reason: Reason, failure: Option<&Failure>) -> Parking {
    let at = Timestamp::now();
    Parking {
        queue: started.taken.context.config.queue.clone(),
        chain_id: started.chain.id.to_string(),
        reason: reason.to_string(),
        at: Some(at),
        last_error: started.taken.delivery.ledger.after(failure, at).errors.pop(),
    }
}

/// The first failure of a class is logged at level info, and each at level debug.
fn log_retry(started: &Started, outcome: Outcome, failure: Option<&Failure>) {
    let (queue, chain, attempt) = (
        &started.taken.context.config.queue,
        &*started.chain.id,
        started.taken.delivery.ledger.attempt(),
    );
    let outcome = outcome.as_str();
    let Some(failure) = failure else {
        tracing::debug!(queue, chain, attempt, outcome, "the wait goes on in another wait queue");
        return;
    };
    let (class, error) = (failure.class(), failure.message());
    if started.taken.context.failures.is_first(class, clock::now()) {
        tracing::info!(
            queue,
            class,
            chain,
            attempt,
            outcome,
            error,
            "attempt failed; it is retried, and further failures of this class are counted once a minute"
        );
    } else {
        tracing::debug!(
            queue,
            class,
            chain,
            attempt,
            outcome,
            error,
            "attempt failed; it is retried"
        );
    }
}

/// Tells the service of a failure, or of an end without an attempt. A further leg of a wait is
/// neither, nor is a defer.
fn report(started: &Started, outcome: Outcome, failure: Option<&Failure>) {
    if outcome.is_defer() || (failure.is_none() && outcome.reason().is_none()) {
        return;
    }
    started.taken.context.handler.failed(&FailureEvent {
        queue: &started.taken.context.config.queue,
        message_id: started.taken.delivery.properties.message_id().as_ref().map(|id| id.as_str()),
        chain_id: &started.chain.id,
        attempt: started.taken.delivery.ledger.attempt(),
        outcome,
        failure,
    });
}
