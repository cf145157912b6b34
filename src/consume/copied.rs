//! Publishes the copy of a delivery, and waits until the broker keeps it.

use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt as _;

use crate::broker::lane::Outgoing;
use crate::clock;
use crate::consume::context::QueueContext;
use crate::consume::copy::WrittenCopy;
use crate::consume::copy_deadline::CopyDeadline;
use crate::consume::started::Started;
use crate::consume::taken::Taken;
use crate::consume::unsettled::without_copy;
use crate::retry::outcome::{Outcome, Unsettled};

/// Returns when the broker has confirmed the copy. One that is given up may have been stored.
///
/// # Errors
///
/// Why the copy was given up.
pub(crate) async fn publish_copy(
    started: &Started,
    outcome: Outcome,
    written: WrittenCopy,
) -> Result<(), Unsettled> {
    // The longer the ack comes after the copy, the likelier a crash leaves a duplicate. So what
    // holds up the ack holds up the copy.
    started.taken.context.settleable().await;
    let WrittenCopy { outgoing, bare, destination } = written;
    match (publish(started, outgoing, &destination, outcome).await, bare) {
        (Err(Unsettled::Unpublishable { .. }), Some(bare)) => {
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
) -> Result<(), Unsettled> {
    let Started { taken, chain, span } = started;
    let context = &taken.context;
    if taken.is_lost() {
        return Err(Unsettled::SessionEnded);
    }
    let span = context.tracer.sent(chain, span, destination, outcome);
    let since = clock::now();
    let publishing = context.publisher.publish(copy, &context.stopping);
    let published = in_time(taken, outcome, publishing).await;
    let error_type = published.as_ref().err().map(Unsettled::error_type);
    context.metrics.sent(destination, clock::elapsed(since), error_type);
    match &published {
        Ok(()) => span.confirmed(),
        Err(why) => {
            if let Unsettled::Unpublishable { answer } = why {
                tracing::error!(queue = %context.config.queue, chain = &*chain.id, %answer, "the message cannot be copied");
            }
            span.failed(why.error_type(), why.text().to_owned());
        }
    }
    published
}

/// Gives a copy up in time. One whose time is over before it begins is not published at all.
async fn in_time(
    taken: &Taken,
    outcome: Outcome,
    publishing: impl Future<Output = Result<(), Unsettled>>,
) -> Result<(), Unsettled> {
    let mut deadline = pin!(until_deadline(taken, outcome));
    if (&mut deadline).now_or_never().is_some() {
        return Err(Unsettled::Late);
    }
    tokio::select! {
        biased;
        // Once the broker has the original again, a copy would be a second message.
        () = taken.session_ended.cancelled() => Err(Unsettled::SessionEnded),
        // Before the deadline, because a confirm that has come counts, however late this runs.
        published = publishing => published,
        () = deadline => Err(Unsettled::Late),
    }
}

/// Returns when it is time to give the copy up: never, if the delivery would then stay unsettled.
async fn until_deadline(taken: &Taken, outcome: Outcome) {
    if without_copy(&Unsettled::Late, outcome, taken).is_none() {
        return std::future::pending().await;
    }
    let QueueContext { publishing, line, .. } = &*taken.context;
    let settle_within = (taken.arrived.into_std(), taken.settle_limit);
    let mut deadline =
        CopyDeadline::new(*line, settle_within, clock::now(), publishing.answer_timeout());
    while let Some(at) = deadline.ask_again_at(clock::now(), publishing.state().is_blocked) {
        tokio::time::sleep_until(at.into()).await;
    }
}
