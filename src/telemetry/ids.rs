//! The trace of a span that has no parent.
//!
//! OpenTelemetry's API begins a new trace with each span that has no parent. rehop needs such spans
//! inside a trace: what comes after a wait is on a clock of its own, and a parent on another host
//! would let Jaeger doubt and move it. So rehop says on this thread which trace it means, and the
//! provider's id generator, if it is rehop's own, gives the span this trace's id. The API alone is
//! needed for this.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::Context;
use opentelemetry::global::BoxedTracer;
use opentelemetry::trace::{
    Link, SpanBuilder, SpanContext, SpanId, TraceContextExt, TraceId, Tracer,
};

thread_local! {
    static NEXT: Cell<Option<TraceId>> = const { Cell::new(None) };
}

/// Whether the provider's id generator is rehop's own.
static IS_HEARD: AtomicBool = AtomicBool::new(false);

/// The process has an id generator that listens.
#[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "the generator needs the SDK"))]
pub(crate) fn listen() {
    IS_HEARD.store(true, Ordering::Relaxed);
}

/// Whether a span without a parent can be in a trace of rehop's choice.
pub(crate) fn are_chosen() -> bool {
    IS_HEARD.load(Ordering::Relaxed)
}

/// A span without a parent that is built in `build` is in this trace.
fn within<R>(trace: TraceId, build: impl FnOnce() -> R) -> R {
    struct Reset(Option<TraceId>);
    impl Drop for Reset {
        fn drop(&mut self) {
            NEXT.set(self.0);
        }
    }
    let _reset = Reset(NEXT.replace(Some(trace)));
    build()
}

/// The trace that is meant, for the generator.
#[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "the generator needs the SDK"))]
pub(crate) fn meant() -> Option<TraceId> {
    NEXT.get()
}

/// The id of a trace that several processes begin independently: the same for the same parts, in
/// all versions.
pub(crate) fn computed(parts: &[&[u8]]) -> TraceId {
    // FNV-1a over each part and its length, so that no two lists of parts are one text. Its high
    // bits hardly depend on the last bytes, and samplers read some bits alone, so they are mixed.
    let mut hash = 0x6C62_272E_07BB_0142_62B8_2175_6295_C58D_u128;
    let mut add = |byte: u8| {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013B)
    };
    for part in parts {
        part.iter().copied().for_each(&mut add);
        (part.len() as u64).to_be_bytes().into_iter().for_each(&mut add);
    }
    let (high, low) = ((hash >> 64) as u64, hash as u64);
    let low = mixed(low ^ mixed(high));
    let mixed = (u128::from(mixed(high ^ low)) << 64) | u128::from(low);
    // Zero is no id.
    TraceId::from(mixed.max(1))
}

/// splitmix64's last step.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// A context for spans in this span's trace that are below no span, and that trace, if that can be
/// done. Otherwise they are its children.
pub(crate) fn beside(span: &SpanContext, context: &Context) -> (Context, Option<TraceId>) {
    // What is not recorded is passed on as it came.
    if !are_chosen() || !span.is_sampled() {
        return (context.with_remote_span_context(span.clone()), None);
    }
    // Samplers see the decision and the state of the trace, but no parent.
    let state = span.trace_state().clone();
    let trace = SpanContext::new(span.trace_id(), SpanId::INVALID, span.trace_flags(), true, state);
    (context.with_remote_span_context(trace), Some(span.trace_id()))
}

/// Builds a span below `parent` or, if it has no span, in this trace. One that is in another trace
/// then, because another provider than that with the generator made it, is built once more, as a
/// child of `origin`.
pub(crate) fn build(
    tracer: &BoxedTracer,
    mut builder: SpanBuilder,
    parent: &Context,
    (trace, origin): (Option<TraceId>, Option<&SpanContext>),
) -> Context {
    let Some(trace) = trace else {
        return parent.with_span(tracer.build_with_context(builder, parent));
    };
    let context =
        parent.with_span(within(trace, || tracer.build_with_context(builder.clone(), parent)));
    let built = context.span().span_context().clone();
    if built.is_valid() && built.trace_id() == trace {
        return context;
    }
    IS_HEARD.store(false, Ordering::Relaxed);
    match origin {
        Some(origin) => {
            let parent = parent.with_remote_span_context(origin.clone());
            // `origin` is now its parent, and Jaeger does not show a span that links to its parent
            // as its child.
            let is_other = |link: &Link| link.span_context.span_id() != origin.span_id();
            builder.links.iter_mut().for_each(|links| links.retain(is_other));
            parent.with_span(tracer.build_with_context(builder, &parent))
        }
        // It is the first span of a trace, whatever that is.
        None => context,
    }
}

/// The trace of a message whose producer has none, if the message can be told from others: an id
/// that its producer gave it. A producer that uses an id again gives another timestamp with it, if
/// any.
pub(crate) fn of_message(
    queue: &str,
    message_id: Option<&str>,
    timestamp: Option<u64>,
) -> Option<TraceId> {
    let message_id = message_id.filter(|id| !id.is_empty())?;
    let timestamp = timestamp.map(u64::to_be_bytes);
    Some(computed(&[
        queue.as_bytes(),
        message_id.as_bytes(),
        timestamp.as_ref().map_or(&[], |bytes| &bytes[..]),
    ]))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_messages_trace_is_the_same_in_all_versions_and_differs_with_each_part() {
        let trace = of_message("orders", Some("order-7"), Some(1_700_000_000)).unwrap();
        assert_eq!(trace.to_string(), "286163709cbe771855dd29d6a0cf071e");
        let others = [
            ("order", Some("sorder-7"), Some(1_700_000_000)),
            ("orders", Some("order-8"), Some(1_700_000_000)),
            ("orders", Some("order-7"), Some(1_700_000_001)),
            ("orders", Some("order-7"), None),
        ];
        let others: HashSet<_> =
            others.map(|(queue, id, at)| of_message(queue, id, at).unwrap()).into();
        assert!(others.len() == 4 && !others.contains(&trace));
        assert_eq!([None, Some("")].map(|id| of_message("orders", id, None)), [None; 2]);
    }

    #[test]
    fn an_id_of_ten_kibibytes_is_an_id_like_any_other() {
        let (long, longer) = ("x".repeat(10 * 1024), "x".repeat(10 * 1024 + 1));
        assert_ne!(
            of_message("orders", Some(&long), None),
            of_message("orders", Some(&longer), None)
        );
    }

    /// Ratio samplers compare the low eight bytes, or seven of them, with a threshold.
    #[test]
    fn traces_of_numbered_messages_are_spread_evenly() {
        let traces: Vec<_> = (0..10_000)
            .map(|n| of_message("orders", Some(&n.to_string()), None).unwrap())
            .collect();
        assert_eq!(traces.iter().collect::<HashSet<_>>().len(), traces.len());
        for shift in [0, 7, 32, 56, 63, 64, 96, 127] {
            let ones = traces
                .iter()
                .filter(|trace| u128::from_be_bytes(trace.to_bytes()) >> shift & 1 == 1)
                .count();
            assert!((4_700..5_300).contains(&ones), "bit {shift} is set in {ones} of 10000");
        }
    }

    #[test]
    fn the_trace_that_is_meant_is_forgotten_when_the_span_is_built() {
        let trace = computed(&[b"a"]);
        assert_eq!(
            within(trace, || (meant(), within(computed(&[b"b"]), meant), meant())).0,
            Some(trace)
        );
        assert_eq!(meant(), None);
        let _ = std::panic::catch_unwind(|| within(trace, || panic!("while it is built")));
        assert_eq!(meant(), None);
    }
}
