//! Draws one trace as bars on a time axis, like a trace viewer. Pure.

use console::Style;

use super::traces::Span;

/// Draws the spans of a trace, sorted by their start, in lines of `width` characters.
pub(crate) fn draw(spans: &[&Span], width: usize, colours: bool) -> Vec<String> {
    let start = spans.iter().map(|span| span.start).min().unwrap_or(0);
    let end = spans.iter().map(|span| span.end).max().unwrap_or(0);
    let mut rows = Vec::with_capacity(spans.len());
    for root in
        spans.iter().filter(|span| !spans.iter().any(|other| other.span_id == span.parent_id))
    {
        flatten(&mut rows, spans, root, "", "");
    }
    let rows: Vec<_> =
        rows.iter().map(|(branches, span)| (label(branches, span), outcome(span), span)).collect();
    let widest =
        |text: fn(&(String, String, &&Span)) -> usize| rows.iter().map(text).max().unwrap_or(0);
    let label_width = widest(|(label, ..)| label.chars().count()).min(width / 2);
    let outcome_width = widest(|(_, outcome, _)| outcome.chars().count());
    let axis = width.saturating_sub(label_width + TIMES + outcome_width + 3).max(10);

    let last = format!("{} ms", millis(end - start));
    let mut lines =
        vec![format!("{:label_width$} {:>6} {:>6}  0{last:>w$}", "", "start", "ms", w = axis - 1)];
    for (label, outcome, span) in &rows {
        let label: String = label.chars().take(label_width).collect();
        let (offset, length) =
            (millis(span.start - start), millis(span.end.saturating_sub(span.start)));
        let bar = style(span).force_styling(colours).apply_to(bar(span, start, end, axis));
        lines.push(
            format!("{label:label_width$} {offset:>6} {length:>6}  {bar} {outcome}")
                .trim_end()
                .to_owned(),
        );
    }
    lines
}

/// The width of the columns for start and duration, with their spaces.
const TIMES: usize = 14;

/// A span and its descendants, each with the lines that lead to it from its parent.
fn flatten<'a>(
    rows: &mut Vec<(String, &'a Span)>,
    spans: &[&'a Span],
    span: &'a Span,
    branches: &str,
    below: &str,
) {
    rows.push((branches.to_owned(), span));
    let children: Vec<_> = spans.iter().filter(|child| child.parent_id == span.span_id).collect();
    for (index, child) in children.iter().enumerate() {
        let (branch, under) =
            if index + 1 == children.len() { ("└ ", "  ") } else { ("├ ", "│ ") };
        flatten(rows, spans, child, &format!("{below}{branch}"), &format!("{below}{under}"));
    }
}

/// At least one character long, so that even the shortest span is visible.
fn bar(span: &Span, start: u64, end: u64, axis: usize) -> String {
    let column = |moment: u64| (moment - start) as f64 / (end - start).max(1) as f64 * axis as f64;
    let from = (column(span.start) as usize).min(axis - 1);
    let length = (column(span.end) as usize).saturating_sub(from).clamp(1, axis - from);
    let character = if span.is_wait() { "░" } else { "█" };
    format!("{}{}{}", " ".repeat(from), character.repeat(length), " ".repeat(axis - from - length))
}

fn label(branches: &str, span: &Span) -> String {
    format!("{branches}{}", span.name)
}

fn outcome(span: &Span) -> String {
    if let Some(deaths) = span.number("rehop.unanswered") {
        let last = span.attributes.get("rehop.last_delivery").is_some_and(|last| last == true);
        return format!("{deaths} died before{}", if last { ", the last delivery" } else { "" });
    }
    let time = if span.is_wait() {
        Some(format!("{} ms late", span.number("rehop.lateness_ms").unwrap_or(0)))
    } else {
        span.number("rehop.delay_ms").map(|delay| format!("{delay} ms"))
    };
    let text = |attribute| span.text(attribute).map(str::to_owned);
    [text("rehop.outcome"), time, text("error.type")]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ")
}

fn style(span: &Span) -> Style {
    match span {
        span if span.failed => Style::new().red(),
        span if span.is_wait() => Style::new().yellow(),
        span if span.is_process() => Style::new().green(),
        _ => Style::new().blue(),
    }
}

fn millis(nanos: u64) -> u64 {
    (nanos + 500_000) / 1_000_000
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn span(id: &str, parent: &str, name: &str, [from, to]: [u64; 2], attributes: Value) -> Span {
        let nanos = |millis| 1_000_000_000 + millis * 1_000_000;
        Span {
            trace_id: "t".to_owned(),
            span_id: id.to_owned(),
            parent_id: parent.to_owned(),
            name: name.to_owned(),
            host: "h".to_owned(),
            start: nanos(from),
            end: nanos(to),
            failed: attributes.get("error.type").is_some(),
            attributes: serde_json::from_value(attributes).unwrap(),
        }
    }

    /// One failed attempt, a wait, and success.
    fn chain(colours: bool) -> Vec<String> {
        let process = |attempt, outcome| json!({ "messaging.operation.type": "process", "rehop.attempt": attempt, "rehop.outcome": outcome });
        let mut failed = process(1, "wait");
        failed["rehop.delay_ms"] = json!(80);
        failed["error.type"] = json!("http_503");
        let wait = json!({ "rehop.lateness_ms": 2, "rehop.delay_ms": 80 });
        let spans = [
            span("a", "", "publish shop:order.created", [0, 1], json!({})),
            span("b", "a", "process orders #1", [2, 10], failed),
            span("e", "b", "waits 80ms", [9, 10], json!({})),
            span("c", "", "wait 80ms, then orders", [10, 90], wait),
            span("d", "c", "process orders: handled", [90, 100], process(2, "ack")),
        ];
        draw(&spans.each_ref(), 80, colours)
    }

    #[test]
    fn a_chain_is_drawn_as_a_tree_on_one_time_axis() {
        let expected = "                            start     ms  0           100 ms
publish shop:order.created      0      1  █
└ process orders #1             2      8  █                  wait 80 ms http_503
  └ waits 80ms                  9      1   █
wait 80ms, then orders         10     80   ░░░░░░░░░░░░░░░   2 ms late
└ process orders: handled      90     10                  ██ ack";
        let lines = chain(false);
        assert!(lines.iter().all(|line| line.chars().count() <= 80));
        assert_eq!(lines.join("\n"), expected);
    }

    #[test]
    fn a_death_says_how_many_there_were() {
        let died = |last| json!({ "rehop.unanswered": 2, "rehop.last_delivery": last, "error.type": "unanswered" });
        let outcomes = [false, true]
            .map(|last| outcome(&span("a", "", "died? orders #2", [0, 0], died(last))));
        assert_eq!(outcomes, ["2 died before", "2 died before, the last delivery"]);
    }

    #[test]
    fn colours_are_used_only_on_request() {
        let escape = |colours| chain(colours).iter().any(|line| line.contains('\u{1b}'));
        assert!(escape(true) && !escape(false));
    }

    #[test]
    fn a_trace_without_spans_or_with_a_missing_parent_can_still_be_drawn() {
        assert_eq!(draw(&[], 40, false).len(), 1);
        let orphan = span("b", "a", "process orders", [0, 0], json!({}));
        assert_eq!(draw(&[&orphan], 10, false).len(), 2);
    }
}
