//! What `rehop parked list` and `rehop parked replay` print. The demo prints the same, and includes
//! this file.

use rehop_operator::format;
use rehop_operator::parked::{Listing, Replayed, Stop, Tally};

use super::plan::{Verb, groups_table, now, rows_table};
use super::text;

pub(super) fn listing(listing: &Listing) -> String {
    let seen = if listing.looked_at < listing.depth {
        format!("first {} of {}", format::count(listing.looked_at), format::count(listing.depth))
    } else {
        format!("all {}", format::count(listing.depth))
    };
    let mut parts = vec![format!(
        "{}: {seen} messages, {} match, {}",
        text::line(&listing.queue),
        format::count(listing.matched),
        format::counted(listing.groups.len() as u64, "kind")
    )];
    if !listing.groups.is_empty() {
        parts.push(groups_table(&listing.groups, now()));
    }
    if !listing.messages.is_empty() {
        parts.push(rows_table(&listing.messages, now()));
    }
    parts.join("\n\n")
}

pub(super) fn replayed(replayed: &Replayed) -> String {
    let (tally, fates) = (&replayed.tally, &replayed.fates);
    let mut lines = vec![format!(
        "replay {}: {} sent, {} handled, {} parked again, {} waiting for another attempt, {} discarded, {} unknown",
        replayed.run,
        format::count(tally.moved),
        format::count(fates.handled),
        format::count(fates.parked_again),
        format::count(fates.waiting),
        format::count(fates.discarded),
        format::count(replayed.unknown),
    )];
    lines.extend(unheard_of(replayed));
    lines.extend(left(tally, Verb::Send));
    lines.extend(replayed.stopped.as_ref().map(stopped));
    if !replayed.parked_again.is_empty() {
        lines.push(String::new());
        lines.push("parked again:".to_owned());
        lines.push(groups_table(&replayed.parked_again, now()));
    }
    lines.join("\n")
}

/// What may have become of the messages of which nothing is known, and where to look.
fn unheard_of(Replayed { run, unknown, .. }: &Replayed) -> Option<String> {
    (*unknown > 0).then(|| {
        format!(
            "{} unknown: they may still be in their queue, or their consumer does not report their fate. One that crashes its consumer is \
             parked by the broker in the end. To see what has been parked: rehop parked list --queue QUEUE --run {run} --scan all",
            format::count(*unknown)
        )
    })
}

/// What matches and was not moved, and why.
pub(super) fn left(tally: &Tally, verb: Verb) -> Vec<String> {
    let [homeless, missing] = match verb {
        Verb::Send => [
            "they do not say where they belong; --to names a queue for them",
            "their queue does not exist or cannot be served; declare it again, or discard them. They count towards --limit; \
             --destination selects others",
        ],
        Verb::Discard | Verb::Restore => [
            "they do not say where they were discarded from; `rehop parked replay --discarded` sends them to their work queue",
            "the queue that they were discarded from does not exist or cannot be served; declare it again",
        ],
    };
    let reasons = [
        (tally.without_destination, homeless),
        (tally.missing_destination, missing),
        (tally.too_large, "they are too large for a copy, or the broker does not accept it"),
    ];
    let some = reasons.into_iter().filter(|(count, _)| *count > 0);
    some.map(|(count, why)| format!("{} stay: {why}", format::count(count))).collect()
}

pub(super) fn stopped(stop: &Stop) -> String {
    format!("stopped: {}", text::line(&stop.to_string()))
}
