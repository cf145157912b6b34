//! One chain's spans, as the collector received them, and a listing of them that a test can
//! compare.

use std::collections::BTreeSet;
use std::fmt::Write;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use rehop_testing::{Publish, eventually};

use super::clocks::{self, Timed};
use super::collector::attribute;
use crate::support::{Fixture, SOON};
use crate::{collector, flush};

/// The producer's span, which exists only in the headers.
pub(crate) struct Producer {
    pub(crate) trace: String,
    pub(crate) span: String,
}

impl Producer {
    pub(crate) fn new() -> Self {
        Self {
            trace: format!("{:032x}", rand::random::<u128>() | 1),
            span: format!("{:016x}", rand::random::<u64>() | 1),
        }
    }

    pub(crate) fn traceparent(&self) -> String {
        format!("00-{}-{}-01", self.trace, self.span)
    }

    /// A message for the fixture's queue with this context.
    pub(crate) fn message(&self, fixture: &Fixture) -> Publish {
        fixture.to_queue().body("7").header("traceparent", self.traceparent())
    }
}

pub(crate) struct Chain {
    pub(crate) spans: Vec<Span>,
    producer: String,
    namespace: String,
}

impl Chain {
    /// Waits for this many spans of the producer's trace and returns them.
    pub(crate) async fn of(producer: &Producer, fixture: &Fixture, count: usize) -> Self {
        let spans =
            spans(&format!("{count} spans"), |span| hex(&span.trace_id) == producer.trace, count)
                .await;
        undoubted(&spans, &producer.span);
        Self {
            spans,
            producer: producer.span.clone(),
            namespace: fixture.namespace.name().to_owned(),
        }
    }

    /// All spans of the fixture's queue, whichever trace they belong to.
    pub(crate) async fn of_queue(fixture: &Fixture, count: usize) -> Self {
        let template = fixture.queue.clone();
        let is_ours = move |span: &Span| {
            attribute(&span.attributes, "messaging.destination.template").as_ref()
                == Some(&template)
        };
        let spans = spans(&format!("{count} spans"), is_ours, count).await;
        undoubted(&spans, "");
        Self { spans, producer: String::new(), namespace: fixture.namespace.name().to_owned() }
    }

    pub(crate) fn attempt(&self, number: u32) -> &Span {
        self.process()
            .find(|span| attribute(&span.attributes, "rehop.attempt") == Some(number.to_string()))
            .unwrap()
    }

    pub(crate) fn process(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(|span| span.name.starts_with("process "))
    }

    /// What searches find this chain by that ended: how, and whether it came to the parked queue.
    pub(crate) fn ends(&self) -> Vec<[String; 2]> {
        let of = |span: &Span| {
            let keys =
                ["rehop.end", "rehop.was_parked"].map(|key| attribute(&span.attributes, key));
            let [Some(end), Some(was_parked)] = keys else {
                assert_eq!(keys, [None, None], "{span:?}");
                return None;
            };
            Some([end, was_parked])
        };
        self.spans.iter().filter_map(of).collect()
    }

    pub(crate) fn named(&self, start: &str) -> Vec<&Span> {
        self.spans.iter().filter(|span| span.name.starts_with(start)).collect()
    }

    /// One line for each span, with its name, kind, parent, links and distinguishing attributes;
    /// children follow their parents.
    pub(crate) fn outline(&self) -> String {
        let mut text = String::new();
        let known = |id: &[u8]| self.spans.iter().any(|span| span.span_id == id);
        let mut roots: Vec<_> =
            self.spans.iter().filter(|span| !known(&span.parent_span_id)).collect();
        roots.sort_by_key(|span| order(span));
        for span in roots {
            self.draw(span, 0, &mut text);
        }
        text
    }

