//! Everything observed during the run, for the report.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::account::{Account, Found};
use super::crash::Crash;
use super::play::Sent;
use super::replay::Replay;
use super::script::{Fate, OrderKind};
use super::shop::Request;
use super::traces::Span;
use super::watch::Seen;

#[derive(Debug)]
pub(crate) struct Witness {
    pub(crate) sent: BTreeMap<u32, Sent>,
    /// The HTTP service's requests, in order.
    pub(crate) requests: Vec<Request>,
    /// What was seen in the queues before the replay.
    pub(crate) seen: Seen,
    pub(crate) replay: Replay,
    /// What was found in the queues at the end.
    pub(crate) found: Vec<Found>,
    pub(crate) crashes: Vec<Crash>,
    pub(crate) spans: Vec<Span>,
}

impl Witness {
    /// Where the orders were before the replay.
    pub(crate) fn account_before_replay(&self) -> Account {
        self.account_of(OrderKind::fate_before_replay, self.replay.began, &self.seen.found)
    }

    /// Where the orders were at the end.
    pub(crate) fn account(&self) -> Account {
        self.account_of(OrderKind::fate, u64::MAX, &self.found)
    }

    fn account_of(&self, fate: fn(OrderKind) -> Fate, until: u64, found: &[Found]) -> Account {
        let meant = self.sent.iter().map(|(id, sent)| (*id, fate(sent.order.kind))).collect();
        let handled = self
            .requests
            .iter()
            .filter(|request| request.answer.is_success() && request.at < until);
        let handled = handled.map(|request| (Some(request.order), Fate::Handled));
        Account::of(&meant, handled.chain(found.iter().cloned()))
    }

    pub(crate) fn requests_of(&self, sent: &Sent) -> Vec<&Request> {
        self.requests.iter().filter(|request| request.order == sent.order.id).collect()
    }

    /// The spans of an order's trace, by their start.
    pub(crate) fn spans_of(&self, sent: &Sent) -> Vec<&Span> {
        let mut spans: Vec<_> =
            self.spans.iter().filter(|span| span.trace_id == sent.trace_id).collect();
        spans.sort_by_key(|span| (span.start, span.end));
        spans
    }

    /// An order that was retried by the policy alone.
    pub(crate) fn retried_by_policy(&self) -> Option<&Sent> {
        self.most_telling(|requests| requests.iter().all(|request| request.retry_after.is_none()))
    }

    /// An order whose answers contained a `Retry-After`.
    pub(crate) fn told_to_wait(&self) -> Option<&Sent> {
        self.most_telling(|requests| requests.iter().any(|request| request.retry_after.is_some()))
    }

    /// When the HTTP service saw the replayed orders, in nanoseconds after the replay began, in
    /// this order.
    pub(crate) fn seen_again(&self) -> Vec<u64> {
        let replayed = |order| {
            self.sent.get(&order).is_some_and(|sent| sent.order.kind == OrderKind::MeetsBug)
        };
        let requests = self.requests.iter().filter(|request| replayed(request.order));
        requests.filter_map(|request| request.at.checked_sub(self.replay.began)).collect()
    }

    /// How long each refund waited first, as its attempt's span says, in milliseconds.
    pub(crate) fn first_waits_of_refunds(&self) -> Vec<u64> {
        let refunds = self.sent.values().filter(|sent| sent.order.kind == OrderKind::Refund);
        let wait = |sent| self.spans_of(sent).iter().find_map(|span| span.number("rehop.delay_ms"));
        refunds.filter_map(wait).collect()
    }

    pub(crate) fn of_kind(&self, kind: OrderKind) -> Option<&Sent> {
        self.sent.values().find(|sent| sent.order.kind == kind)
    }

    /// Of the wanted orders, the one with the most different answers, and among equals the one with
    /// a readable number of attempts. Refunds have another policy, without immediate attempts, and
    /// do not count. Only orders that were handled before the first crash count, because a crash
    /// loses spans that are not exported yet.
    fn most_telling(&self, wanted: impl Fn(&[&Request]) -> bool) -> Option<&Sent> {
        // First those long before the crash, much longer than an export takes; else those for which
        // there was just time for one.
        [1_000_000_000, 300_000_000]
            .iter()
            .find_map(|exported_after| self.most_telling_before(*exported_after, &wanted))
    }

    /// The same, among orders that were handled at least so many nanoseconds before the first
    /// crash.
    fn most_telling_before(
        &self,
        exported_after: u64,
        wanted: impl Fn(&[&Request]) -> bool,
    ) -> Option<&Sent> {
        const READABLE: usize = 4;
        let first_crash = self.crashes.first().map_or(u64::MAX, |crash| crash.at);
        let whole = |requests: &[&Request]| {
            requests.last().is_some_and(|last| {
                last.answer.is_success() && last.at + exported_after < first_crash
            })
        };
        let orders = self.sent.values().filter(|sent| sent.order.kind != OrderKind::Refund);
        let chains = orders.map(|sent| (sent, self.requests_of(sent)));
        let telling = chains
            .filter(|(_, requests)| whole(requests) && wanted(requests))
            .max_by_key(|(sent, requests)| {
                let answers: BTreeSet<_> = requests.iter().map(|request| request.answer).collect();
                (answers.len(), Reverse(requests.len().abs_diff(READABLE)), Reverse(sent.order.id))
            });
        telling.map(|(sent, _)| sent)
    }
}
