//! From a decision to what reaches the broker. The only file that acks, rejects or hands copies to the publisher.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use lapin::options::{BasicAckOptions, BasicNackOptions, BasicRejectOptions};
use lapin::types::ShortString;
use lapin::{Acker, BasicProperties};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::ledger::{Ledger, Wait};
use crate::message::Arrival;
use crate::policy::{Decision, Reason};
use crate::publisher::Copy;
use crate::queue::{Queue, now};
use crate::settings::Declare;
use crate::telemetry::metrics::Outcome;
use crate::telemetry::spans::{Chain, ProcessSpan};
use crate::timestamp::Timestamp;

/// Settles one delivery, on the channel that it came by and on no other.
pub(crate) struct Settler {
    pub(crate) acker: Acker,
    /// Cancelled when that channel is gone: nothing can be settled any more, and the broker delivers again.
    pub(crate) lost: CancellationToken,
}

/// What reached the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The delivery ended so.
    Done(Outcome, Option<Reason>),
    /// The channel was gone before. The broker delivers again.
    TooLate,
}

impl Settler {
    pub(crate) fn ack(&self) -> bool {
        queued(self.acker.ack(BasicAckOptions::default()))
    }

    /// Back to the head of the queue, counted. Reject and not nack: from 4.3 on, a nack never reaches the delivery limit.
    fn requeue(&self) -> bool {
        queued(self.acker.reject(BasicRejectOptions { requeue: true }))
    }

    /// To wherever the queue dead-letters to.
    fn refuse(&self) -> bool {
        queued(self.acker.reject(BasicRejectOptions { requeue: false }))
    }

    /// Back to the queue because no handler has seen it. On 4.3 that is not counted; on 3.10 and 4.0 every return is.
    pub(crate) fn hand_back(&self) -> bool {
        queued(self.acker.nack(BasicNackOptions { requeue: true, multiple: false }))
    }
}

/// One poll queues the frame, and nothing is gained by waiting until it is written: three times the throughput (lapin 4.12).
/// False when the channel was gone and nothing was queued.
fn queued(frame: impl Future<Output = lapin::Result<bool>>) -> bool {
    frame.now_or_never().is_none_or(|result| result.unwrap_or(false))
}

/// What a decision makes of a delivery: the copy that goes before the ack, if any, and the outcome.
pub(crate) struct Plan {
    copy: Option<Outgoing>,
    pub(crate) outcome: Outcome,
    pub(crate) reason: Option<Reason>,
    /// How long the copy waits.
    pub(crate) delay: Option<Duration>,
}

/// Writes the copy that a decision needs. A message whose own headers leave no room for ours cannot wait, and is parked.
pub(crate) fn plan(
    queue: &Queue,
    arrival: &Arrival,
    failure: Option<&Failure>,
    decision: Decision,
    chain: &Chain,
    process: &ProcessSpan,
) -> Plan {
    let without_copy = |outcome, reason| Plan { copy: None, outcome, reason, delay: None };
    let since = now();
    match decision {
        Decision::Ack => without_copy(Outcome::Ack, None),
        Decision::Requeue => without_copy(Outcome::Requeue, None),
        Decision::Discard(reason) => without_copy(Outcome::Discard, Some(reason)),
        Decision::Wait { tier, due } => {
            let mut ledger = carried(arrival, failure, since, chain);
            // What goes on with a wait of several legs has had no attempt, and no hop of its own.
            if failure.is_some() {
                ledger.hop += 1;
            }
            let contract = &queue.plan.contract;
            match contract.wait_copy(arrival, &ledger, Wait { since, due, tier }, &chain.headers(process)) {
                Ok(properties) => {
                    let copy = Outgoing {
                        exchange: queue.names.wait(),
                        routing_key: arrival.routing_key.clone(),
                        properties,
                        destination: queue.names.tier(tier),
                    };
                    Plan { copy: Some(copy), outcome: Outcome::Wait, reason: None, delay: Some(due.since(since)) }
                }
                Err(error) => {
                    tracing::error!(queue = %queue.plan.queue, chain = %chain.id, %error, "a message cannot wait and is parked");
                    plan(queue, arrival, failure, Decision::Park(Reason::Unpublishable), chain, process)
                }
            }
        }
        Decision::Park(reason) => {
            let ledger = carried(arrival, failure, since, chain);
            let copy = Outgoing {
                exchange: queue.names.park(),
                routing_key: ShortString::try_new(queue.plan.queue.as_str()).unwrap_or_default(),
                properties: queue.plan.contract.parked_copy(arrival, &ledger, reason, &chain.headers(process)),
                destination: queue.plan.parked.clone(),
            };
            Plan { copy: Some(copy), outcome: Outcome::Park, reason: Some(reason), delay: None }
        }
    }
}

