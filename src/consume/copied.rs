//! Publishes the copy of a delivery, and waits until the broker keeps it. If the copy is given up,
//! settles the delivery without it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{sleep_until, timeout};

use crate::broker::acks::Settlement;
use crate::broker::lane::Outgoing;
use crate::clock;
use crate::consume::context::QueueContext;
use crate::consume::copy::WrittenCopy;
use crate::consume::copy_deadline::CopyDeadline;
use crate::consume::intake::Slot;
use crate::consume::original::{Original, settlement_without_copy};
use crate::consume::started::Started;
use crate::consume::taken::Taken;
use crate::publish::GivenUp;
use crate::retry::decision::Reason;
use crate::retry::outcome::Outcome;

/// How long to pause before requeueing a message that can be neither copied nor safely
/// dead-lettered.
const UNPUBLISHABLE_PAUSE: Duration = Duration::from_secs(5);

/// Returns when the broker has confirmed the copy. One that is given up may have been stored.
///
/// # Errors
///
/// Why the copy was given up.
pub(crate) async fn publish_copy(
    started: &Started,
    outcome: Outcome,
    written: WrittenCopy,
) -> Result<(), GivenUp> {
    // The longer the ack comes after the copy, the likelier a crash leaves a duplicate. So what
    // holds up the ack holds up the copy.
    started.taken.context.settleable().await;
    let WrittenCopy { outgoing, bare, destination } = written;
    match (publish(started, outgoing, &destination, outcome).await, bare) {
        (Err(GivenUp::Unpublishable { .. }), Some(bare)) => {
            publish(started, bare, &destination, outcome).await
        }
        (result, _) => result,
    }
}

async fn publish(
    started: &Started,
    copy: Arc<Outgoing>,
    destination: &str,
    outcome: Outcome,
) -> Result<(), GivenUp> {
    let Started { taken, chain, span } = started;
    let context = &taken.context;
    if taken.is_lost() {
        return Err(GivenUp::SessionEnded);
    }
    let span = context.tracer.sent(chain, span, destination, outcome);
    let since = clock::now();
    let publishing = context.publisher.publish(copy, &context.stopping);
    let published = in_time(taken, outcome, publishing).await;
    let error_type = published.as_ref().err().map(GivenUp::error_type);
    context.metrics.sent(destination, clock::elapsed(since), error_type);
    match &published {
        Ok(()) => span.confirmed(),
        Err(why) => {
            let mut text = why.text().to_owned();
            if let GivenUp::Unpublishable { answer } = why {
                tracing::error!(queue = %context.config.queue, chain = &*chain.id, %answer, "the message cannot be copied");
                text = format!("{text}: {answer}");
            }
            span.failed(why.error_type(), text);
        }
    }
    published
}

/// Gives a copy up in time. One whose time is over before it begins is not published at all.
async fn in_time(
    taken: &Taken,
    outcome: Outcome,
    publishing: impl Future<Output = Result<(), GivenUp>>,
) -> Result<(), GivenUp> {
    let mut deadline = pin!(until_deadline(taken, outcome));
    if (&mut deadline).now_or_never().is_some() {
        return Err(GivenUp::Late);
    }
    tokio::select! {
        biased;
        // Once the broker has the original again, a copy would be a second message.
        () = taken.session_ended.cancelled() => Err(GivenUp::SessionEnded),
        // Before the deadline, because a confirm that has come counts, however late this runs.
        published = publishing => published,
        () = deadline => Err(GivenUp::Late),
    }
}

/// Returns when it is time to give the copy up: never, if the delivery would then stay unsettled.
async fn until_deadline(taken: &Taken, outcome: Outcome) {
    if without_copy(&GivenUp::Late, outcome, taken).is_none() {
        return std::future::pending().await;
    }
    let QueueContext { publishing, line, .. } = &*taken.context;
    let settle_within = (taken.arrived.into_std(), taken.settle_limit);
    let mut deadline =
        CopyDeadline::new(*line, settle_within, clock::now(), publishing.answer_timeout());
    while let Some(at) = deadline.ask_again_at(clock::now(), publishing.state().is_blocked) {
        sleep_until(at.into()).await;
    }
}

/// Settles a delivery whose copy was given up.
///
/// # Errors
///
/// Why it was not settled with its outcome. Then it has gone back to its queue, or goes back when
/// its session ends, unless the broker has it again anyway.
pub(crate) async fn settle_uncopied(
    started: &Started,
    outcome: Outcome,
    why: GivenUp,
    slot: &Slot,
) -> Result<Outcome, GivenUp> {
    let Taken { context, delivery, .. } = &*started.taken;
    let is_unpublishable = matches!(why, GivenUp::Unpublishable { .. });
    let how = match without_copy(&why, outcome, &started.taken) {
        None => return leave(&started.taken, why).await,
        Some(Settlement::DeadLetter) if is_unpublishable => {
            return dead_letter(started, Outcome::Park(Reason::Unpublishable)).await;
        }
        Some(Settlement::DeadLetter) => return dead_letter(started, outcome).await,
        Some(how) => how,
    };
    if is_unpublishable {
        let _ = timeout(UNPUBLISHABLE_PAUSE, context.stopping.cancelled()).await;
    }
    context.settleable().await;
    // The slot was told before how the delivery would be settled as was decided.
    slot.handler_ended(delivery, how);
    Err(if started.taken.settle(how) { why } else { GivenUp::ChannelClosed })
}

/// Leaves the delivery to the end of its session. Its slot stays taken until then; otherwise the
/// next message of an ordered queue would start. A stop does not wait for it.
async fn leave(taken: &Taken, why: GivenUp) -> Result<Outcome, GivenUp> {
    let _left = taken.context.leave();
    taken.session_ended.cancelled().await;
    Err(why)
}

async fn dead_letter(started: &Started, outcome: Outcome) -> Result<Outcome, GivenUp> {
    let taken = &*started.taken;
    let context = &taken.context;
    context.settleable().await;
    let settled = started.settle(outcome, Settlement::DeadLetter);
    // The next message of its line must not start while the broker may still bring this one back.
    if !context.line.allows_single_return() && !taken.settlement_is_final().await {
        return leave(taken, GivenUp::ChannelClosed).await;
    }
    if settled.is_ok() {
        let (queue, chain) = (&context.config.queue, &*started.chain.id);
        tracing::warn!(
            %queue, chain,
            "no copy was accepted, so the broker parks the message as it is, without its last failure in the headers"
        );
    }
    settled
}

/// How to settle the delivery if its copy is given up for this reason, if at all.
fn without_copy(why: &GivenUp, outcome: Outcome, taken: &Taken) -> Option<Settlement> {
    let config = &taken.context.config;
    let original = Original {
        declare: config.declare,
        line: taken.context.line,
        redeliveries: taken.context.contract.redeliveries_of(&taken.delivery),
        delivery_limit: config.policy.delivery_limit,
        hand_back_by: taken.hand_back_by(),
    };
    settlement_without_copy(why, outcome, original)
}
