//! Settles a delivery: as was decided or, if its copy was given up, as is still safe.

use std::time::Duration;

use tokio::time::timeout;

use crate::broker::acks::Settlement;
use crate::clock;
use crate::consume::intake::Slot;
use crate::consume::started::Started;
use crate::consume::taken::Taken;
use crate::consume::unsettled::without_copy;
use crate::retry::decision::Reason;
use crate::retry::outcome::{Outcome, Unsettled};

/// How long to pause before requeueing a message that can be neither copied nor safely
/// dead-lettered.
const UNPUBLISHABLE_PAUSE: Duration = Duration::from_secs(5);

/// Settles a delivery whose copy, if it needs one, the broker has confirmed. A crash between the
/// confirm and the settlement makes a duplicate, not a loss.
///
/// # Errors
///
/// Why the delivery was not settled with its outcome. The broker has it again.
pub(crate) async fn settle(
    started: &Started,
    outcome: Outcome,
    how: Settlement,
) -> Result<Outcome, Unsettled> {
    // While a subscription is ending, a settlement would make room for more deliveries.
    started.taken.context.settleable().await;
    recorded(started, outcome, how)
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
    why: Unsettled,
    slot: &Slot,
) -> Result<Outcome, Unsettled> {
    let Taken { context, delivery, .. } = &*started.taken;
    let is_unpublishable = matches!(why, Unsettled::Unpublishable { .. });
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
    slot.handler_ended(delivery, how);
    Err(if started.taken.settle(how) { why } else { Unsettled::ChannelClosed })
}

/// Settles, with a metric, and with a span if there is something to tell.
fn recorded(started: &Started, outcome: Outcome, how: Settlement) -> Result<Outcome, Unsettled> {
    let Started { taken, chain, span } = started;
    let context = &taken.context;
    let operation = how.as_str();
    let since = clock::now();
    let is_lost = !taken.settle(how);
    let error_type = is_lost.then_some(Unsettled::ChannelClosed.error_type());
    let took = clock::elapsed(since);
    context.metrics.operated(operation, took, error_type);
    context.tracer.settled(chain, span, (operation, outcome), took, error_type);
    if is_lost { Err(Unsettled::ChannelClosed) } else { Ok(outcome) }
}

/// Leaves the delivery to the end of its session. Its slot stays taken until then; otherwise the
/// next message of an ordered queue would start. A stop does not wait for it.
async fn leave(taken: &Taken, why: Unsettled) -> Result<Outcome, Unsettled> {
    let _left = taken.context.leave();
    taken.session_ended.cancelled().await;
    Err(why)
}

async fn dead_letter(started: &Started, outcome: Outcome) -> Result<Outcome, Unsettled> {
    let taken = &*started.taken;
    let context = &taken.context;
    context.settleable().await;
    let settled = recorded(started, outcome, Settlement::DeadLetter);
    // The next message of its line must not start while the broker may still bring this one back.
    if !context.line.allows_single_return() && !taken.settlement_is_final().await {
        return leave(taken, Unsettled::ChannelClosed).await;
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
