//! A message's history, drawn to scale. Pure.

use crate::format::{span, time};
use rehop::Timestamp;
use rehop_operator::parked::ParkedMessage;

/// The width and the height of the picture, and the space at its sides.
pub(super) const WIDTH: u32 = 960;
pub(super) const HEIGHT: u32 = 70;
const SIDE: f64 = 12.0;

/// A message's history: marks on a line, from its first delivery to its parking.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Timeline {
    pub(super) marks: Vec<Mark>,
    pub(super) gaps: Vec<Gap>,
    /// How long all of it took.
    pub(super) length: String,
}

/// Something that happened, with its place on the line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mark {
    pub(super) x: f64,
    /// The class of its element: `start`, `attempt` or `end`.
    pub(super) kind: &'static str,
    pub(super) at: String,
    /// The time since what happened before it.
    pub(super) after: String,
    pub(super) what: String,
    pub(super) class: String,
    pub(super) error: String,
}

/// The time between two marks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Gap {
    pub(super) x: f64,
    pub(super) width: f64,
}

impl Timeline {
    /// `None` if the message tells no times.
    pub(super) fn of(message: &ParkedMessage) -> Option<Self> {
        let mut events: Vec<(Timestamp, &'static str, String, String, String)> = Vec::new();
        if let Some(at) = message.first_seen {
            events.push((at, "start", "first delivered".to_owned(), String::new(), String::new()));
        }
        for error in &message.history {
            let what = format!("attempt {} failed", error.attempt);
            events.push((error.at, "attempt", what, error.class.clone(), error.message.clone()));
        }
        if let Some(at) = message.parked_at {
            events.push((
                at,
                "end",
                format!("parked: {}", message.reason),
                String::new(),
                String::new(),
            ));
        }
        // Clocks differ, and anyone can write headers. The order in which things are listed is the
        // order in which they happened.
        let start = events.first()?.0;
        let mut latest = start;
        let times: Vec<Timestamp> = events
            .iter()
            .map(|event| {
                latest = latest.max(event.0);
                latest
            })
            .collect();
        let whole = latest.since(start).as_secs_f64();
        let room = f64::from(WIDTH) - 2.0 * SIDE;
        let place = |at: Timestamp| {
            if whole > 0.0 { SIDE + room * at.since(start).as_secs_f64() / whole } else { SIDE }
        };
        let mut before = start;
        let mut marks = Vec::new();
        for ((at, kind, what, class, error), shown) in events.into_iter().zip(&times) {
            let after = if *shown > before { span(shown.since(before)) } else { String::new() };
            before = *shown;
            marks.push(Mark { x: place(*shown), kind, at: time(at), after, what, class, error });
        }
        let gaps = marks.windows(2).filter(|pair| pair[1].x - pair[0].x > 1.0);
        let gaps = gaps.map(|pair| Gap { x: pair[0].x, width: pair[1].x - pair[0].x }).collect();
        Some(Self { marks, gaps, length: span(latest.since(start)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rehop::ErrorRecord;
    use rehop_operator::parked::samples::sample;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + seconds * 1_000)
    }

    fn message(first: Option<i64>, failures: &[i64], parked: Option<i64>) -> ParkedMessage {
        let records = failures.iter().zip(1..);
        let mut message = sample();
        message.history = records
            .map(|(seconds, attempt)| ErrorRecord::new(at(*seconds), attempt, "io", "busy"))
            .collect();
        (message.first_seen, message.parked_at) = (first.map(at), parked.map(at));
        message
    }

    #[test]
    fn attempts_and_waits_are_drawn_to_scale() {
        let timeline = Timeline::of(&message(Some(0), &[0, 10, 70], Some(70))).unwrap();
        let xs: Vec<_> = timeline.marks.iter().map(|mark| mark.x.round()).collect();
        assert_eq!(xs, [12.0, 12.0, 146.0, 948.0, 948.0]);
        let after: Vec<_> = timeline.marks.iter().map(|mark| mark.after.as_str()).collect();
        assert_eq!(after, ["", "", "10 s", "1 min", ""]);
        assert_eq!((timeline.gaps.len(), timeline.length.as_str()), (2, "1 min 10 s"));
        assert_eq!(timeline.marks[1].what, "attempt 1 failed");
    }

    #[test]
    fn clocks_that_disagree_and_missing_times_break_nothing() {
        assert_eq!(Timeline::of(&message(None, &[], None)), None);
        let one = Timeline::of(&message(None, &[5], None)).unwrap();
        assert_eq!((one.marks.len(), one.marks[0].x), (1, SIDE));
        let skewed = Timeline::of(&message(Some(100), &[0, 200], Some(50))).unwrap();
        assert!(skewed.marks.windows(2).all(|pair| pair[0].x <= pair[1].x), "{skewed:?}");
        let mut absurd = message(Some(0), &[1], Some(2));
        absurd.first_seen = Some(Timestamp::from_millis(i64::MIN));
        absurd.parked_at = Some(Timestamp::from_millis(i64::MAX));
        let absurd = Timeline::of(&absurd).unwrap();
        assert!(
            absurd.marks.iter().all(|mark| (0.0..=f64::from(WIDTH)).contains(&mark.x)),
            "{absurd:?}"
        );
    }
}
