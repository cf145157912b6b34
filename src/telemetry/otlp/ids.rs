//! An id generator by which rehop's spans can be in a trace without having a parent.

use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

use crate::telemetry::ids;

/// Lets rehop put a span without a parent into a chain's trace; all other ids are random.
/// [`init`](super::init) uses it, and a service with a provider of its own passes it to
/// `with_id_generator`:
///
/// ```
/// let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder()
///     .with_resource(rehop::telemetry::resource("orders", None))
///     .with_id_generator(rehop::telemetry::ChainIds::new())
///     .build();
/// # drop(provider);
/// ```
///
/// Without it, what comes after a wait is below the producer's span where this process did not
/// record the wait, and Jaeger may doubt the clocks of two hosts; and the attempts of a message
/// without a trace context are in traces of their own until its first wait.
#[derive(Debug, Clone)]
pub struct ChainIds {
    random: RandomIdGenerator,
}

impl ChainIds {
    /// Make it only for the provider that is [made
    /// global](opentelemetry::global::set_tracer_provider).
    #[must_use]
    #[allow(
        clippy::new_without_default,
        reason = "to make one changes how this process records chains"
    )]
    pub fn new() -> Self {
        ids::listen();
        Self { random: RandomIdGenerator::default() }
    }
}

impl IdGenerator for ChainIds {
    fn new_trace_id(&self) -> TraceId {
        ids::meant().unwrap_or_else(|| self.random.new_trace_id())
    }

    fn new_span_id(&self) -> SpanId {
        self.random.new_span_id()
    }
}
