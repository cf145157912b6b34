//! The report, for people and for machines.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};

use super::account::Account;
use super::script::Fate;
use super::timeline::{Timeline, timeline};
use super::waterfall::Waterfall;
use super::witness::Witness;
use super::{chains, script};

pub(super) struct Report {
    broker: String,
    account: Account,
    lateness: Lateness,
    timelines: Vec<Timeline>,
    traced: Option<Traced>,
    crashes: usize,
    requests: usize,
    seconds: f64,
}

/// The chain of the waterfall.
struct Traced {
    order: u32,
    trace_id: String,
    /// Requests that the HTTP service saw for it.
    attempts_seen: usize,
    waterfall: Waterfall,
}

/// How much later than due messages came home, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Lateness {
    waits: usize,
    p50: u64,
    p99: u64,
    max: u64,
}

impl Lateness {
    fn of(mut late: Vec<u64>) -> Self {
        late.sort_unstable();
        let part =
            |percent: usize| late.get((late.len() * percent).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0);
        Self { waits: late.len(), p50: part(50), p99: part(99), max: part(100) }
    }
}

impl Report {
    pub(super) fn of(witness: &Witness, broker: &str, seconds: f64) -> Self {
        let shown = chains::for_timelines(witness);
        let traced = chains::for_waterfall(witness).map(|order| Traced {
            order,
            trace_id: witness.sent.get(&order).map(|sent| sent.trace_id.clone()).unwrap_or_default(),
            attempts_seen: witness.requests_of(order).len(),
            waterfall: Waterfall::of(witness.spans_of(order)),
        });
        Self {
            broker: broker.to_owned(),
            account: Account::of(&witness.evidence()),
            lateness: Lateness::of(witness.spans.iter().filter_map(|span| span.number("rehop.lateness_ms")).collect()),
            timelines: shown.into_iter().filter_map(|(order, title)| timeline(witness, order, title)).collect(),
            traced,
            crashes: witness.crashes.len(),
            requests: witness.requests.len(),
            seconds,
        }
    }

    pub(super) fn adds_up(&self) -> bool {
        self.account.adds_up()
    }

    pub(super) fn text(&self, width: usize, colours: bool) -> String {
        let mut lines = vec!["What became of the orders".to_owned(), self.table().to_string(), self.verdict()];
        let Lateness { waits, p50, p99, max } = self.lateness;
        lines.push(format!(
            "\n{} requests reached the HTTP service, the consumer process died {} times.\n\
             {waits} waits came home later than due by: p50 {p50} ms, p99 {p99} ms, max {max} ms \
             (a dead process cannot receive, so crashes count in).",
            self.requests, self.crashes
        ));
        lines.push("\nThree orders, from publishing to the end".to_owned());
        for timeline in &self.timelines {
            lines.push(String::new());
            lines.extend(timeline.lines());
        }
        if let Some(traced) = &self.traced {
            lines.push(format!(
                "\nThe trace of order {}, from the spans that were exported ({})",
                traced.order, traced.trace_id
            ));
            lines.extend(traced.waterfall.draw(width, colours));
        }
        lines.join("\n")
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(UTF8_BORDERS_ONLY).set_header(["ended as", "orders", "meant to"]);
        for (fate, row) in &self.account.rows {
            table.add_row([fate.to_string(), row.orders.to_string(), row.meant.to_string()]);
        }
        let count = |what: &str, count: usize| [what.to_owned(), count.to_string(), "0".to_owned()];
        table.add_row(count("still in a queue", self.account.left.len()));
        table.add_row(count("lost", self.account.lost.len()));
        let rows = &self.account.rows;
        let ended: usize = rows.values().map(|row| row.orders).sum();
        let all = ended + self.account.left.len() + self.account.lost.len();
        table.add_row(["sum".to_owned(), all.to_string(), self.account.published.to_string()]);
        for column in [1, 2] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }

