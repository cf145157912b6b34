//! W3C trace context and baggage in message headers.
//!
//! They are read here and not by the global propagator, so that a chain stays one trace even if the
//! service sets up no telemetry. What comes from the producer is passed on as it came: the API's
//! own form of baggage has neither an order nor more than 64 members.

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;

use opentelemetry::Context;
use opentelemetry::baggage::{Baggage, BaggageExt, BaggageMetadata, KeyValueMetadata};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry::{Key, StringValue};
use percent_encoding::{AsciiSet, CONTROLS};

use crate::message::{Delivery, HeaderValue};
use crate::wire::Ignored;
use crate::wire::names::{BAGGAGE, TRACEPARENT, TRACESTATE};

/// The longest baggage that is passed on, as defined by W3C Baggage.
const MAX_BAGGAGE_BYTES: usize = 8192;
/// The flags for sampled and for a random trace id (level 2 of W3C Trace Context). A participant
/// sets all others to zero.
const KNOWN_FLAGS: u8 = 0b11;
/// The longest trace state that must be passed on, and the members that are left out first if it is
/// longer, as defined by W3C Trace Context.
const MAX_TRACESTATE_BYTES: usize = 512;
const LARGE_MEMBER_BYTES: usize = 128;
/// What needs to be encoded in a value, as defined by W3C Baggage.
const ENCODED: AsciiSet = CONTROLS.add(b' ').add(b'"').add(b'%').add(b',').add(b';').add(b'\\');

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
        let shortened = shortened(&text);
        if shortened.len() < text.len() {
            ignore(TRACESTATE, "it is longer than 512 bytes; part of it is kept");
        }
        let state = TraceState::from_str(&shortened).ok();
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
        let (kept, problem) = checked(&text);
        if let Some(problem) = problem {
            ignore(BAGGAGE, problem);
        }
        Some(kept.into_owned()).filter(|text| !text.is_empty())
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

/// As much of a long trace state as must be passed on: large members are left out first, and then
/// the last ones.
fn shortened(state: &str) -> Cow<'_, str> {
    if state.len() <= MAX_TRACESTATE_BYTES {
        return Cow::Borrowed(state);
    }
    let mut members: Vec<_> = state.split(',').collect();
    let length = |members: &[&str]| members.iter().map(|member| member.len() + 1).sum::<usize>();
    while length(&members) > MAX_TRACESTATE_BYTES + 1 {
        let large = members.iter().rposition(|member| member.len() > LARGE_MEMBER_BYTES);
        members.remove(large.unwrap_or(members.len() - 1));
    }
    Cow::Owned(members.join(","))
}

/// The baggage without the members that are invalid or too much, and what is wrong with those.
fn checked(text: &str) -> (Cow<'_, str>, Option<&'static str>) {
    let members = || text.split(',').filter(|member| !member.trim().is_empty());
    let is_valid =
        text.bytes().all(is_printable) && members().all(|member| parse_member(member).is_some());
    if is_valid && text.len() <= MAX_BAGGAGE_BYTES {
        return (Cow::Borrowed(text), None);
    }
    let mut kept = String::new();
    for member in members().filter(|member| parse_member(member).is_some()) {
        if kept.len() + 1 + member.len() > MAX_BAGGAGE_BYTES {
            break;
        }
        if !kept.is_empty() {
            kept.push(',');
        }
        kept.push_str(member);
    }
    let problem = if is_valid {
        "it is longer than W3C allows; its beginning is kept"
    } else {
        "part of it is not valid W3C baggage; the rest is kept"
    };
    (Cow::Owned(kept), Some(problem))
}

/// The baggage of a message, as it came.
struct Received(Arc<str>);

/// Adds the baggage to the context.
pub(crate) fn with_baggage(context: Context, baggage: Option<&str>) -> Context {
    match baggage {
        Some(text) => context.with_baggage(parse_baggage(text)).with_value(Received(text.into())),
        None => context,
    }
}

/// The well-formed members.
fn parse_baggage(text: &str) -> impl Iterator<Item = KeyValueMetadata> {
    text.split(',').filter_map(parse_member)
}

fn is_printable(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte) || byte == b'\t'
}

fn parse_member(member: &str) -> Option<KeyValueMetadata> {
    let token = |byte: u8| byte.is_ascii_graphic() && !b"(),/:;<=>?@[\\]{}\"".contains(&byte);
    let (pair, metadata) = member.split_once(';').unwrap_or((member, ""));
    let (key, value) = pair.split_once('=')?;
    let key = key.trim();
    if key.is_empty() || !key.bytes().all(token) || !member.bytes().all(is_printable) {
        return None;
    }
    let value = percent_encoding::percent_decode_str(value.trim()).decode_utf8_lossy();
    let metadata = BaggageMetadata::from(metadata.trim());
    Some(KeyValueMetadata::new(key.to_owned(), value.into_owned(), metadata))
}

