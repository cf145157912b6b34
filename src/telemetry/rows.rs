//! How Jaeger's page orders the spans of a trace, and what it calls the trace: the rules of
//! `transform-trace-data.ts` and `trace-viewer.ts` (2.20). Pure.

use std::collections::HashMap;

/// What the rules look at. Times are in nanoseconds; the page knows microseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The parent, if there is one, and the links, in this order. They may be of another trace.
    pub(crate) references: Vec<String>,
    pub(crate) start: i128,
}

/// A row is below the first of its references that is in the trace. Rows with the same parent are
/// ordered by their start. Each with its depth.
pub(crate) fn rows(trace: &[Row]) -> Vec<(usize, &Row)> {
    let mut below: HashMap<Option<&str>, Vec<&Row>> = HashMap::new();
    for row in trace {
        below.entry(parent(row, trace)).or_default().push(row);
    }
    let mut ordered = Vec::new();
    // The next row to be shown is the last one here.
    let mut left: Vec<(usize, &Row)> = Vec::new();
    let mut push = |left: &mut Vec<_>, parent, depth| {
        let mut rows = below.remove(&parent).unwrap_or_default();
        rows.sort_by_key(|row| row.start / 1000);
        left.extend(rows.into_iter().rev().map(|row| (depth, row)));
    };
    push(&mut left, None, 0);
    while let Some((depth, row)) = left.pop() {
        ordered.push((depth, row));
        push(&mut left, Some(&row.id), depth + 1);
    }
    ordered
}

fn parent<'a>(row: &'a Row, trace: &[Row]) -> Option<&'a str> {
    let is_there = |id: &&String| trace.iter().any(|other| other.id == **id);
    row.references.iter().find(is_there).map(String::as_str)
}

/// The name of the first span with the fewest references, of those that refer to no span of the
/// trace.
pub(crate) fn title(trace: &[Row]) -> &str {
    let tops =
        rows(trace).into_iter().map(|(_, row)| row).filter(|row| parent(row, trace).is_none());
    let first = tops.min_by_key(|row| (row.references.len(), row.start / 1000));
    first.map_or("", |row| &row.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, references: &[&str], start: i128) -> Row {
        let references = references.iter().map(|id| (*id).to_owned()).collect();
        Row { id: id.to_owned(), name: id.to_owned(), references, start: start * 1000 }
    }

    #[test]
    fn a_span_is_shown_below_the_first_of_its_parent_and_its_links_that_is_there() {
        let trace = [
            row("later", &["first"], 9),
            row("linked", &["gone", "first"], 5),
            row("child", &["linked", "first"], 6),
            row("root", &["elsewhere"], 1),
            row("first", &[], 2),
        ];
        let shown: Vec<_> = rows(&trace).iter().map(|(depth, row)| (*depth, &*row.id)).collect();
        assert_eq!(shown, [(0, "root"), (0, "first"), (1, "linked"), (2, "child"), (1, "later")]);
        assert_eq!(title(&trace), "first", "it has the fewest references");
    }

    #[test]
    fn of_spans_with_equally_many_references_the_first_one_names_the_trace() {
        let trace = [row("wait", &["producer"], 7), row("attempt", &["producer"], 3)];
        assert_eq!(title(&trace), "attempt");
        assert_eq!(title(&[]), "");
    }
}
