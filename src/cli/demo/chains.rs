//! Which chains are worth showing.

use std::cmp::Reverse;

use super::script::Kind;
use super::shop::Request;
use super::witness::Witness;

/// The chain for the waterfall: the outage without a `Retry-After`, so with requeues and waits, then contention, and success.
pub(super) fn for_waterfall(witness: &Witness) -> Option<u32> {
    best(witness, |requests| {
        let met = |answers: &[u16]| requests.iter().any(|request| answers.contains(&request.answer));
        u32::from(met(&[503])) * 2
            + u32::from(met(&[409, 423]))
            + u32::from(requests.iter().all(|it| it.retry_after.is_none()))
    })
}

/// The chains for the timelines, each with its title.
pub(super) fn for_timelines(witness: &Witness) -> Vec<(u32, &'static str)> {
    let patient = best(witness, |requests| u32::from(requests.iter().any(|request| request.retry_after.is_some())));
    let of_kind = |kind| witness.sent.values().find(|sent| sent.order.kind == kind).map(|sent| sent.order.id);
    [
        (patient, "meets the outage, and waits as long as Retry-After asks"),
        (of_kind(Kind::Hurried), "never succeeds, and its deadline would pass in the next wait"),
        (of_kind(Kind::Poison), "poison, which kills the process that handles it"),
    ]
    .into_iter()
    .filter_map(|(order, title)| Some((order?, title)))
    .collect()
}

/// Of the chains that ended before the first crash, because a crash takes the spans that were not sent yet with it: the one
/// with the highest score, and of several the most readable one.
fn best(witness: &Witness, score: impl Fn(&[&Request]) -> u32) -> Option<u32> {
    let first_crash = witness.crashes.iter().map(|crash| crash.at).min().unwrap_or(u64::MAX);
    let whole = |requests: &[&Request]| {
        requests.last().is_some_and(|last| last.is_success() && last.at + EXPORTED < first_crash)
            && requests.iter().filter(|request| request.is_success()).count() == 1
    };
    witness
        .sent
        .keys()
        .map(|order| (*order, witness.requests_of(*order)))
        .filter(|(_, requests)| whole(requests))
        .max_by_key(|(order, requests)| (score(requests), Reverse(requests.len().abs_diff(READABLE)), Reverse(*order)))
        .map(|(order, _)| order)
}

/// The number of attempts that shows most on least room.
const READABLE: usize = 4;
/// By then its spans have left the process; in nanoseconds.
const EXPORTED: u64 = 300_000_000;
