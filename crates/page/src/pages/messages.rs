//! The messages of a place: groups first, then rows.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;

use super::frame::Frame;
use super::{Outcome, html};
use crate::address::Address;
use crate::allowed::Action;
use crate::door::{Fields, FormToken};
use crate::format::{span, time};
use crate::readings::{self, READING_AGE};
use crate::refusal::Refusal;
use crate::state::AppState;
use rehop::Timestamp;
use rehop_operator::format::{count, size};
use rehop_operator::parked::{Group, Listing, MessageKind, ParkedMessage, Place};

#[derive(Template)]
#[template(path = "messages.html")]
struct Page {
    frame: Frame,
    address: Address,
    /// What was looked at.
    seen: String,
    is_reading: bool,
    is_partial: bool,
    matched: String,
    groups: Vec<GroupRow>,
    rows: Vec<Row>,
    may_replay: bool,
    may_discard: bool,
}

struct GroupRow {
    reason: String,
    class: String,
    error: String,
    destination: String,
    count: String,
    bytes: String,
    oldest: String,
    newest: String,
    replayed_before: String,
    query: Option<String>,
}

struct Row {
    chain: String,
    query: String,
    age: String,
    key: String,
    destination: String,
    attempts: u32,
    replays: u32,
    size: String,
    error: String,
}

pub(super) async fn page(
    State(state): State<Arc<AppState>>,
    Extension(token): Extension<FormToken>,
    Query(fields): Query<Vec<(String, String)>>,
) -> Outcome {
    let address = state.address(&Fields(fields))?;
    let parked = state.parked(&address)?;
    let (listing, is_reading) = if address.all {
        let mut reading = state.readings.of(&parked, &address, READING_AGE);
        let reading = readings::first_seen(&mut reading).await.ok_or_else(Refusal::given_up)?;
        let is_reading = !reading.is_complete();
        (reading.listing()?, is_reading)
    } else {
        (readings::list(&state.work, parked, &address).await?, false)
    };
    Ok(html(&view(&state, &token, address, &listing, is_reading)))
}

fn view(
    state: &AppState,
    token: &FormToken,
    address: Address,
    listing: &Listing,
    is_reading: bool,
) -> Page {
    let now = state.now();
    let discards = state.allowed.contains(Action::Discard) && address.place != Place::Discarded;
    Page {
        frame: Frame::new(state, token, title(&address.place)),
        seen: seen(listing),
        is_reading,
        is_partial: listing.looked_at < listing.depth
            && !address.all
            && !is_enough(&address, listing),
        matched: count(listing.matched),
        groups: listing.groups.iter().map(|group| group_row(&address, group)).collect(),
        rows: listing.messages.iter().map(|message| row(&address, message, now)).collect(),
        may_replay: state.allowed.contains(Action::Replay),
        may_discard: discards,
        address,
    }
}

/// What was looked at.
pub(super) fn seen(listing: &Listing) -> String {
    match listing.looked_at < listing.depth {
        true => {
            format!("the first {} of {} messages", count(listing.looked_at), count(listing.depth))
        }
        false => format!("all {} messages", count(listing.depth)),
    }
}

/// Whether as many match as the address wants.
pub(super) fn is_enough(address: &Address, listing: &Listing) -> bool {
    address.filter.limit.is_some_and(|limit| listing.matched >= limit)
}

/// The heading of a place's page.
pub(super) fn title(place: &Place) -> String {
    match place {
        Place::Queue(queue) => format!("Parked messages of {queue}"),
        Place::Stray => "Stray messages".to_owned(),
        Place::Discarded => "Discarded messages".to_owned(),
    }
}

/// A link to a group selects exactly its messages. Those that are not told apart have nothing in
/// common.
fn group_link(address: &Address, group: &Group) -> Option<String> {
    let MessageKind { reason, class, error, destination, .. } = &group.kind;
    let mut one = address.clone().with("reason", reason);
    for (some, none, value) in [
        ("class", "no_class", class),
        ("error_is", "no_error", error),
        ("destination", "no_destination", destination),
    ] {
        one = match value.as_deref() {
            Some("") | None => one.with(none, "1"),
            Some(value) => one.with(some, value),
        };
    }
    if address.filter.limit.is_some() {
        one = one.with("limit", &group.count.to_string());
    }
    (!group.kind.is_rest()).then(|| one.query())
}

fn group_row(address: &Address, group: &Group) -> GroupRow {
    let at = |at: Option<Timestamp>| at.map_or("unknown".to_owned(), time);
    GroupRow {
        reason: group.kind.reason.clone(),
        class: group.kind.class.clone().unwrap_or_default(),
        error: group.kind.error.clone().unwrap_or_else(|| "no error text".to_owned()),
        destination: group.kind.destination.clone().unwrap_or_else(|| "unknown".to_owned()),
        count: count(group.count),
        bytes: size(group.bytes),
        oldest: at(group.oldest),
        newest: at(group.newest),
        replayed_before: count(group.replayed_before),
        query: group_link(address, group),
    }
}

fn row(address: &Address, message: &ParkedMessage, now: Timestamp) -> Row {
    let mut one = Address::of(address.place.clone()).with("chain", &message.chain);
    one.all = address.all;
    Row {
        chain: message.chain.clone(),
        query: one.query(),
        age: message.parked_at.map_or("unknown".to_owned(), |at| span(now.since(at))),
        key: message.routing_key.clone(),
        destination: message.destination.clone().unwrap_or_else(|| "unknown".to_owned()),
        attempts: message.attempts,
        replays: message.replays,
        size: size(message.size),
        error: message.error.clone().unwrap_or_default(),
    }
}

/// Tells an open page how far its queue has been read.
pub(super) async fn live(
    State(state): State<Arc<AppState>>,
    Query(fields): Query<Vec<(String, String)>>,
) -> Result<Response, Refusal> {
    let address = state.address(&Fields(fields))?;
    let parked = state.parked(&address)?;
    let texts = |listing: &Listing| serde_json::json!({"seen": seen(listing), "matched": count(listing.matched)});
    Ok(super::live::reading(state.readings.of(&parked, &address, READING_AGE), texts))
}
