//! One delivery, start to end.

use std::sync::Arc;
use std::time::Instant;

use opentelemetry::trace::FutureExt;

use crate::failure::Failure;
use crate::message::Arrival;
use crate::policy::{Decision, Reason, decide, decide_before};
use crate::queue::{InFlight, Queue, now};
use crate::settle::{Settled, Settler, plan, settle};
use crate::telemetry::metrics::Outcome;
use crate::telemetry::spans::{Chain, ProcessSpan};
use crate::timestamp::Timestamp;

/// A delivery that was taken from the broker and read.
pub(crate) struct Taken {
    pub(crate) arrival: Arc<Arrival>,
    pub(crate) received: Timestamp,
    pub(crate) settler: Settler,
    pub(crate) in_flight: InFlight,
}

/// The flow of one message: read, attempt, decide, write the copy if it takes one, settle.
pub(crate) async fn run(queue: Arc<Queue>, taken: Taken) {
    let Taken { arrival, received, settler, in_flight: _in_flight } = taken;
    let chain = open_chain(&queue, &arrival, received);
    let span = queue.tracer.process(&chain, &arrival);
    let (decision, failure) = match decide_before(&queue.plan.policy, &arrival.ledger, now()) {
        Some(decision) => (decision, None),
        None => attempt(&queue, &arrival, &span).await,
    };
    let plan = plan(&queue, &arrival, failure.as_ref(), decision, &chain, &span);
    span.end(plan.outcome, plan.reason, failure.as_ref(), plan.delay);
    let settled = settle(&queue, &settler, &arrival, plan, &chain, &span).await;
    account(&queue, &arrival, &chain, settled, failure.as_ref());
}

/// Continues the chain's trace. A message that is home for the first time leaves the span and the lateness of its wait.
fn open_chain(queue: &Queue, arrival: &Arrival, received: Timestamp) -> Chain {
    let mut ignored = Vec::new();
    let chain = queue.tracer.chain(arrival, received, &mut ignored);
    queue.warned.about(&queue.plan.queue, ignored);
    if let Some(wait) = arrival.ledger.wait.filter(|_| !arrival.envelope.redelivered) {
        queue.tracer.waited(&chain, arrival, &queue.names.tier(wait.tier), received);
        if arrival.ledger.wait_unfinished.is_none() {
            queue.metrics.came_home(received.since(wait.due));
        }
    }
    chain
}

/// Runs the handler, with its time limit and inside its span, and decides.
async fn attempt(queue: &Queue, arrival: &Arc<Arrival>, span: &ProcessSpan) -> (Decision, Option<Failure>) {
    let attempt = match queue.process.attempt(arrival) {
        Ok(attempt) => attempt,
        Err(error) => return (Decision::Park(Reason::Undecodable), Some(Failure::undecodable(&error))),
    };
    let (started, limit) = (Instant::now(), queue.plan.handler_timeout);
    let in_time = tokio::time::timeout(limit, attempt).with_context(span.context().clone()).await;
    let result = in_time.unwrap_or_else(|_| Err(Failure::timeout(limit)));
    queue.metrics.processed(started.elapsed(), result.as_ref().err().map(Failure::class));
    let decision = decide(&queue.plan.policy, &arrival.ledger, &result, now());
    (decision, result.err())
}

/// Counts what became of the delivery, and logs a failure once, here.
fn account(queue: &Queue, arrival: &Arrival, chain: &Chain, settled: Settled, failure: Option<&Failure>) {
    let (name, attempt) = (queue.plan.queue.as_str(), arrival.ledger.attempt());
    let error = failure.map(Failure::message).unwrap_or_default();
    match settled {
        Settled::Done(outcome, reason) => {
            queue.tally.settled(outcome, reason);
            queue.metrics.settled(outcome, reason, attempt, now().since(arrival.ledger.first_seen));
            match (outcome, reason) {
                (Outcome::Ack, _) => tracing::trace!(queue = name, chain = %chain.id, attempt, "handled"),
                (_, Some(reason)) => {
                    tracing::warn!(queue = name, chain = %chain.id, attempt, %reason, error, "a message ended: {}", outcome.as_str());
                }
                (_, None) => {
                    tracing::info!(queue = name, chain = %chain.id, attempt, error, "an attempt failed: {}", outcome.as_str())
                }
            }
        }
        Settled::TooLate => {
            queue.tally.update(|summary| summary.too_late += 1);
            tracing::warn!(queue = name, chain = %chain.id, attempt, error, "the channel was gone before the message was settled; it comes again");
        }
    }
}