fn format_baggage(baggage: &Baggage) -> String {
    let encode = |text: &str| percent_encoding::utf8_percent_encode(text, &ENCODED).to_string();
    let member = |(key, (value, metadata)): (&Key, &(StringValue, BaggageMetadata))| {
        let pair = format!("{key}={}", encode(value.as_str()));
        if metadata.as_str().is_empty() { pair } else { format!("{pair};{}", metadata.as_str()) }
    };
    baggage.iter().map(member).collect::<Vec<_>>().join(",")
}

/// The baggage as it came with the message, unless it was changed since.
fn baggage_of(context: &Context) -> Option<String> {
    let baggage = context.baggage();
    if let Some(Received(text)) = context.get() {
        let received = Context::new().with_baggage(parse_baggage(text));
        let received = received.baggage();
        let is_same = received.len() == baggage.len()
            && received.iter().all(|(key, value)| baggage.get_with_metadata(key) == Some(value));
        if is_same {
            return Some(text.to_string());
        }
    }
    (!baggage.is_empty()).then(|| format_baggage(baggage))
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
    if let Some(baggage) = baggage_of(context) {
        headers.push((BAGGAGE, baggage));
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

    /// What `current_headers` would say of this baggage.
    fn passed_on(text: &str) -> Option<String> {
        baggage_of(&with_baggage(Context::new(), Some(text)))
    }

    #[test]
    fn baggage_is_passed_on_byte_for_byte_with_its_order_and_its_doubles() {
        let many: Vec<_> = (0..100).map(|member| format!("k{member}=1")).collect();
        let long = format!("a={}", "-_.~/?".repeat(1_365));
        for text in [
            "tenant=a%20b;secure, plan=gold,tenant=c",
            "b=1,a=2,c=%ff",
            many.join(",").as_str(),
            long.as_str(),
        ] {
            assert_eq!(passed_on(text).as_deref(), Some(text));
        }
        let context = with_baggage(Context::new(), Some("tenant=a%20b;secure, plan=gold"));
        assert_eq!(context.baggage().get("tenant").unwrap().as_str(), "a b");
        assert_eq!(context.baggage().get("plan").unwrap().as_str(), "gold");
    }

    #[test]
    fn baggage_that_a_handler_changed_is_passed_on_changed() {
        let context = with_baggage(Context::new(), Some("tenant=a,tenant=b"));
        let changed = context.with_baggage([KeyValueMetadata::new("k", "a/b, \u{fc}%", "m")]);
        assert_eq!(baggage_of(&changed).unwrap(), "k=a/b%2C%20%C3%BC%25;m");
        assert_eq!(baggage_of(&context.with_cleared_baggage()), None);
        assert_eq!(baggage_of(&Context::new()), None);
    }

    #[test]
    fn invalid_baggage_is_left_out_and_reported() {
        for (text, kept) in [
            ("a=1,broken", "a=1"),
            ("=1", ""),
            ("a b=1, c = 2;p", " c = 2;p"),
            ("k\"=1,ok=%20,ok=", "ok=%20,ok="),
            ("a=\r\nb", ""),
            ("a=1,\r\n", "a=1"),
            ("\r\na=1,b=2", "b=2"),
        ] {
            let (found, problem) = checked(text);
            assert_eq!((&*found, problem.is_some()), (kept, true), "{text}");
        }
        assert_eq!(checked(" a = 1 ; p=q , b=2,"), (" a = 1 ; p=q , b=2,".into(), None));
        assert_eq!(checked(""), ("".into(), None));
    }

    #[test]
    fn of_too_much_baggage_the_first_members_are_kept() {
        let member = format!("k={}", "x".repeat(998));
        let many = [member.as_str(); 10].join(",");
        let (kept, problem) = checked(&many);
        assert_eq!(kept, [member.as_str(); 8].join(","));
        assert!(problem.unwrap().contains("longer"), "{problem:?}");
    }

    #[test]
    fn of_a_long_trace_state_large_members_are_left_out_first_and_then_the_last() {
        let small: Vec<_> = (0..60).map(|member| format!("k{member:02}=vvvv")).collect();
        let large = format!("large={}", "x".repeat(130));
        let state = [&[large.clone()][..], &small[..45]].concat().join(",");
        assert_eq!(shortened(&state), small[..45].join(","));
        assert_eq!(shortened(&small.join(",")), small[..57].join(","));
        let fits = [&[large][..], &small[..40]].concat().join(",");
        assert_eq!(fits.len(), 496);
        assert_eq!(shortened(&fits), fits);
    }

    proptest! {
        #![proptest_config(inputs(2_000))]

        #[test]
        fn no_text_makes_reading_panic(text in ".{0,80}") {
            let _ = parse(&text, TraceState::default());
            let _ = shortened(&text.repeat(50));
            let _ = passed_on(&checked(&text).0);
        }
    }
}
