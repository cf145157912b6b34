//! The report, for people and for machines.

use std::collections::{BTreeMap, BTreeSet};

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use rehop_operator::parked::RampSettings;
use serde::Serialize;
use serde_json::{Value, json};

use super::account::{Account, Row};
use super::jitter::Spread;
use super::play::Sent;
use super::script::{BUG, OrderKind};
use super::timeline::Timeline;
use super::witness::Witness;
use super::{parked, policy, traces, waterfall};

pub(crate) struct Report<'a> {
    witness: &'a Witness,
    is_simulated: bool,
    before: Account,
    account: Account,
    spread: Spread,
    lateness: Lateness,
    timelines: Vec<Timeline>,
    /// Its trace is drawn.
    traced: Option<&'a Sent>,
}

impl<'a> Report<'a> {
    pub(crate) fn of(witness: &'a Witness, is_simulated: bool) -> Self {
        let shown = [
            (
                witness.told_to_wait(),
                "fails in the outage, and waits as long as Retry-After asks, which no tier does",
            ),
            (
                witness.of_kind(OrderKind::Hurried),
                "never succeeds, and its deadline is before the end of the next wait",
            ),
            (witness.of_kind(OrderKind::Poison), "kills the process that handles it"),
        ];
        let lateness = witness.spans.iter().filter_map(|span| span.number("rehop.lateness_ms"));
        Self {
            witness,
            is_simulated,
            before: witness.account_before_replay(),
            account: witness.account(),
            spread: Spread::of(witness.first_waits_of_refunds(), policy::jitter_bounds()),
            lateness: Lateness::of(lateness.collect()),
            timelines: shown
                .into_iter()
                .filter_map(|(sent, title)| Some(Timeline::of(witness, sent?, title)))
                .collect(),
            traced: witness.retried_by_policy(),
        }
    }

    pub(crate) fn adds_up(&self) -> bool {
        self.before.adds_up() && self.witness.replay.ended.is_success() && self.account.adds_up()
    }

    pub(crate) fn text(&self, width: usize, colours: bool) -> String {
        let Lateness { waits, p50, p99, max } = self.lateness;
        let mut text = format!(
            "{}\n\nWhat became of the orders, before the replay and at the end\n{}\n{}\n\n\
             {} requests reached the HTTP service; the consumer process died {} times.\n\
             {waits} retries arrived late by: p50 {p50} ms, p99 {p99} ms, max {max} ms \
             (including the time in which the process was down).\n{}\n\n\
             Three orders, from publishing to the end\n",
            self.replay(),
            self.table(),
            self.verdict(),
            self.witness.requests.len(),
            self.witness.crashes.len(),
            self.spread.text(),
        );
        for timeline in &self.timelines {
            text += &format!("\n{}\n", timeline.text());
        }
        let traced = self.traced.map(|sent| (sent, "drawn from its spans"));
        let poison =
            self.witness.of_kind(OrderKind::Poison).map(|sent| (sent, "which kills its process"));
        for (sent, what) in [traced, poison].into_iter().flatten() {
            let (order, trace) = (sent.order.id, &sent.trace_id);
            text += &format!("\nThe trace of order {order}, {what} ({trace})\n");
            text += &waterfall::draw(&self.witness.spans_of(sent), width, colours).join("\n");
            text += "\n";
        }
        let (traces, doubted) = traces::doubted(&self.witness.spans);
        text + &format!("\nJaeger would doubt the clocks of {doubted} of the {traces} traces.")
    }

    /// What the operator saw and did, as the tool prints it.
    fn replay(&self) -> String {
        let Witness { seen, replay, .. } = self.witness;
        format!(
            "What was parked\n$ rehop parked list --queue {queue}\n{}\n\n\
             The HTTP service's bug was repaired, and what it had parked was sent back\n\
             $ rehop parked replay --queue {queue} --class {BUG} --apply --expect {}\n{}\n{}",
            seen.listed,
            replay.expected,
            parked::replayed(&replay.ended),
            self.canary(),
            queue = policy::ORDERS,
        )
    }

