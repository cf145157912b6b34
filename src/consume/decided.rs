//! What is to be done with a delivery. A decision is interpreted here and nowhere else: its verdict
//! says all that follows.

use std::time::SystemTime;

use crate::broker::acks::Settlement;
use crate::clock;
use crate::consume::copy::{self, WrittenCopy};
use crate::consume::started::Started;
use crate::consume::taken::Taken;
use crate::failure::Failure;
use crate::random::random;
use crate::retry::decision::{self, Decision, Hold, Limits, Reason};
use crate::retry::ledger::Wait;
use crate::retry::outcome::Outcome;
use crate::timestamp::Timestamp;
use crate::wait::Path;
use crate::wait::jitter::Draw;

/// What was decided about a delivery.
pub(crate) struct Decided {
    pub(crate) outcome: Outcome,
    /// The failure that led to it. Boxed, because the task of a delivery should stay small.
    pub(crate) failure: Option<Box<Failure>>,
    pub(crate) at: SystemTime,
    pub(crate) verdict: Verdict,
}

/// What is to be done with the delivery.
pub(crate) enum Verdict {
    /// This process keeps it for its next attempt: after this wait, or at once.
    Hold(Option<Wait>),
    /// It is settled in this way, as soon as the broker keeps the copy, if there is one.
    Settle { how: Settlement, copy: Option<Box<WrittenCopy>> },
}

/// Decides before an attempt. `None`: the handler is to run.
pub(crate) fn decide_before(started: &Started) -> Option<Decided> {
    let Taken { context, delivery, .. } = &*started.taken;
    let at = clock::date();
    let limits = || limits(&started.taken);
    decision::decide_before(&context.config.policy, &delivery.ledger, at.into(), limits)
        .map(|decision| interpret(started, decision, None, at))
}

/// Decides after an attempt. A failure that asks for too long a delay, or defers too often, says so
/// in its text.
pub(crate) fn decide(started: &Started, handled: Result<(), Failure>) -> Decided {
    let Taken { context, delivery, .. } = &*started.taken;
    let policy = &context.config.policy;
    let (at, draw) = (clock::date(), Draw::new(random()));
    let limits = || limits(&started.taken);
    let decision = decision::decide(policy, &delivery.ledger, &handled, at.into(), limits, draw);
    let failure = handled.err().map(|failure| match decision {
        Decision::Park(Reason::DelayTooLong) => {
            failure.asks_more_than(&policy.why_no_longer(context.config.order.is_kept()))
        }
        Decision::Park(Reason::DeferredTooOften) => failure.defers_more_than(policy.max_defers),
        _ => failure,
    });
    interpret(started, decision, failure, at)
}

/// What bounds how this delivery may wait or come again. The wall clock may have jumped since the
/// delivery arrived, so its age is not measured by it.
fn limits(taken: &Taken) -> Limits {
    let Taken { context, delivery, arrived, settle_limit, .. } = taken;
    let held_for = arrived.elapsed();
    let hold = context.hold_limit.map(|limit| Hold {
        max_asked: limit.saturating_sub(held_for),
        time_left: context
            .line
            .longest_hold(*settle_limit, held_for + context.config.handler_timeout),
        redeliveries: context.contract.redeliveries_of(delivery),
    });
    // A quorum queue counts its returns in the message's headers.
    let lets_return = !context.contract.counts_deliveries
        || context.publishing.room().lets_return(&delivery.properties);
    Limits { hold, lets_return }
}

/// The verdict, with its copy written. The attempt's span ends here.
fn interpret(
    started: &Started,
    decision: Decision,
    failure: Option<Failure>,
    at: SystemTime,
) -> Decided {
    let since = Timestamp::from(at);
    if decision == Decision::Park(Reason::Unpublishable) {
        let (queue, chain) = (&started.taken.context.config.queue, &*started.chain.id);
        tracing::error!(%queue, chain, "the message's headers fill a frame, so it cannot be requeued; parking it");
    }
    let settle = |how| (Outcome::of(decision), Verdict::Settle { how, copy: None });
    let (outcome, verdict) = match decision {
        Decision::Ack | Decision::Discard(_) => settle(Settlement::Ack),
        Decision::Requeue => {
            started.taken.context.tracer.requeued(&started.chain);
            settle(Settlement::Requeue)
        }
        Decision::Again => (Outcome::of(decision), Verdict::Hold(None)),
        Decision::Wait { wait, is_defer } => match wait.path {
            Path::Hold => (Outcome::of(decision), Verdict::Hold(Some(wait))),
            // The broker keeps the message until the wait is over.
            Path::Return => settle(Settlement::Nack),
            Path::Tier | Path::Ladder { .. } | Path::Delayed => {
                match copy::waiting(started, wait, is_defer, failure.as_ref()) {
                    Ok(copy) => (Outcome::of(decision), ack_after(copy)),
                    Err(error) => {
                        let queue = &started.taken.context.config.queue;
                        let chain = &*started.chain.id;
                        tracing::error!(%queue, chain, %error, "the message cannot wait; parking it");
                        park(started, Reason::Unpublishable, failure.as_ref(), since)
                    }
                }
            }
        },
        Decision::Park(reason) => park(started, reason, failure.as_ref(), since),
    };
    started.span.end(outcome, failure.as_ref(), at);
    Decided { outcome, failure: failure.map(Box::new), at, verdict }
}

fn park(
    started: &Started,
    reason: Reason,
    failure: Option<&Failure>,
    since: Timestamp,
) -> (Outcome, Verdict) {
    (Outcome::Park(reason), ack_after(copy::parked(started, reason, failure, since)))
}

fn ack_after(copy: Box<WrittenCopy>) -> Verdict {
    Verdict::Settle { how: Settlement::Ack, copy: Some(copy) }
}
