//! Publishes the copy of a delivery, and waits until the broker keeps it.

use std::sync::Arc;

use crate::broker::lane::Outgoing;
use crate::clock;
use crate::consume::copy::WrittenCopy;
use crate::consume::copy_deadline::CopyDeadline;
use crate::consume::settler::Settler;
use crate::consume::started::Started;
use crate::consume::taken::Taken;
use crate::consume::unsettled::{Original, Unsettled, without_copy};
use crate::publish::NotPublished;
use crate::retry::outcome::Outcome;

/// Returns when the broker has confirmed the copy. One that is given up may exist.
///
/// # Errors
///
/// Why the copy was given up.
pub(crate) async fn copy(
    started: &Started,
    outcome: Outcome,
    copy: WrittenCopy,
) -> Result<(), Unsettled> {
    // The longer the ack comes after the copy, the likelier a crash leaves a duplicate. So what
    // holds up the ack holds up the copy.
    started.taken.context.settleable().await;
    let WrittenCopy { outgoing, bare, destination } = copy;
    match (publish(started, outgoing, &destination, outcome).await, bare) {
        (Err(Unsettled::Unpublishable), Some(bare)) => {
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
    let Started { taken: Taken { context, settler, .. }, chain, span, .. } = started;
    if settler.is_lost() {
        return Err(Unsettled::SessionEnded);
    }
    let span = context.tracer.client(chain, span, "send", destination);
    let since = clock::now();
    // Once the broker has the original again, a copy would be a second message, so this is checked
    // first.
    let published = tokio::select! {
        biased;
        () = settler.session_ended.cancelled() => Err(Unsettled::SessionEnded),
        () = until_deadline(&started.taken, outcome) => Err(Unsettled::Late),
        published = context.publisher.publish(copy, &context.stopping) => published.map_err(|error| match error {
            NotPublished::Unpublishable(_) => {
                tracing::error!(queue = %context.config.queue, chain = &*chain.id, %error, "the message cannot be copied");
                span.failed(Unsettled::Unpublishable.error_type(), error.to_string());
                Unsettled::Unpublishable
            }
            NotPublished::Stopped { may_be_stored } => Unsettled::Stopped { may_be_stored },
        }),
    };
    let error_type = published.err().map(Unsettled::error_type);
    context.metrics.sent(destination, clock::elapsed(since), error_type);
    if let Err(why) = published
        && why != Unsettled::Unpublishable
    {
        span.failed(why.error_type(), why.text().to_owned());
    }
    published
}

/// Returns when it is time to give the copy up: never, if the delivery would then stay unsettled.
async fn until_deadline(taken: &Taken, outcome: Outcome) {
    if without_copy(Unsettled::Late, outcome, Original::of(taken)).is_none() {
        return std::future::pending().await;
    }
    let publishing = &taken.context.publishing;
    let Settler { arrived, settle_limit, .. } = taken.settler;
    let (answer_timeout, now) = (publishing.answer_timeout(), clock::now());
    let line = taken.context.line;
    let until = line.copy_until(arrived.into_std(), settle_limit, now, answer_timeout);
    let mut deadline = CopyDeadline::new(until, answer_timeout);
    while let Some(at) = deadline.ask_again_at(clock::now(), publishing.state().is_blocked) {
        tokio::time::sleep_until(at.into()).await;
    }
}
