//! Before something is done: what, to how many, and where they go. Then the operation itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Redirect};
use http::StatusCode;

use super::frame::Frame;
use super::messages::{is_enough, seen, title};
use super::{Outcome, html};
use crate::address::Address;
use crate::allowed::Action;
use crate::door::{Fields, FormToken};
use crate::readings::{self, Reading};
use crate::refusal::Refusal;
use crate::runs::{About, Operation};
use crate::state::AppState;
use rehop_operator::format::count;
use rehop_operator::parked::{DiscardRequest, Listing, Place, RampSettings, ReplayRequest};

#[derive(Template)]
#[template(path = "plan.html")]
struct Page {
    frame: Frame,
    address: Address,
    is_replay: bool,
    action: &'static str,
    matched: u64,
    counted: String,
    filter: String,
    place_title: String,
    destinations: Vec<(String, String)>,
    missing: Vec<(String, String)>,
    /// How many belong to further queues, if any do.
    others: Option<String>,
    without_destination: u64,
    groups: Vec<(String, String)>,
    /// What was looked at so far.
    seen: String,
    is_reading: bool,
    /// Not all messages could be looked at.
    is_short: bool,
}

/// How long a page waits for the end of a reading before it shows how far it is.
const READ_WITHIN: Duration = Duration::from_secs(3);
/// How old the numbers of a plan may be. A page without scripts is loaded again every five seconds,
/// and has to find them.
const PLAN_AGE: Duration = Duration::from_secs(30);

/// The plan of a replay or a discard. It goes through the whole queue, because the number has to be
/// right. If that takes long, the page shows how far it is, and is loaded again at the end.
pub(super) async fn page(
    State(state): State<Arc<AppState>>,
    Extension(token): Extension<FormToken>,
    Path(name): Path<String>,
    Query(fields): Query<Vec<(String, String)>>,
) -> Outcome {
    let address = state.address(&Fields(fields))?;
    let action = allowed(&state, &name, &address)?;
    let parked = state.parked(&address)?;
    let mut reading = state.readings.of(&parked, &address, PLAN_AGE);
    let _ = tokio::time::timeout(READ_WITHIN, reading.wait_for(Reading::is_complete)).await;
    let reading = readings::first_seen(&mut reading).await.ok_or_else(Refusal::given_up)?;
    let is_reading = !reading.is_complete();
    Ok(html(&view(&state, &token, address, action, &reading.listing()?, is_reading)))
}

fn view(
    state: &AppState,
    token: &FormToken,
    address: Address,
    action: Action,
    listing: &Listing,
    is_reading: bool,
) -> Page {
    let verb = if action == Action::Replay { "Replay" } else { "Discard" };
    let counts = |queues: &BTreeMap<String, u64>| {
        queues.iter().map(|(queue, number)| (queue.clone(), count(*number))).collect::<Vec<_>>()
    };
    let groups = listing.groups.iter().take(20).map(|group| {
        let error = group.kind.error.as_deref().unwrap_or("no error text");
        (count(group.count), format!("{}: {error}", group.kind.reason))
    });
    Page {
        frame: match is_reading {
            true => Frame::new(state, token, format!("{verb} messages")),
            false => {
                Frame::new(state, token, format!("{verb} {} messages", count(listing.matched)))
            }
        },
        is_replay: action == Action::Replay,
        action: action.as_str(),
        matched: listing.matched,
        counted: count(listing.matched),
        filter: address.in_words(),
        place_title: title(&address.place),
        destinations: counts(&listing.destinations),
        missing: counts(&listing.missing_destinations),
        others: Some(listing.other_destinations).filter(|others| *others > 0).map(count),
        without_destination: listing.without_destination,
        groups: groups.collect(),
        seen: seen(listing),
        is_reading,
        is_short: listing.looked_at < listing.depth && !is_enough(&address, listing),
        address,
    }
}

/// Starts what a plan's form asks for, and goes on to its progress.
pub(super) async fn start(
    State(state): State<Arc<AppState>>,
    Path(name): Path<String>,
    Extension(fields): Extension<Fields>,
) -> Outcome {
    let address = state.address(&fields)?;
    let action = allowed(&state, &name, &address)?;
    let bad = |text: String| Refusal::new(StatusCode::BAD_REQUEST, text);
    let (operation, expect) = operation(&fields, &address, action).map_err(bad)?;
    let verb = if action == Action::Replay { "Replay" } else { "Discard" };
    let why = fields.get("why").unwrap_or_default().to_owned();
    let title = format!("{verb} {} messages of {}", count(expect), address.place);
    let about = About { title, why, from: address.query() };
    let run = state.runs.start(state.parked(&address)?, operation, about);
    Ok(Redirect::to(&format!("/runs/{}", run.id)).into_response())
}

/// What the form asks for, and how many messages it is about.
fn operation(
    fields: &Fields,
    address: &Address,
    action: Action,
) -> Result<(Operation, u64), String> {
    let why =
        fields.get("why").ok_or("Say why, for the audit. Go back, and fill in the reason.")?;
    let expected =
        number(fields, "expect")?.ok_or("The form does not say how many messages it is about.")?;
    let (filter, expect, why) = (address.filter.clone(), Some(expected), Some(why.to_owned()));
    let in_flight = fields.get("strict").map(|_| 1);
    if action == Action::Discard {
        let mut request = DiscardRequest::default();
        (request.filter, request.expect, request.why) = (filter, expect, why);
        request.in_flight = in_flight;
        return Ok((Operation::Discard(request), expected));
    }
    let deadline = |text: &str| {
        humantime::parse_duration(text)
            .map_err(|_| format!("{text:?} is not a duration such as 24h."))
    };
    let rate = number(fields, "rate")?;
    if rate == Some(0) {
        return Err(
            "A rate of 0 would never send anything. Leave the field empty for no limit.".to_owned()
        );
    }
    let mut request = ReplayRequest::default();
    (request.filter, request.expect, request.why) = (filter, expect, why);
    if fields.get("growth") == Some("at_once") {
        request.ramp = RampSettings::none();
    }
    request.to = fields.get("to").map(str::to_owned);
    request.rate = rate.map(|rate| rate as f64);
    request.max_ready = number(fields, "max_ready")?;
    request.deadline = fields.get("deadline").map(deadline).transpose()?;
    request.in_flight = in_flight;
    Ok((Operation::Replay(request), expected))
}

/// Whether the page may do it, here.
fn allowed(state: &AppState, name: &str, address: &Address) -> Result<Action, Refusal> {
    let action = match name {
        "replay" => Action::Replay,
        "discard" if address.place != Place::Discarded => Action::Discard,
        _ => return Err(Refusal::not_found("There is no such page.")),
    };
    if state.allowed.contains(action) { Ok(action) } else { Err(Refusal::not_allowed(action)) }
}

fn number(fields: &Fields, name: &str) -> Result<Option<u64>, String> {
    let parse = |text: &str| text.parse().map_err(|_| format!("{text:?} is not a whole number."));
    fields.get(name).map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_is_for_replays_and_discards() {
        for action in [Action::Replay, Action::Discard] {
            for (strict, in_flight) in [("", None), ("1", Some(1))] {
                let field = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
                let fields =
                    Fields([("why", "x"), ("expect", "2"), ("strict", strict)].map(field).into());
                let asked = match operation(&fields, &Address::of(Place::Stray), action) {
                    Ok((Operation::Replay(request), 2)) => request.in_flight,
                    Ok((Operation::Discard(request), 2)) => request.in_flight,
                    _ => panic!("{action:?}"),
                };
                assert_eq!(asked, in_flight, "{action:?}");
            }
        }
    }
}