/// The ledger that a copy takes along.
fn carried(arrival: &Arrival, failure: Option<&Failure>, now: Timestamp, chain: &Chain) -> Ledger {
    let mut ledger = arrival.ledger.after(failure, now);
    ledger.chain_id.get_or_insert_with(|| chain.id.to_string());
    ledger
}

/// Carries a plan out. A copy is confirmed before the original is acked: a crash between the two makes a duplicate.
pub(crate) async fn settle(
    queue: &Queue,
    settler: &Settler,
    arrival: &Arrival,
    plan: Plan,
    chain: &Chain,
    process: &ProcessSpan,
) -> Settled {
    if plan.outcome == Outcome::Requeue {
        return requeue(queue, settler, chain, process);
    }
    if let Some(copy) = plan.copy {
        match send(queue, settler, arrival, copy, chain, process).await {
            Sent::Confirmed => {}
            Sent::Lost => return Settled::TooLate,
            Sent::Impossible => return refuse(queue, settler, chain, process).await,
        }
    }
    recorded(queue, chain, process, "ack", || settler.ack(), Settled::Done(plan.outcome, plan.reason))
}

fn requeue(queue: &Queue, settler: &Settler, chain: &Chain, process: &ProcessSpan) -> Settled {
    recorded(queue, chain, process, "reject", || settler.requeue(), Settled::Done(Outcome::Requeue, None))
}

/// Settles, with a span and a metric.
fn recorded(
    queue: &Queue,
    chain: &Chain,
    process: &ProcessSpan,
    operation: &'static str,
    act: impl FnOnce() -> bool,
    done: Settled,
) -> Settled {
    let span = queue.tracer.client(chain, process, operation, &queue.plan.queue);
    let started = Instant::now();
    let settled = act();
    let error_type = (!settled).then_some("channel_closed");
    queue.metrics.operated(operation, started.elapsed(), error_type);
    if let Some(error_type) = error_type {
        span.failed(error_type, format!("the channel was closed before the {operation}"));
        return Settled::TooLate;
    }
    done
}

struct Outgoing {
    exchange: String,
    routing_key: ShortString,
    properties: BasicProperties,
    /// The queue that it is meant for, as spans and metrics name it.
    destination: String,
}

enum Sent {
    Confirmed,
    /// The original's channel is gone; the copy may exist.
    Lost,
    /// The broker takes no copy of this message.
    Impossible,
}

async fn send(
    queue: &Queue,
    settler: &Settler,
    arrival: &Arrival,
    copy: Outgoing,
    chain: &Chain,
    process: &ProcessSpan,
) -> Sent {
    let span = queue.tracer.client(chain, process, "send", &copy.destination);
    let outgoing = Copy {
        exchange: ShortString::try_new(copy.exchange).unwrap_or_default(),
        routing_key: copy.routing_key,
        properties: copy.properties,
        body: arrival.envelope.body.clone(),
    };
    let started = Instant::now();
    let published = tokio::select! {
        biased;
        published = queue.publisher.publish(outgoing) => published,
        () = settler.lost.cancelled() => {
            span.failed("channel_closed", "the delivery's channel was closed before its copy was confirmed".to_owned());
            queue.metrics.sent(&copy.destination, started.elapsed(), Some("channel_closed"));
            return Sent::Lost;
        }
    };
    let error_type = published.as_ref().err().map(|_| "unpublishable");
    queue.metrics.sent(&copy.destination, started.elapsed(), error_type);
    match published {
        Ok(()) => Sent::Confirmed,
        Err(error) => {
            tracing::error!(queue = %queue.plan.queue, chain = %chain.id, %error, "no copy of a message is possible");
            span.failed("unpublishable", error.to_string());
            Sent::Impossible
        }
    }
}

/// How long a message is held back that can neither be copied nor dead-lettered with certainty.
const HELD: Duration = Duration::from_secs(5);

/// What cannot be copied is left to the broker: it moves the message as it is. Our own queue dead-letters to the parked queue.
/// Where another's leads, if anywhere, is unknown, so there the message goes back to the queue, slowly.
async fn refuse(queue: &Queue, settler: &Settler, chain: &Chain, process: &ProcessSpan) -> Settled {
    if queue.plan.declare == Declare::Existing {
        tokio::time::sleep(HELD).await;
        return requeue(queue, settler, chain, process);
    }
    let parked = Settled::Done(Outcome::Park, Some(Reason::Unpublishable));
    recorded(queue, chain, process, "reject", || settler.refuse(), parked)
}
