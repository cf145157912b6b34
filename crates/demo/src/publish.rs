//! The publisher: any program, with a span around each message.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use opentelemetry::trace::{SpanKind, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue, global};
use rehop::internals::date;
use rehop::telemetry;
use tokio::time::{Instant, sleep_until};

use super::client::Client;
use super::lock::lock;
use super::play::{Play, Sent};
use super::script::{EXCHANGE, OUTAGE, Order};
use super::traces::nanos;

/// How long publishing takes, unless there are very many orders. The outage and the crashes both
/// happen during this time.
const PUBLISHING: Duration = Duration::from_secs(6);
const _: () = assert!(OUTAGE.end.as_nanos() < PUBLISHING.as_nanos());
/// The shortest interval that the handlers can keep up with.
const CLOSEST: Duration = Duration::from_millis(3);
/// How many publishes may wait for their confirms at a time.
const PIPELINED: usize = 16;

impl<C: Client> Play<C> {
    /// Publishes the orders at a steady pace, and records what the broker has confirmed.
    pub(crate) async fn publish(&self) -> anyhow::Result<()> {
        let pace = PUBLISHING.div_f64(self.orders.len() as f64).max(CLOSEST);
        let start = Instant::now();
        self.shop.open();
        let publishing: Vec<_> = self
            .orders
            .iter()
            .zip(0..)
            .map(|(order, turn)| {
                let published = async move {
                    sleep_until(start + pace * turn).await;
                    self.publish_one(order).await
                };
                published.boxed()
            })
            .collect();
        let mut confirmed = stream::iter(publishing).buffered(PIPELINED);
        while let Some(sent) = confirmed.try_next().await? {
            lock(&self.sent).push(sent);
        }
        Ok(())
    }

    async fn publish_one(&self, order: &Order) -> anyhow::Result<Sent> {
        let destination = format!("{EXCHANGE}:{}", order.routing_key);
        let (tracer, started) = (global::tracer("rehop demo"), date());
        let span = tracer
            .span_builder(format!("publish {destination}"))
            .with_kind(SpanKind::Producer)
            .with_start_time(started)
            .with_attributes([
                KeyValue::new("messaging.system", "rabbitmq"),
                KeyValue::new("messaging.operation.name", "publish"),
                KeyValue::new("messaging.operation.type", "send"),
                KeyValue::new("messaging.destination.name", destination),
            ])
            .start(&tracer);
        let context = Context::new().with_span(span);
        let at = nanos(started);
        let trace_headers = {
            let _current = context.clone().attach();
            telemetry::current_headers()
        };
        let message = trace_headers
            .into_iter()
            .fold(order.message(at), |message, (name, value)| message.header(name, value));
        self.client.publish(message).await?;
        context.span().end_with_timestamp(date());
        Ok(Sent {
            order: order.clone(),
            at,
            trace_id: context.span().span_context().trace_id().to_string(),
        })
    }
}
