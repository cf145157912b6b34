//! W3C trace context and baggage in message headers.
//!
//! They are read here and not by the global propagator, so that a chain stays one trace even if the
//! service sets up no telemetry.

use std::str::FromStr;

use opentelemetry::Context;
use opentelemetry::baggage::{Baggage, BaggageExt, BaggageMetadata, KeyValueMetadata};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry::{Key, StringValue};

use crate::message::{Delivery, HeaderValue};
use crate::wire::Ignored;
use crate::wire::names::{BAGGAGE, TRACEPARENT, TRACESTATE};

/// The longest baggage that is passed on, as defined by W3C Baggage.
const MAX_BAGGAGE_BYTES: usize = 8192;
/// The flags for sampled and for a random trace id (level 2 of W3C Trace Context). A participant
/// sets all others to zero.
const KNOWN_FLAGS: u8 = 0b11;
/// The longest trace state that must be passed on, as defined by W3C Trace Context.
const MAX_TRACESTATE_BYTES: usize = 512;

/// The trace context of a message. A malformed part is ignored, with the reason.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Incoming {
    pub(crate) parent: Option<SpanContext>,
    pub(crate) baggage: Option<String>,
}

pub(crate) fn read(delivery: &Delivery, ignored: &mut Vec<Ignored>) -> Incoming {
    let mut text = |name: &'static str| {
        let value = HeaderValue::of(delivery.header(name)?);
        let text = value.as_text().map(str::to_owned);
        if text.is_none() {
            ignored.push(Ignored { header: name.to_owned(), because: "it is not text" });
        }
        text
    };
    let (traceparent, tracestate, baggage) = (text(TRACEPARENT), text(TRACESTATE), text(BAGGAGE));
    let mut ignore =
        |name: &str, because| ignored.push(Ignored { header: name.to_owned(), because });
    let state = tracestate.and_then(|text| {
        let state = TraceState::from_str(&text).ok().filter(|_| text.len() <= MAX_TRACESTATE_BYTES);
        if state.is_none() {
            ignore(TRACESTATE, "it is not a valid W3C trace state");
        }
        state
    });
    let parent = traceparent.and_then(|text| {
        let parent = parse(&text, state.unwrap_or_default());
        if parent.is_none() {
            ignore(TRACEPARENT, "it is not a valid W3C trace context");
        }
        parent
    });
    let baggage = baggage.and_then(|text| {
        if text.len() > MAX_BAGGAGE_BYTES {
            ignore(BAGGAGE, "it is longer than W3C allows");
            return None;
        }
        let (members, whole) = parse_baggage(&text);
        if whole {
            return Some(text).filter(|text| !text.is_empty());
        }
        ignore(BAGGAGE, "part of it is not valid W3C baggage; the rest is kept");
        Some(format_baggage(Context::new().with_baggage(members).baggage()))
            .filter(|text| !text.is_empty())
    });
    Incoming { parent, baggage }
}

/// Reads `00-<trace id>-<span id>-<flags>`. A later version may have more fields after these.
pub(crate) fn parse(traceparent: &str, state: TraceState) -> Option<SpanContext> {
    let hex = |text: &str, len| {
        text.len() == len && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let mut parts = traceparent.trim().split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if !hex(version, 2) || version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    if !hex(trace, 32) || !hex(span, 16) || !hex(flags, 2) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()? & KNOWN_FLAGS);
    let context = SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(span).ok()?,
        flags,
        true,
        state,
    );
    context.is_valid().then_some(context)
}

pub(crate) fn format(context: &SpanContext) -> String {
    format!(
        "00-{}-{}-{:02x}",
        context.trace_id(),
        context.span_id(),
        context.trace_flags().to_u8() & KNOWN_FLAGS
    )
}

/// Adds the baggage to the context.
pub(crate) fn with_baggage(context: Context, baggage: Option<&str>) -> Context {
    match baggage {
        Some(text) => context.with_baggage(parse_baggage(text).0),
        None => context,
    }
}

