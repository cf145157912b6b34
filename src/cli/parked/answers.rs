//! What `rehop parked list` and `rehop parked replay` print. The demo prints the same, and includes this file.

use rehop::parked::{Listing, Replayed, Stop, Tally};

use super::plan::{groups_table, now, rows_table};
use super::text;

pub(super) fn listing(listing: &Listing) -> String {
    let seen = if listing.looked_at < listing.depth {
        format!("first {} of {}", text::number(listing.looked_at), text::number(listing.depth))
    } else {
        format!("all {}", text::number(listing.depth))
    };
    let mut parts = vec![format!(
        "{}: {seen} messages, {} match, {} {}",
        text::line(&listing.queue),
        text::number(listing.matched),
        listing.groups.len(),
        if listing.groups.len() == 1 { "kind" } else { "kinds" }
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
        text::number(tally.moved),
        text::number(fates.handled),
        text::number(fates.parked_again),
        text::number(fates.waiting),
        text::number(fates.discarded),
        text::number(replayed.unknown),
    )];
    lines.extend(left(tally));
    lines.extend(replayed.stopped.as_ref().map(stopped));
    if !replayed.parked_again.is_empty() {
        lines.push(String::new());
        lines.push("parked again:".to_owned());
        lines.push(groups_table(&replayed.parked_again, now()));
    }
    lines.join("\n")
}

/// What matches and was not moved.
pub(super) fn left(tally: &Tally) -> Vec<String> {
    let mut lines = Vec::new();
    if tally.without_destination > 0 {
        let count = text::number(tally.without_destination);
        lines.push(format!("{count} stay: they do not say where they belong; --to names a queue for them"));
    }
    if tally.missing_destination > 0 {
        let count = text::number(tally.missing_destination);
        lines.push(format!("{count} stay: their queue does not exist; declare it again"));
    }
    if tally.too_large > 0 {
        lines.push(format!("{} have headers too large for a copy, and stay", text::number(tally.too_large)));
    }
    lines
}

pub(super) fn stopped(stop: &Stop) -> String {
    format!("stopped: {}", text::line(&stop.to_string()))
}
