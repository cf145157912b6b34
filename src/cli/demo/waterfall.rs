//! One trace as bars on a time axis, as a trace viewer draws it. Pure.

use console::Style;
use serde_json::{Value, json};

use super::spans::Span;

/// A trace as a tree, flattened in the order in which it is drawn.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Waterfall {
    pub(super) rows: Vec<Row>,
    start: u64,
    end: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) span: Span,
    /// The lines that lead to it from its parent.
    branches: String,
    depth: usize,
}

impl Waterfall {
    pub(super) fn of<'a>(spans: impl IntoIterator<Item = &'a Span>) -> Self {
        let mut spans: Vec<&Span> = spans.into_iter().collect();
        spans.sort_by_key(|span| (span.start, span.end));
        let mut rows = Vec::with_capacity(spans.len());
        let is_root = |span: &&&Span| !spans.iter().any(|other| other.span_id == span.parent_id);
        for root in spans.iter().filter(is_root) {
            push(&mut rows, &spans, root, String::new(), "", 0);
        }
        let start = rows.iter().map(|row: &Row| row.span.start).min().unwrap_or(0);
        let end = rows.iter().map(|row| row.span.end).max().unwrap_or(0);
        Self { rows, start, end }
    }

    /// Draws it, in lines of so many characters.
    pub(super) fn draw(&self, width: usize, colours: bool) -> Vec<String> {
        let labels: Vec<_> = self.rows.iter().map(Row::label).collect();
        let outcomes: Vec<_> = self.rows.iter().map(Row::outcome).collect();
        let widest = |texts: &[String]| texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        let (label_width, outcome_width) = (widest(&labels).min(width / 2), widest(&outcomes));
        let axis = width.saturating_sub(label_width + TIMES + outcome_width + 3).max(10);
        let total = millis(self.end - self.start);
        let last = format!("{total} ms");
        let mut lines = vec![format!("{:label_width$} {:>6} {:>6}  0{last:>w$}", "", "start", "ms", w = axis - 1)];
        for ((row, label), outcome) in self.rows.iter().zip(labels).zip(outcomes) {
            let label: String = label.chars().take(label_width).collect();
            let (offset, length) =
                (millis(row.span.start - self.start), millis(row.span.end.saturating_sub(row.span.start)));
            let bar = self.bar(&row.span, axis);
            let bar = row.style().force_styling(colours).apply_to(bar);
            let line = format!("{label:label_width$} {offset:>6} {length:>6}  {bar} {outcome}");
            lines.push(line.trim_end().to_owned());
        }
        lines
    }

    /// A span is never drawn shorter than one character, so that what took no time is seen as well.
    fn bar(&self, span: &Span, axis: usize) -> String {
        let total = (self.end - self.start).max(1) as f64;
        let column = |moment: u64| ((moment.saturating_sub(self.start)) as f64 / total * axis as f64) as usize;
        let from = column(span.start).min(axis - 1);
        let length = column(span.end).saturating_sub(from).clamp(1, axis - from);
        let character = if span.is_wait() { "░" } else { "█" };
        format!("{}{}{}", " ".repeat(from), character.repeat(length), " ".repeat(axis - from - length))
    }

    /// The same for machines.
    pub(super) fn json(&self) -> Value {
        let row = |row: &Row| {
            json!({
                "name": row.span.name,
                "span_id": row.span.span_id,
                "parent_id": row.span.parent_id,
                "depth": row.depth,
                "start_ms": (row.span.start - self.start) as f64 / 1e6,
                "duration_ms": row.span.end.saturating_sub(row.span.start) as f64 / 1e6,
                "error": row.span.failed,
                "attributes": row.span.attributes,
            })
        };
        self.rows.iter().map(row).collect()
    }
}

/// Start and duration, with their spaces.
const TIMES: usize = 14;

fn push(rows: &mut Vec<Row>, spans: &[&Span], span: &Span, branches: String, below: &str, depth: usize) {
    rows.push(Row { span: span.clone(), branches, depth });
    let children: Vec<_> = spans.iter().filter(|child| child.parent_id == span.span_id).collect();
    for (index, child) in children.iter().enumerate() {
        let last = index + 1 == children.len();
        let (branch, under) = if last { ("└ ", "  ") } else { ("├ ", "│ ") };
        push(rows, spans, child, format!("{below}{branch}"), &format!("{below}{under}"), depth + 1);
    }
}

