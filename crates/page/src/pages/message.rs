//! One message: its history, headers and body, and what a replay would do.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::{Query, State};

use super::frame::Frame;
use super::{Outcome, html};
use crate::address::Address;
use crate::allowed::Action;
use crate::door::{Fields, FormToken};
use crate::format::time;
use crate::readings;
use crate::refusal::Refusal;
use crate::state::AppState;
use crate::timeline::{self, Timeline};
use crate::tree::{Node, tree};
use rehop_operator::format::{count, size};
use rehop_operator::parked::{Body, Detail, ParkedError, Place};

#[derive(Template)]
#[template(path = "message.html")]
struct Page {
    frame: Frame,
    place: Address,
    place_title: String,
    /// How many messages the chain has here.
    matched: String,
    /// How many of them are not shown, if any are not.
    more: Option<String>,
    /// How many messages could be looked at, if not all could.
    only: Option<String>,
    messages: Vec<One>,
    width: u32,
    height: u32,
    /// The query of this page with masked values shown, if that is allowed.
    reveal: Option<String>,
    is_revealed: bool,
    may_replay: bool,
    may_discard: bool,
    may_edit: bool,
    address: Address,
}

struct One {
    position: u64,
    facts: Vec<(&'static str, String)>,
    trace: Option<String>,
    timeline: Option<Timeline>,
    omitted_attempts: bool,
    headers: Vec<(String, String)>,
    properties: Vec<(String, String)>,
    body: Shown,
    omitted: Option<String>,
    replay: Vec<String>,
}

enum Shown {
    Tree(Vec<Node>),
    Text(String),
    Hex(String),
}

pub(super) async fn page(
    State(state): State<Arc<AppState>>,
    Extension(token): Extension<FormToken>,
    Query(fields): Query<Vec<(String, String)>>,
) -> Outcome {
    let fields = Fields(fields);
    let address = state.address(&fields)?;
    let Some(chain) = address.filter.chains.first().cloned() else {
        return Err(Refusal::not_found("The address names no message."));
    };
    let is_revealed = fields.get("reveal").is_some();
    if is_revealed && !state.allowed.contains(Action::Reveal) {
        return Err(Refusal::not_allowed(Action::Reveal));
    }
    let mut parked = state.parked(&address)?;
    if is_revealed {
        tracing::info!(place = %address.place, chain, "masked values are shown");
        parked = parked.reveal();
    }
    let scan = address.scan();
    let wanted = chain.clone();
    let shown = readings::look(&state.work, move || {
        let (parked, chain) = (parked.clone(), wanted.clone());
        async move {
            match parked.show(&chain, scan).await {
                Err(ParkedError::NoSuchMessage { looked_at, .. }) if scan == Some(looked_at) => {
                    Ok(None)
                }
                shown => shown.map(Some),
            }
        }
    });
    let Some(shown) = shown.await? else {
        let all = format!("/message?{}", address.at_all().query());
        return Err(
            Refusal::not_found("It is not among the first messages of the queue.").continue_at(all)
        );
    };
    let mut place = Address::of(address.place.clone());
    place.all = address.all;
    let reveal = (state.allowed.contains(Action::Reveal) && !is_revealed)
        .then(|| format!("{}&reveal=1", address.query()));
    Ok(html(&Page {
        frame: Frame::new(&state, &token, format!("Message {chain}")),
        place_title: super::messages::title(&address.place),
        place,
        matched: count(shown.matched),
        more: Some(shown.more()).filter(|more| *more > 0).map(count),
        only: (shown.looked_at < shown.wanted).then(|| count(shown.looked_at)),
        messages: shown.messages.into_iter().map(|detail| one(&state, detail)).collect(),
        width: timeline::WIDTH,
        height: timeline::HEIGHT,
        reveal,
        is_revealed,
        may_replay: state.allowed.contains(Action::Replay),
        may_edit: state.allowed.contains(Action::Edit) && address.place != Place::Discarded,
        may_discard: state.allowed.contains(Action::Discard) && address.place != Place::Discarded,
        address,
    }))
}

fn one(state: &AppState, detail: Detail) -> One {
    let Detail { message, headers, properties, body, omitted, .. } = detail;
    let at = |at| Option::map(at, time);
    let replays = (message.replays > 0).then(|| match &message.replay_run {
        Some(run) => format!("{}, last by {run}", message.replays),
        None => message.replays.to_string(),
    });
    let facts = [
        ("Reason", Some(message.reason.clone())),
        ("Class", message.class.clone()),
        ("Last error", message.error.clone()),
        ("Parked", at(message.parked_at)),
        ("First delivered", at(message.first_seen)),
        ("Deadline", at(message.deadline)),
        ("Published to exchange", Some(quoted_or(&message.exchange, "the default exchange"))),
        ("With routing key", Some(quoted_or(&message.routing_key, "none"))),
        ("Attempts", Some(message.attempts.to_string())),
        ("Waits", Some(message.hops.to_string())),
        ("Replays", replays),
        ("Size", Some(size(message.size))),
        ("Place in the queue", Some(count(message.position))),
    ];
    One {
        position: message.position,
        facts: facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
        trace: message.traceparent.as_deref().and_then(|parent| state.trace(parent)),
        omitted_attempts: message.attempts as usize > message.history.len(),
        timeline: Timeline::of(&message),
        headers: headers.into_iter().map(|(name, value)| (name, text(&value))).collect(),
        properties: properties.into_iter().collect(),
        body: match body {
            Body::Json(document) => Shown::Tree(tree(&document)),
            Body::Text(text) => Shown::Text(text),
            Body::Hex(digits) => Shown::Hex(digits),
        },
        omitted: (omitted > 0).then(|| count(omitted)),
        replay: replay(message.destination.as_deref()),
    }
}

fn quoted_or(text: &str, none: &str) -> String {
    if text.is_empty() { none.to_owned() } else { text.to_owned() }
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What a replay would do with it.
fn replay(destination: Option<&str>) -> Vec<String> {
    let Some(queue) = destination else {
        return vec![
            "Nothing, unless you name a queue: the message does not say which one it belongs to."
                .to_owned(),
        ];
    };
    vec![
        format!("Send a copy to queue {queue} and to no other, and remove this one when the broker has confirmed the copy."),
        "Keep the body, the properties, the original exchange and routing key, the chain id, the history and the trace.".to_owned(),
        "Remove the counts of attempts and waits, the reason, the deadline and the broker's own headers.".to_owned(),
        "Add the replay's id and its count, so that it is known if it parks again.".to_owned(),
    ]
}
