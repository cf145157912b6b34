//! The flow of one message, stage after stage, from the start of its attempt to its accounting.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::consume::accounted::account;
use crate::consume::copied::{publish_copy, settle_uncopied};
use crate::consume::decided::{Decided, Verdict, decide, decide_before};
use crate::consume::handled::handle;
use crate::consume::held::hold;
use crate::consume::intake::Slot;
use crate::consume::started::start;
use crate::consume::taken::Taken;

/// Runs the attempt at a delivery in a task of its own, until `abort` is cancelled. Its slot is
/// free again when the task ends, or the delivery is held.
pub(crate) fn spawn(taken: Box<Taken>, slot: Slot, abort: CancellationToken) {
    tokio::spawn(run(taken, slot, abort));
}

async fn run(taken: Box<Taken>, mut slot: Slot, abort: CancellationToken) {
    slot.mark_running();
    // Its channel may have been lost before this task runs for the first time.
    if abort.is_cancelled() {
        return;
    }
    let held = tokio::select! {
        // In an ordered queue, `abort` is the end of the session. A delivery that was left to that
        // is accounted for before its task ends.
        biased;
        held = attempt(taken, &slot) => held,
        () = abort.cancelled() => None,
    };
    if let Some((taken, due)) = held {
        slot.hold(taken, due.into_std());
    }
}

/// If the delivery stays in this process, returns it with the time of its next attempt. Then the
/// slot is not told that the handler has ended, or another handler could start before the delivery
/// is held.
async fn attempt(taken: Box<Taken>, slot: &Slot) -> Option<(Box<Taken>, Instant)> {
    let started = start(taken).await;
    let decided = match decide_before(&started) {
        Some(decided) => decided,
        None => {
            let handled = handle(&started).await;
            decide(&started, handled)
        }
    };
    let Decided { outcome, failure, at, verdict } = decided;
    let failure = failure.as_deref();
    let (how, written) = match verdict {
        Verdict::Hold(wait) => {
            account(&started, Ok(outcome), failure);
            return Some(hold(started, wait, outcome, failure, at.into()));
        }
        Verdict::Settle { how, copy } => (how, copy),
    };
    slot.handler_ended(&started.taken.delivery, how);
    // Boxed, because most deliveries need no copy and their tasks should stay small.
    let copied = match written {
        Some(written) => Box::pin(publish_copy(&started, outcome, *written)).await,
        None => Ok(()),
    };
    let settled = match copied {
        // A crash between the confirm and the settlement makes a duplicate, not a loss.
        Ok(()) => {
            started.taken.context.settleable().await;
            started.settle(outcome, how)
        }
        Err(why) => Box::pin(settle_uncopied(&started, outcome, why, slot)).await,
    };
    account(&started, settled, failure);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    /// The runtime moves a task's future several times before it runs, and large allocations are
    /// slow ones.
    #[test]
    fn the_task_of_a_delivery_stays_small() {
        let size = size_of_future(run);
        assert!(size <= 1200, "the future of one delivery takes {size} bytes");
    }
}
