//! Runs the handler on a delivery.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use opentelemetry::trace::FutureExt as _;
use tokio::time::timeout;
use tracing::Instrument as _;

use crate::clock;
use crate::consume::started::Started;
use crate::consume::taken::Taken;
use crate::failure::Failure;
use crate::handler::HandlerFuture;
use crate::telemetry::handler_span::handler_span;

/// Decodes the body and calls the handler. A body that does not decode is a failure, too.
pub(crate) async fn handle(started: &Started) -> Result<(), Failure> {
    let Taken { context, delivery, .. } = &*started.taken;
    match context.handler.prepare(delivery, &context.source) {
        Ok(handler) => {
            started.tell(None, None);
            run(started, handler).await
        }
        Err(error) => Err(Failure::undecodable(&error)),
    }
}

/// Runs the handler with its time limit, inside the attempt's spans.
async fn run(started: &Started, handler: HandlerFuture) -> Result<(), Failure> {
    let Taken { context, delivery, .. } = &*started.taken;
    let (since, limit) = (clock::now(), context.config.handler_timeout);
    let span = handler_span(&context.config.queue, &started.chain.id, delivery);
    let handler = caught(handler.instrument(span), limit);
    let result = handler.with_context(started.span.context().clone()).await;
    let failed = result.as_ref().err().filter(|failure| !failure.is_defer());
    let took = clock::elapsed(since);
    context.metrics.processed(took, failed.map(Failure::class));
    let of = (context.config.queue.as_str(), &*started.chain.id);
    context.advice.warn_if_blocked(of, took, context.config.handler_timeout);
    result
}

/// Runs a handler for this long at most. A panic is a failure of this message alone, even if a
/// handler that ran out of time panics while it is dropped. It may leave the handler's own state
/// half changed.
pub(crate) fn caught(
    handler: impl Future<Output = Result<(), Failure>>,
    limit: Duration,
) -> impl Future<Output = Result<(), Failure>> {
    let in_time = async move {
        timeout(limit, handler).await.unwrap_or_else(|_| Err(Failure::timeout(limit)))
    };
    let caught = AssertUnwindSafe(in_time).catch_unwind();
    caught.map(|ended| ended.unwrap_or_else(|payload| Err(Failure::panic(payload.as_ref()))))
}
