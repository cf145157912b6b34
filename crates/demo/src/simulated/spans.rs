//! Keeps the spans of all processes of a world, which are in one process here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry::global;
use opentelemetry::trace::SpanKind;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, Span as Running, SpanData, SpanProcessor};
use rehop::telemetry::ChainIds;

use crate::lock::lock;
use crate::traces::Span;

#[derive(Debug, Clone, Default)]
pub(super) struct Recorder(Arc<Kept>);

#[derive(Debug, Default)]
struct Kept {
    spans: Mutex<Vec<SpanData>>,
    /// The service is dead, and its spans with it.
    is_service_dead: AtomicBool,
}

impl Recorder {
    /// Records the spans of this process from now on.
    pub(super) fn install() -> Self {
        let recorder = Self::default();
        let builder = SdkTracerProvider::builder().with_id_generator(ChainIds::new());
        global::set_tracer_provider(builder.with_span_processor(recorder.clone()).build());
        recorder
    }

    /// What ends from now on ends by the death of its process. Only the publisher lives on.
    pub(super) fn forget_the_service(&self) {
        self.0.is_service_dead.store(true, Ordering::Relaxed);
    }

    pub(super) fn remember_all(&self) {
        self.0.is_service_dead.store(false, Ordering::Relaxed);
    }

    pub(super) fn take_spans(&self) -> Vec<Span> {
        lock(&self.0.spans).drain(..).map(Span::from).collect()
    }
}

impl SpanProcessor for Recorder {
    fn on_start(&self, _: &mut Running, _: &opentelemetry::Context) {}

    fn on_end(&self, span: SpanData) {
        let is_publisher = span.span_kind == SpanKind::Producer;
        if is_publisher || !self.0.is_service_dead.load(Ordering::Relaxed) {
            lock(&self.0.spans).push(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}