    fn draw(&self, span: &Span, depth: usize, text: &mut String) {
        let kind =
            SpanKind::try_from(span.kind).unwrap().as_str_name().trim_start_matches("SPAN_KIND_");
        let name = span.name.replace(&self.namespace, "ns");
        write!(text, "{}{name} {kind}", "  ".repeat(depth)).unwrap();
        if depth == 0 {
            write!(text, " parent={}", self.known_as(&span.parent_span_id)).unwrap();
        }
        for (key, short) in [
            ("rehop.attempt", "attempt"),
            ("rehop.hop", "hop"),
            ("rehop.outcome", "outcome"),
            ("rehop.reason", "reason"),
            ("error.type", "error"),
            ("rehop.final", "final"),
        ] {
            if let Some(value) = attribute(&span.attributes, key) {
                write!(text, " {short}={value}").unwrap();
            }
        }
        let failed = span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error);
        assert_eq!(
            failed,
            attribute(&span.attributes, "error.type").is_some(),
            "status and error.type agree on {name}"
        );
        for link in &span.links {
            write!(text, " link={}", self.known_as(&link.span_id)).unwrap();
        }
        text.push('\n');
        let mut children: Vec<_> =
            self.spans.iter().filter(|child| child.parent_span_id == span.span_id).collect();
        children.sort_by_key(|span| order(span));
        for child in children {
            self.draw(child, depth + 1, text);
        }
    }

    fn known_as(&self, id: &[u8]) -> String {
        if id.is_empty() {
            return "none".to_owned();
        }
        if hex(id) == self.producer {
            return "producer".to_owned();
        }
        match self.spans.iter().find(|span| span.span_id == id) {
            Some(span) => match attribute(&span.attributes, "rehop.attempt") {
                Some(attempt) => format!("attempt-{attempt}"),
                None => span.name.clone(),
            },
            None => "unknown".to_owned(),
        }
    }
}

/// Jaeger doubts no clock if the producer and the service are on one host. If they are on two,
/// however long the producer's span is, it doubts nothing but the attempts before the first wait,
/// and what is below them. Without the producer's span, only those lack their parent.
pub(crate) fn undoubted(spans: &[Span], producer: &str) {
    let timed = |span: &Span| Timed {
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        host: "service".to_owned(),
        start: span.start_time_unix_nano.into(),
        end: span.end_time_unix_nano.into(),
    };
    for span in spans {
        let has_length = span.start_time_unix_nano < span.end_time_unix_nano;
        assert!(has_length, "Jaeger warns of a negative duration: {span:?}");
    }
    for trace in spans.iter().map(|span| &span.trace_id).collect::<BTreeSet<_>>() {
        let of_trace = || spans.iter().filter(|span| &span.trace_id == trace);
        let begin = of_trace().map(|span| i128::from(span.start_time_unix_nano)).min().unwrap();
        for (host, millis) in [
            ("service", 12),
            ("producer", 0),
            ("producer", 12),
            ("producer", 150),
            ("producer", 60_000),
        ] {
            let (start, id) = (begin - 1, producer.to_owned());
            let publish = Timed {
                id,
                parent: String::new(),
                host: host.to_owned(),
                start,
                end: start + millis * 1_000_000,
            };
            let all: Vec<_> = of_trace()
                .map(timed)
                .chain(Some(publish).filter(|_| !producer.is_empty()))
                .collect();
            for (doubted, shift) in clocks::doubted(&all) {
                let of = |id: &str| of_trace().find(|span| hex(&span.span_id) == id);
                let mut top = of(doubted).unwrap();
                while let Some(parent) = of(&hex(&top.parent_span_id)) {
                    top = parent;
                }
                let is_early = attribute(&top.attributes, "rehop.hop").as_deref() == Some("0");
                let is_unknown = producer.is_empty() && shift.is_none();
                assert!(
                    is_unknown || (is_early && host == "producer"),
                    "{doubted} would be moved by {shift:?} below {top:?}"
                );
            }
        }
    }
}

/// A wait comes before the attempt that follows it. Its start has a resolution of a millisecond, so
/// times alone are not enough.
fn order(span: &Span) -> (u32, bool, u64) {
    let hop = attribute(&span.attributes, "rehop.hop").map_or(0, |hop| hop.parse().unwrap());
    (hop, span.name.starts_with("process "), span.start_time_unix_nano)
}

pub(crate) fn hex(id: &[u8]) -> String {
    id.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Waits for this many matching spans at the collector and returns them.
pub(crate) async fn spans(what: &str, is_ours: impl Fn(&Span) -> bool, count: usize) -> Vec<Span> {
    eventually(SOON, what, async || {
        flush().await.map_err(|error| error.to_string())?;
        let found: Vec<_> =
            collector().arrived().spans.iter().filter(|span| is_ours(span)).cloned().collect();
        let names: Vec<_> = found.iter().map(|span| span.name.clone()).collect();
        if found.len() >= count {
            Ok(Some(found))
        } else {
            Err(format!("{} spans: {names:?}", names.len()))
        }
    })
    .await
    .unwrap()
}
