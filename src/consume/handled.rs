//! Runs the handler on a delivery.

use std::panic::AssertUnwindSafe;

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
        Ok(handler) => run(started, handler).await,
        Err(error) => Err(Failure::undecodable(&error)),
    }
}

/// Runs the handler with its time limit, inside the attempt's spans. A panic is a failure of this
/// message alone, even if a handler that ran out of time panics while it is dropped. It may leave
/// the handler's own state half changed.
async fn run(started: &Started, handler: HandlerFuture) -> Result<(), Failure> {
    let Taken { context, delivery, .. } = &*started.taken;
    let (since, limit) = (clock::now(), context.config.handler_timeout);
    let span = handler_span(&context.config.queue, &started.chain.id, delivery);
    let handler = handler.instrument(span);
    let in_time =
        async { timeout(limit, handler).await.unwrap_or_else(|_| Err(Failure::timeout(limit))) };
    let caught =
        AssertUnwindSafe(in_time).catch_unwind().with_context(started.span.context().clone()).await;
    let result = caught.unwrap_or_else(|payload| Err(Failure::panic(payload.as_ref())));
    let failed = result.as_ref().err().filter(|failure| !failure.is_defer());
    context.metrics.processed(clock::elapsed(since), failed.map(Failure::class));
    result
}
