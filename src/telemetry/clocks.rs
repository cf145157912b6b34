//! Which spans of a trace Jaeger doubts, and moves if it may: the rule of its `clockskew.go`
//! (2.20). Pure.

use std::collections::HashMap;

/// What the rule looks at. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timed {
    pub(crate) id: String,
    /// Empty without one.
    pub(crate) parent: String,
    /// `host.id`, else `host.ip`, else `host.name` of its resource. Empty without any, which no
    /// other host equals.
    pub(crate) host: String,
    pub(crate) start: i128,
    pub(crate) end: i128,
}

/// The ids of the spans of one trace that carry a warning, each with by how much it would be moved;
/// `None` if its parent is not in the trace.
pub(crate) fn doubted(trace: &[Timed]) -> Vec<(&str, Option<i128>)> {
    let by_id: HashMap<&str, &Timed> = trace.iter().map(|span| (span.id.as_str(), span)).collect();
    let shift = |span| shift(span, &by_id);
    let is_orphan =
        |span: &Timed| !span.parent.is_empty() && !by_id.contains_key(span.parent.as_str());
    let doubted =
        trace.iter().map(|span| (span, if is_orphan(span) { None } else { Some(shift(span)) }));
    doubted
        .filter(|(_, shift)| *shift != Some(0))
        .map(|(span, shift)| (span.id.as_str(), shift))
        .collect()
}

/// A span shares its parent's shift if it is of the same host, and else has one of its own.
fn shift(span: &Timed, by_id: &HashMap<&str, &Timed>) -> i128 {
    let Some(parent) = by_id.get(span.parent.as_str()).filter(|_| !span.parent.is_empty()) else {
        return 0;
    };
    if span.host == parent.host && !span.host.is_empty() {
        return shift(parent, by_id);
    }
    // The parent was moved before.
    let moved = shift(parent, by_id);
    let (from, to) = (parent.start + moved, parent.end + moved);
    let (length, room) = (span.end - span.start, to - from);
    if length > room {
        return (from - span.start).max(0);
    }
    if span.start >= from && span.end <= to { 0 } else { from + (room - length) / 2 - span.start }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: &str, parent: &str, host: &str, [start, end]: [i128; 2]) -> Timed {
        Timed { id: id.to_owned(), parent: parent.to_owned(), host: host.to_owned(), start, end }
    }

    #[test]
    fn a_short_child_on_another_host_is_moved_into_its_parent_and_its_own_children_with_it() {
        let trace = [
            span("publish", "", "a", [0, 12]),
            span("process", "publish", "b", [20, 24]),
            span("ack", "process", "b", [23, 24]),
            span("wait", "publish", "b", [24, 100]),
            span("after", "wait", "b", [100, 104]),
            span("elsewhere", "wait", "c", [110, 114]),
        ];
        assert_eq!(
            doubted(&trace),
            [("process", Some(-16)), ("ack", Some(-16)), ("elsewhere", Some(-50))]
        );
        let on_one = trace.map(|span| Timed { host: "a".to_owned(), ..span });
        assert_eq!(doubted(&on_one), []);
        let nameless = on_one.map(|span| Timed { host: String::new(), ..span });
        assert_eq!(doubted(&nameless).len(), 4);
    }

    #[test]
    fn a_long_child_is_moved_only_if_it_begins_before_its_parent_and_one_without_a_parent_never() {
        let wait = |start| {
            [span("publish", "", "a", [10, 22]), span("wait", "publish", "b", [start, start + 50])]
        };
        assert_eq!((doubted(&wait(10)), doubted(&wait(4))), (vec![], vec![("wait", Some(6))]));
        assert_eq!(
            doubted(&[span("publish", "", "a", [10, 22]), span("wait", "", "b", [4, 5])]),
            []
        );
        assert_eq!(doubted(&[span("process", "gone", "a", [10, 22])]), [("process", None)]);
    }
}