fn millis(nanos: u64) -> u64 {
    (nanos + 500_000) / 1_000_000
}

impl Row {
    fn label(&self) -> String {
        let attempt = if self.span.is_process() { self.span.number("rehop.attempt") } else { None };
        let attempt = attempt.map(|attempt| format!(" #{attempt}")).unwrap_or_default();
        format!("{}{}{attempt}", self.branches, self.span.name)
    }

    fn outcome(&self) -> String {
        let (delay, error) = (self.span.number("rehop.delay_ms"), self.span.text("error.type"));
        let mut parts = Vec::new();
        if let Some(outcome) = self.span.text("rehop.outcome") {
            parts.push(outcome.to_owned());
        }
        if self.span.is_wait() {
            parts.push(format!("{} ms late", self.span.number("rehop.lateness_ms").unwrap_or(0)));
        } else if let Some(delay) = delay {
            parts.push(format!("{delay} ms"));
        }
        parts.extend(error.map(str::to_owned));
        parts.join(" ")
    }

    fn style(&self) -> Style {
        if self.span.failed {
            Style::new().red()
        } else if self.span.is_wait() {
            Style::new().yellow()
        } else if self.span.is_process() {
            Style::new().green()
        } else {
            Style::new().blue()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: &str, parent: &str, name: &str, from_ms: u64, to_ms: u64, attributes: Value) -> Span {
        let Value::Object(attributes) = attributes else { panic!("attributes are an object") };
        Span {
            trace_id: "t".to_owned(),
            span_id: id.to_owned(),
            parent_id: parent.to_owned(),
            name: name.to_owned(),
            start: 1_000_000_000 + from_ms * 1_000_000,
            end: 1_000_000_000 + to_ms * 1_000_000,
            failed: attributes.contains_key("error.type"),
            attributes: attributes.into_iter().collect(),
        }
    }

    /// One failed attempt, a wait, and success; not in the order of time.
    fn chain() -> Waterfall {
        let process = |attempt, outcome| json!({ "messaging.operation.type": "process", "rehop.attempt": attempt, "rehop.outcome": outcome });
        let mut failed = process(1, "wait");
        failed["rehop.delay_ms"] = json!(80);
        failed["error.type"] = json!("http_503");
        Waterfall::of(&[
            span("d", "a", "process orders", 90, 100, process(2, "ack")),
            span("c", "a", "wait billing.wait.80", 10, 90, json!({ "rehop.lateness_ms": 2, "rehop.delay_ms": 80 })),
            span("a", "", "publish shop:order.created", 0, 1, json!({})),
            span("b", "a", "process orders", 2, 10, failed),
            span("e", "b", "ack orders", 9, 10, json!({})),
        ])
    }

    #[test]
    fn a_chain_is_drawn_as_a_tree_on_one_time_axis() {
        let expected = "                            start     ms  0           100 ms
publish shop:order.created      0      1  █
├ process orders #1             2      8  █                  wait 80 ms http_503
│ └ ack orders                  9      1   █
├ wait billing.wait.80         10     80   ░░░░░░░░░░░░░░░   2 ms late
└ process orders #2            90     10                  ██ ack";
        let lines = chain().draw(80, false);
        assert!(lines.iter().all(|line| line.chars().count() <= 80));
        assert_eq!(lines.join("\n"), expected);
    }

    #[test]
    fn colours_are_there_only_when_wanted() {
        let escape = |colours| chain().draw(80, colours).iter().any(|line| line.contains('\u{1b}'));
        assert!(escape(true) && !escape(false));
    }

    #[test]
    fn a_trace_without_spans_or_with_a_missing_parent_is_drawn_all_the_same() {
        assert_eq!(Waterfall::of(&[]).draw(40, false).len(), 1);
        let orphan = [span("b", "a", "process orders", 0, 0, json!({}))];
        assert_eq!(Waterfall::of(&orphan).draw(10, false).len(), 2);
    }
}