    fn canary(&self) -> String {
        let size = RampSettings::default().batches.first().map_or(0, |size| *size as usize);
        let seconds = |nanos: &u64| *nanos as f64 / 1e9;
        let seen = self.witness.seen_again();
        match (seen[..size.min(seen.len())].last(), seen.get(size)) {
            (Some(canary), Some(next)) => format!(
                "The canary of {size} was there within {:.2} s. The others came after {:.2} s, when all {size} were known to be handled.",
                seconds(canary),
                seconds(next)
            ),
            _ => format!("They were no more than a canary of {size}."),
        }
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(UTF8_BORDERS_ONLY).set_header([
            "outcome",
            "before",
            "at the end",
            "expected",
            "why",
        ]);
        let fates: BTreeSet<_> = self.before.rows.keys().chain(self.account.rows.keys()).collect();
        for fate in fates {
            let row = |account: &Account| account.rows.get(fate).copied().unwrap_or_default();
            table.add_row(cells(
                fate.to_string(),
                row(&self.before),
                row(&self.account),
                fate.why(),
            ));
        }
        table.add_row(cells("sum".to_owned(), self.before.sum(), self.account.sum(), ""));
        for column in table.column_iter_mut().skip(1).take(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    fn verdict(&self) -> String {
        let duplicates = match self.account.duplicates {
            0 => "No duplicates this time. A crash between an effect and its ack would cause one."
                .to_owned(),
            count => {
                format!("Duplicates: {count}, each from a crash between an effect and its ack.")
            }
        };
        if self.adds_up() {
            let published = self.witness.sent.len();
            return format!(
                "It adds up: {published} orders were published and confirmed, and each was where it should be, both times.\n{duplicates}"
            );
        }
        let mut lines = vec![format!("IT DOES NOT ADD UP. {duplicates}")];
        for (when, account) in [("before the replay", &self.before), ("at the end", &self.account)]
        {
            let astray: Vec<_> =
                account.astray.iter().map(|(order, fate)| format!("{order} ({fate})")).collect();
            lines.push(format!("orders that were elsewhere {when}: {}", astray.join(", ")));
            lines.push(format!("messages of no published order {when}: {}", account.unknown));
        }
        if !self.witness.replay.ended.is_success() {
            lines.push("not every replayed order was handled".to_owned());
        }
        lines.join("\n")
    }

    pub(crate) fn json(&self) -> Value {
        let (traces, doubted) = traces::doubted(&self.witness.spans);
        let trace_of = |sent: &Sent| {
            json!({
                "order": sent.order.id,
                "attempts_seen_by_the_service": self.witness.requests_of(sent).len(),
                "spans": self.witness.spans_of(sent),
            })
        };
        json!({
            "adds_up": self.adds_up(),
            "simulated": self.is_simulated,
            "published": self.witness.sent.len(),
            "before_the_replay": account_json(&self.before),
            "at_the_end": account_json(&self.account),
            "parked": self.witness.seen.listing.groups,
            "replay": self.witness.replay.ended,
            "replayed_orders_seen_after_nanos": self.witness.seen_again(),
            "jitter": self.spread,
            "requests": self.witness.requests.len(),
            "crashes": self.witness.crashes.len(),
            "lateness_ms": self.lateness,
            "timelines": self.timelines,
            "trace": self.traced.map(trace_of),
            "trace_of_poison": self.witness.of_kind(OrderKind::Poison).map(trace_of),
            "traces": traces,
            "traces_with_doubted_clocks": doubted,
        })
    }
}

fn cells(outcome: String, before: Row, end: Row, why: &str) -> [String; 5] {
    [
        outcome,
        before.orders.to_string(),
        end.orders.to_string(),
        end.meant.to_string(),
        why.to_owned(),
    ]
}

fn account_json(Account { rows, astray, unknown, duplicates }: &Account) -> Value {
    let ended: BTreeMap<String, usize> =
        rows.iter().map(|(fate, row)| (fate.to_string(), row.orders)).collect();
    let astray: BTreeMap<&u32, String> =
        astray.iter().map(|(order, fate)| (order, fate.to_string())).collect();
    json!({
        "orders": ended,
        "otherwise_than_meant": astray,
        "of_no_published_order": unknown,
        "duplicates": duplicates,
    })
}

/// How late retries arrived, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Lateness {
    waits: usize,
    p50: u64,
    p99: u64,
    max: u64,
}

impl Lateness {
    fn of(mut late: Vec<u64>) -> Self {
        late.sort_unstable();
        let part = |percent: usize| {
            late.get((late.len() * percent).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0)
        };
        Self { waits: late.len(), p50: part(50), p99: part(99), max: part(100) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_read_off_the_sorted_waits() {
        assert_eq!(
            Lateness::of((1..=100).rev().collect()),
            Lateness { waits: 100, p50: 50, p99: 99, max: 100 }
        );
        assert_eq!(Lateness::of(vec![7]), Lateness { waits: 1, p50: 7, p99: 7, max: 7 });
        assert_eq!(Lateness::of(Vec::new()), Lateness { waits: 0, p50: 0, p99: 0, max: 0 });
    }
}
