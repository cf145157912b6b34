//! One order's history, in chronological order: what the HTTP service saw, what the spans say, and
//! the crashes of the process.

use serde::Serialize;

use super::play::Sent;
use super::script::Fate;
use super::shop::Request;
use super::traces::Span;
use super::witness::Witness;

#[derive(Debug, Serialize)]
pub(crate) struct Timeline {
    order: u32,
    /// Why this order is shown.
    title: &'static str,
    pub(crate) moments: Vec<String>,
    end: String,
}

impl Timeline {
    pub(crate) fn of(witness: &Witness, sent: &Sent, title: &'static str) -> Self {
        let order = sent.order.id;
        let (requests, spans) = (witness.requests_of(sent), witness.spans_of(sent));
        let attempted =
            |span: &Span| requests.iter().any(|request| span.time().contains(&request.at));
        let mut moments = vec![(sent.at, format!("published with key {}", sent.order.routing_key))];
        moments.extend(requests.iter().map(|request| {
            let attempt =
                spans.iter().find(|span| span.is_process() && span.time().contains(&request.at));
            (request.at, attempt_text(request, attempt.and_then(|span| span.text("rehop.outcome"))))
        }));
        moments.extend(spans.iter().filter_map(|span| match span {
            span if span.is_wait() => Some((span.start, wait_text(span))),
            span if span.is_process() && !attempted(span) => {
                Some((span.start, decision_text(span)))
            }
            _ => None,
        }));
        moments.extend(witness.crashes.iter().filter(|crash| crash.order == order).zip(1..).map(
            |(crash, number)| {
                (
                    crash.at,
                    format!("the process dies (crash {number}); the order returns to the broker"),
                )
            },
        ));
        moments.sort_by_key(|(at, _)| *at);
        let line = |(at, text): (u64, String)| {
            let at = format!("+{:.3} s", at.saturating_sub(sent.at) as f64 / 1e9);
            format!("  {at:>9}  {text}")
        };
        Self {
            order,
            title,
            moments: moments.into_iter().map(line).collect(),
            end: end(witness, sent),
        }
    }

    pub(crate) fn text(&self) -> String {
        let Self { order, title, moments, end } = self;
        format!("order {order}: {title}\n{}\n  {:>9}  {end}", moments.join("\n"), "end")
    }
}

/// The outcome comes from the attempt's span, which may have been lost in a crash.
fn attempt_text(request: &Request, outcome: Option<&str>) -> String {
    let after = request
        .retry_after
        .map(|after| format!(", retry after {} ms", after.as_millis()))
        .unwrap_or_default();
    let outcome = outcome.unwrap_or("(its span was lost in a crash)");
    format!(
        "attempt {:<2} answered {}{after} -> {outcome}",
        request.attempt,
        request.answer.as_u16()
    )
}

fn decision_text(span: &Span) -> String {
    let text = |attribute| span.text(attribute).unwrap_or("?");
    format!("no attempt: {} -> {}", text("rehop.reason"), text("rehop.outcome"))
}

fn wait_text(span: &Span) -> String {
    let number = |attribute| span.number(attribute).unwrap_or(0);
    let (planned, late) = (number("rehop.delay_ms"), number("rehop.lateness_ms"));
    let place = match span.number("rehop.legs") {
        None => format!("in {}", span.text("messaging.destination.name").unwrap_or("?")),
        Some(1) => "on the ladder, in one of its queues".to_owned(),
        Some(legs) => format!("on the ladder, in {legs} of its queues"),
    };
    format!("waits {place}: planned {planned} ms, {late} ms late")
}

fn end(witness: &Witness, sent: &Sent) -> String {
    let handled =
        witness.requests_of(sent).iter().filter(|request| request.answer.is_success()).count();
    let found = witness.found.iter().find(|(order, _)| *order == Some(sent.order.id));
    match (handled, found) {
        (0, None) => "not found anywhere".to_owned(),
        (1, None) => Fate::Handled.to_string(),
        (times, None) => format!("handled {times} times"),
        (_, Some((_, fate))) => fate.to_string(),
    }
}