    fn verdict(&self) -> String {
        let account = &self.account;
        let duplicates = match account.duplicates {
            0 => "No duplicates this time; a crash between an effect and its ack makes one.".to_owned(),
            count => format!("Duplicates: {count}, each from a crash between an effect and its ack."),
        };
        if account.adds_up() {
            return format!(
                "It adds up: {} published and confirmed, each found where it was meant to end.\n{duplicates}",
                account.published
            );
        }
        let mut lines = vec![format!("IT DOES NOT ADD UP. {duplicates}")];
        let list = |ids: &mut dyn Iterator<Item = String>| ids.collect::<Vec<_>>().join(", ");
        if !account.lost.is_empty() {
            lines.push(format!("lost: {}", list(&mut account.lost.iter().map(u32::to_string))));
        }
        if !account.left.is_empty() {
            lines.push(format!("still in a queue: {}", list(&mut account.left.iter().map(u32::to_string))));
        }
        if !account.astray.is_empty() {
            let of = |(id, fate): (&u32, &Fate)| format!("{id} ({fate})");
            lines.push(format!("ended otherwise than meant: {}", list(&mut account.astray.iter().map(of))));
        }
        if account.unknown > 0 {
            lines.push(format!("of no published order: {}", account.unknown));
        }
        lines.join("\n")
    }

    pub(super) fn json(&self) -> Value {
        let account = &self.account;
        let orders = |fate: &Fate| account.rows.get(fate).map_or(0, |row| row.orders);
        let parked: serde_json::Map<_, _> = account
            .rows
            .iter()
            .filter_map(|(fate, row)| match fate {
                Fate::Parked(reason) => Some((reason.clone(), json!(row.orders))),
                Fate::Handled | Fate::Expired | Fate::Stray => None,
            })
            .collect();
        let Lateness { waits, p50, p99, max } = self.lateness;
        let traced = self.traced.as_ref().map(|traced| {
            json!({
                "order": traced.order,
                "trace_id": traced.trace_id,
                "attempts_seen_by_the_service": traced.attempts_seen,
                "spans": traced.waterfall.json(),
            })
        });
        json!({
            "adds_up": account.adds_up(),
            "broker": self.broker,
            "published": account.published,
            "handled": orders(&Fate::Handled),
            "parked": parked,
            "expired": orders(&Fate::Expired),
            "stray": orders(&Fate::Stray),
            "left": account.left,
            "lost": account.lost,
            "ended_otherwise": account.astray.iter().map(|(id, fate)| (id.to_string(), json!(fate.to_string()))).collect::<serde_json::Map<_, _>>(),
            "unknown": account.unknown,
            "duplicates": account.duplicates,
            "requests": self.requests,
            "crashes": self.crashes,
            "lateness_ms": { "waits": waits, "p50": p50, "p99": p99, "max": max },
            "seconds": self.seconds,
            "timelines": self.timelines,
            "trace": traced,
        })
    }
}

/// What is about to happen, for somebody who has never seen rehop.
pub(super) fn introduction(orders: u32) -> String {
    let policy = script::settings("amqp://127.0.0.1")
        .policy(script::QUEUE)
        .map(|policy| policy.max_attempts())
        .unwrap_or_default();
    format!(
        "rehop consumes from RabbitMQ for services that must survive failing messages. What happens now:\n\
         a broker is started for this run, {orders} orders are published to it, and a consumer process posts each to an HTTP\n\
         service. The service has an outage, refuses some orders and is busy for others; one order is expired, one cannot\n\
         be decoded, and one kills the consumer process whenever it is handled. Failed orders are tried again at once or wait\n\
         in the broker for 300 ms, 1 s and 2 s, {policy} attempts at most; what cannot be handled is parked with its reason.\n\
         At the end every order is counted by reading the queues and the HTTP service's own log.\n"
    )
}

/// What to do next.
pub(super) const NEXT: &str = "\nWhat to try next\n  \
    rehop demo --messages 2000            more of it\n  \
    rehop demo --tag 3.10-management      on another RabbitMQ\n  \
    rehop demo --json | jq .lateness_ms   for machines\n  \
    rehop demo --otlp http://127.0.0.1:4318   with the traces in your own collector\n  \
    rehop --help                          the relay and the topology commands, for a broker of yours\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_read_off_the_sorted_waits() {
        assert_eq!(Lateness::of((1..=100).rev().collect()), Lateness { waits: 100, p50: 50, p99: 99, max: 100 });
        assert_eq!(Lateness::of(vec![7]), Lateness { waits: 1, p50: 7, p99: 7, max: 7 });
        assert_eq!(Lateness::of(Vec::new()), Lateness::default());
    }
}
