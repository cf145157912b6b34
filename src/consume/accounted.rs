//! What is counted, logged and reported after an attempt.

use crate::clock;
use crate::consume::started::Started;
use crate::consume::taken::Taken;
use crate::failure::Failure;
use crate::handler::FailureEvent;
use crate::publish::GivenUp;
use crate::retry::decision::Reason;
use crate::retry::outcome::Outcome;
use crate::timestamp::Timestamp;
use crate::wire::receipt::Parking;

/// Counts what became of the delivery, logs its failure, and tells the service of it: here and
/// nowhere else.
pub(crate) fn account(
    started: &Started,
    settled: Result<Outcome, GivenUp>,
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
            context.summary.update(|summary| match why {
                GivenUp::Stopped { may_be_stored: false } => summary.handed_back += 1,
                _ => summary.unsettled += 1,
            });
            let advice = advice(&why, context.config.counts_deliveries);
            let why = why.text();
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
    let asked = failure.and_then(Failure::retry_after);
    if context.config.policy.rounds_asked_delays()
        && let (Some(asked), Some(waits)) = (asked, outcome.delay())
    {
        context.advice.note_long_wait((queue, chain), asked, waits);
    }
    started.tell(Some(outcome), failure);
    report(started, outcome, failure);
}

/// What to do about a delivery that was not settled, and what happens otherwise.
const fn advice(why: &GivenUp, counts_deliveries: bool) -> &'static str {
    match (why, counts_deliveries) {
        (GivenUp::SessionEnded | GivenUp::ChannelClosed | GivenUp::Stopped { .. }, _) => "",
        (GivenUp::Unpublishable { .. }, true) => {
            "; an earlier line says why. Past its delivery limit, the broker dead-letters it, or deletes it if the queue has no \
             dead-letter exchange"
        }
        (GivenUp::Unpublishable { .. }, false) => {
            "; an earlier line says why. This queue counts no deliveries, so the handler runs again each time"
        }
        (GivenUp::Late, true) => {
            "; if the broker refuses copies, an earlier line says why; repair that before the message reaches its delivery limit"
        }
        (GivenUp::Late, false) => {
            "; if the broker refuses copies, an earlier line says why; repair that: this queue counts no deliveries, so the \
             handler runs again each time"
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_was_not_settled_has_advice_unless_the_broker_has_it_again() {
        for why in [GivenUp::Late, GivenUp::Unpublishable { answer: "".into() }] {
            let [counting, other] = [true, false].map(|counts| advice(&why, counts));
            assert!(
                counting.contains("its delivery limit") && !counting.contains("each time"),
                "{counting}"
            );
            assert!(
                other.contains("counts no deliveries") && other.ends_with("runs again each time"),
                "{other}"
            );
        }
        let stopped = |may_be_stored| GivenUp::Stopped { may_be_stored };
        for why in [GivenUp::SessionEnded, GivenUp::ChannelClosed, stopped(true), stopped(false)] {
            assert_eq!([true, false].map(|counts| advice(&why, counts)), [""; 2]);
        }
    }
}
