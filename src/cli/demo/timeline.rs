//! What happened to one order, in order: what the HTTP service saw, what the spans say, and the deaths of the process.

use serde::Serialize;

use super::script::Fate;
use super::witness::Witness;

/// One chain as a list of moments.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Timeline {
    pub(super) order: u32,
    /// Why this chain is shown.
    pub(super) title: String,
    pub(super) moments: Vec<Moment>,
    pub(super) end: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Moment {
    /// Milliseconds after it was published.
    pub(super) at_ms: u64,
    #[serde(flatten)]
    pub(super) what: What,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub(super) enum What {
    Published {
        routing_key: String,
    },
    /// The handler ran, and the HTTP service answered.
    Attempt {
        attempt: u32,
        answer: u16,
        retry_after_ms: Option<u64>,
        /// What was decided, as the attempt's span has it; a crash may have taken the span.
        outcome: Option<String>,
    },
    /// It was decided without running the handler.
    Decided {
        outcome: String,
        reason: String,
    },
    Wait {
        queue: String,
        planned_ms: u64,
        actual_ms: u64,
        late_ms: u64,
    },
    /// The process died with the order in its hands.
    Crash {
        crash: usize,
    },
}

/// The timeline of an order, if it was published.
pub(super) fn timeline(witness: &Witness, order: u32, title: &str) -> Option<Timeline> {
    let sent = witness.sent.get(&order)?;
    let (requests, spans) = (witness.requests_of(order), witness.spans_of(order));
    let mut moments = vec![(sent.at, What::Published { routing_key: sent.order.routing_key.to_owned() })];
    for request in &requests {
        let attempt = |span: &&&super::spans::Span| span.is_process() && (span.start..=span.end).contains(&request.at);
        let outcome = spans.iter().find(attempt).and_then(|span| span.text("rehop.outcome")).map(str::to_owned);
        let retry_after_ms = request.retry_after.map(|after| after.as_millis() as u64);
        moments.push((
            request.at,
            What::Attempt { attempt: request.attempt, answer: request.answer, retry_after_ms, outcome },
        ));
    }
    for span in spans {
        if span.is_wait() {
            let number = |attribute| span.number(attribute).unwrap_or(0);
            moments.push((
                span.start,
                What::Wait {
                    queue: span.name.trim_start_matches("wait ").to_owned(),
                    planned_ms: number("rehop.delay_ms"),
                    actual_ms: millis(span.end.saturating_sub(span.start)),
                    late_ms: number("rehop.lateness_ms"),
                },
            ));
        } else if span.is_process() && !requests.iter().any(|request| (span.start..=span.end).contains(&request.at)) {
            let text = |attribute| span.text(attribute).unwrap_or("?").to_owned();
            moments.push((span.start, What::Decided { outcome: text("rehop.outcome"), reason: text("rehop.reason") }));
        }
    }
    let crashes = witness.crashes.iter().filter(|crash| crash.order == order).enumerate();
    moments.extend(crashes.map(|(index, crash)| (crash.at, What::Crash { crash: index + 1 })));
    moments.sort_by_key(|(at, _)| *at);
    let moments =
        moments.into_iter().map(|(at, what)| Moment { at_ms: millis(at.saturating_sub(sent.at)), what }).collect();
    Some(Timeline { order, title: title.to_owned(), moments, end: end(witness, order) })
}

fn millis(nanos: u64) -> u64 {
    nanos / 1_000_000
}

fn end(witness: &Witness, order: u32) -> String {
    let handled = witness.requests_of(order).iter().filter(|request| request.is_success()).count();
    let found = witness.found.iter().find(|found| found.order == Some(order));
    match (handled, found) {
        (0, None) => "no ending was found".to_owned(),
        (1, None) => Fate::Handled.to_string(),
        (times, None) => format!("handled {times} times"),
        (_, Some(found)) => found.fate.to_string(),
    }
}

impl Timeline {
    /// The lines that a person reads.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("order {}: {}", self.order, self.title)];
        lines
            .extend(self.moments.iter().map(|moment| format!("  {:>9}  {}", offset(moment.at_ms), moment.what.text())));
        lines.push(format!("  {:>9}  {}", "end", self.end));
        lines
    }
}

fn offset(millis: u64) -> String {
    format!("+{}.{:03} s", millis / 1000, millis % 1000)
}

impl What {
    fn text(&self) -> String {
        match self {
            Self::Published { routing_key } => format!("published with key {routing_key}"),
            Self::Attempt { attempt, answer, retry_after_ms, outcome } => {
                let after = retry_after_ms.map(|after| format!(", retry after {after} ms")).unwrap_or_default();
                let outcome = outcome.as_deref().unwrap_or("(a crash took its span)");
                format!("attempt {attempt:<2} answered {answer}{after} -> {outcome}")
            }
            Self::Decided { outcome, reason } => format!("no attempt: {reason} -> {outcome}"),
            Self::Wait { queue, planned_ms, actual_ms, late_ms } => {
                format!("waits in {queue}: planned {planned_ms} ms, took {actual_ms} ms, {late_ms} ms late")
            }
            Self::Crash { crash } => format!("the process dies (crash {crash}); the broker gives the order back"),
        }
    }
}