/// The well-formed members, and whether all members are well-formed.
fn parse_baggage(text: &str) -> (Vec<KeyValueMetadata>, bool) {
    let printable = |byte: u8| (b' '..=b'~').contains(&byte) || byte == b'\t';
    let token = |byte: u8| byte.is_ascii_graphic() && !b"(),/:;<=>?@[\\]{}\"".contains(&byte);
    let member = |member: &str| {
        let (pair, metadata) = member.split_once(';').unwrap_or((member, ""));
        let (key, value) = pair.split_once('=')?;
        let key = key.trim();
        if key.is_empty()
            || !key.bytes().all(token)
            || !value.bytes().chain(metadata.bytes()).all(printable)
        {
            return None;
        }
        let value = percent_encoding::percent_decode_str(value.trim()).decode_utf8().ok()?;
        Some(KeyValueMetadata::new(
            key.to_owned(),
            value.into_owned(),
            BaggageMetadata::from(metadata.trim()),
        ))
    };
    let parsed: Vec<_> =
        text.split(',').filter(|part| !part.trim().is_empty()).map(member).collect();
    let whole = parsed.iter().all(Option::is_some);
    (parsed.into_iter().flatten().collect(), whole)
}

fn format_baggage(baggage: &Baggage) -> String {
    let encode = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let member = |(key, (value, metadata)): (&Key, &(StringValue, BaggageMetadata))| {
        let pair = format!("{key}={}", encode(value.as_str()));
        if metadata.as_str().is_empty() { pair } else { format!("{pair};{}", metadata.as_str()) }
    };
    baggage.iter().map(member).collect::<Vec<_>>().join(",")
}

/// The headers that pass the current trace context on. Set them on messages and requests that a
/// handler sends.
///
/// Inside a handler the context is that of its attempt, or of a `tracing` span that the handler
/// opened if `tracing-opentelemetry` is set up. Outside a trace it is empty.
///
/// ```
/// for (name, value) in rehop::telemetry::current_headers() {
///     println!("{name}: {value}"); // traceparent, tracestate, baggage
/// }
/// ```
pub fn current_headers() -> Vec<(&'static str, String)> {
    headers_of(&Context::current())
}

pub(crate) fn headers_of(context: &Context) -> Vec<(&'static str, String)> {
    let mut headers = Vec::new();
    let span = context.span();
    let span_context = span.span_context();
    if span_context.is_valid() {
        headers.push((TRACEPARENT, format(span_context)));
        let state = span_context.trace_state().header();
        if !state.is_empty() {
            headers.push((TRACESTATE, state));
        }
    }
    if !context.baggage().is_empty() {
        headers.push((BAGGAGE, format_baggage(context.baggage())));
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::inputs;
    use proptest::prelude::*;

    const SAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_context_is_the_same_after_reading_and_writing() {
        let context = parse(SAMPLE, TraceState::default()).unwrap();
        assert!(context.is_sampled() && context.is_remote());
        assert_eq!(format(&context), SAMPLE);
        assert!(
            parse(
                "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
                TraceState::default()
            )
            .is_some()
        );
    }

    #[test]
    fn an_invalid_trace_context_is_refused() {
        for text in [
            "",
            "00",
            "00-0-0-00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(parse(text, TraceState::default()), None, "{text}");
        }
    }

    #[test]
    fn baggage_is_the_same_after_reading_and_writing() {
        let context = with_baggage(Context::new(), Some("tenant=a%20b;secure, plan=gold,broken"));
        assert_eq!(context.baggage().get("tenant").unwrap().as_str(), "a b");
        assert_eq!(context.baggage().get("plan").unwrap().as_str(), "gold");
        let text = format_baggage(context.baggage());
        assert!(text.contains("tenant=a%20b;secure") && text.contains("plan=gold"), "{text}");
    }

    #[test]
    fn invalid_baggage_is_left_out_and_reported() {
        for (text, kept) in [
            ("a=1,broken", 1),
            ("=1", 0),
            ("a b=1", 0),
            ("k\"=1,ok=%20", 1),
            ("a=\r\nb", 0),
            ("a=%ff", 0),
        ] {
            let (members, whole) = parse_baggage(text);
            assert_eq!((members.len(), whole), (kept, false), "{text}");
        }
        assert!(parse_baggage("").1 && parse_baggage(" a = 1 ; p=q , b=2,").1);
    }

    proptest! {
        #![proptest_config(inputs(2_000))]

        #[test]
        fn no_text_makes_reading_panic(text in ".{0,80}") {
            let _ = parse(&text, TraceState::default());
            let _ = parse_baggage(&text);
        }
    }
}
