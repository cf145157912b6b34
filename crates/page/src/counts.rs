//! What only the management API tells of a queue, as cells of a row. Pure.

use crate::cell::Cell;
use crate::format::per_second;
use crate::statistics::Statistics;
use rehop_operator::format::count;
use rehop_operator::management::stats::{QueueStats, Rates};

/// The columns of a work queue.
pub(super) const WORK: [&str; 5] =
    ["Arrive", "Are settled", "Fail and return at once", "Are parked", "Held by consumers"];
/// The columns of a wait queue.
pub(super) const WAIT: [&str; 2] = ["Fail and begin to wait", "Overdue, and stuck"];

/// The cells of a work queue; none without a management address.
pub(super) fn work(row: usize, work: &str, parked: &str, statistics: &Statistics) -> Vec<Cell> {
    let rate = |queue, of: fn(&Rates) -> f64| rate(stats(statistics, queue), of);
    let texts = [
        rate(work, |rates| rates.published.rate),
        rate(work, |rates| rates.acked.rate),
        rate(work, |rates| rates.redelivered.rate),
        rate(parked, |rates| rates.published.rate),
        number(stats(statistics, work).and_then(|stats| stats.held)),
    ];
    cells(["arrive", "settle", "return", "park", "held"], row, texts, statistics)
}

/// The cells of a wait queue; none without a management address.
pub(super) fn wait(row: usize, queue: &str, statistics: &Statistics) -> Vec<Cell> {
    let stats = stats(statistics, queue);
    let texts =
        [rate(stats, |rates| rates.published.rate), number(stats.and_then(|stats| stats.stuck))];
    cells(["enter", "stuck"], row, texts, statistics)
}

fn cells<const N: usize>(
    ids: [&str; N],
    row: usize,
    texts: [String; N],
    statistics: &Statistics,
) -> Vec<Cell> {
    if *statistics == Statistics::NoAddress {
        return Vec::new();
    }
    ids.into_iter().zip(texts).map(|(id, text)| Cell::new(format!("{id}-{row}"), text)).collect()
}

fn stats<'a>(statistics: &'a Statistics, queue: &str) -> Option<&'a QueueStats> {
    match statistics {
        Statistics::Seen(seen) => seen.get(queue),
        Statistics::NoAddress | Statistics::Unseen(_) => None,
    }
}

fn rate(stats: Option<&QueueStats>, of: fn(&Rates) -> f64) -> String {
    stats.and_then(QueueStats::rates).map_or_else(unknown, |rates| per_second(of(&rates)))
}

fn number(number: Option<u64>) -> String {
    number.map_or_else(unknown, count)
}

fn unknown() -> String {
    "–".to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn texts(cells: &[Cell]) -> Vec<&str> {
        cells.iter().map(|cell| cell.text.as_str()).collect()
    }

    #[test]
    fn a_row_has_the_rates_of_its_queue_and_of_its_parked_queue() {
        let stats = |value| {
            let stats = serde_json::from_value::<QueueStats>(value).unwrap();
            QueueStats { has_rates: true, ..stats }
        };
        let rates = |publish: f64| json!({"publish_details": {"rate": publish}, "ack_details": {"rate": 1234.4}, "redeliver_details": {"rate": 0.2}});
        let seen = Statistics::Seen(Arc::new(BTreeMap::from([
            (
                "orders".to_owned(),
                stats(json!({"messages_unacknowledged": 7, "message_stats": rates(20.0)})),
            ),
            ("orders.parked".to_owned(), stats(json!({"messages_unacknowledged": 0}))),
            (
                "ns.wait.100".to_owned(),
                stats(
                    json!({"messages_unacknowledged": 0, "messages_dlx": 3, "message_stats": rates(1.5)}),
                ),
            ),
        ])));
        let work = |statistics| work(1, "orders", "orders.parked", statistics);
        assert_eq!(texts(&work(&seen)), ["20", "1,234", "0.2", "0", "7"]);
        assert_eq!(work(&seen)[0].id, "arrive-1");
        assert_eq!(texts(&wait(0, "ns.wait.100", &seen)), ["1.5", "3"]);
        assert_eq!(texts(&wait(0, "ns.wait.200", &seen)), ["–", "–"]);
        assert_eq!((work(&seen).len(), wait(0, "", &seen).len()), (WORK.len(), WAIT.len()));
        let unseen = Statistics::Unseen("away".to_owned());
        assert_eq!(texts(&work(&unseen)), ["–"; 5]);
        assert!(work(&Statistics::NoAddress).is_empty());
    }
}
