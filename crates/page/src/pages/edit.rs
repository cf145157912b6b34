//! Another body for one message, which is then sent back.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Redirect};
use bytes::Bytes;
use http::StatusCode;

use super::frame::Frame;
use super::{Outcome, html};
use crate::address::Address;
use crate::allowed::Action;
use crate::door::{Fields, FormToken};
use crate::readings;
use crate::refusal::Refusal;
use crate::runs::{About, Operation};
use crate::state::AppState;
use rehop_operator::parked::{EditRequest, Parked, ParkedMessage};

/// The largest body that can be edited on a page.
const MAX_BODY: usize = 64 * 1024;

#[derive(Template)]
#[template(path = "edit.html")]
struct Page {
    frame: Frame,
    address: Address,
    body: String,
    fingerprint: String,
    /// Which of several messages of the chain it is.
    position: Option<u64>,
    destination: String,
}

pub(super) async fn page(
    State(state): State<Arc<AppState>>,
    Extension(token): Extension<FormToken>,
    Query(fields): Query<Vec<(String, String)>>,
) -> Outcome {
    let fields = Fields(fields);
    let (address, chain, parked) = subject(&state, &fields)?;
    let position = position(&fields);
    let (message, original) = body(&state, parked.clone(), chain, position).await?;
    if !state.allowed.contains(Action::Reveal) && parked.masks(&original) {
        return Err(Refusal::not_allowed(Action::Reveal));
    }
    let Some(text) = editable(&original) else {
        let text = "Only text of at most 64 KiB, all of whose lines end alike, can be edited here. Use: rehop parked edit";
        return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, text));
    };
    Ok(html(&Page {
        frame: Frame::new(&state, &token, format!("Edit message {}", message.chain)),
        body: text.to_owned(),
        fingerprint: fingerprint(&original),
        position,
        destination: message.destination.unwrap_or_default(),
        address,
    }))
}

pub(super) async fn start(
    State(state): State<Arc<AppState>>,
    Extension(fields): Extension<Fields>,
) -> Outcome {
    let (address, chain, parked) = subject(&state, &fields)?;
    let bad = |text: &str| Refusal::new(StatusCode::BAD_REQUEST, text);
    let why = fields
        .get("why")
        .ok_or_else(|| bad("Say why, for the audit. Go back, and fill in the reason."))?;
    let written = fields.exact("body").ok_or_else(|| bad("The form has no body."))?;
    let position = position(&fields);
    let (_, original) = body(&state, parked.clone(), chain.clone(), position).await?;
    let Some(before) = editable(&original)
        .filter(|_| fields.get("original") == Some(fingerprint(&original).as_str()))
    else {
        return Err(Refusal::new(
            StatusCode::CONFLICT,
            "The message is not the one that the form was made for. Nothing was sent.",
        ));
    };
    let mut request =
        EditRequest::new(chain.clone(), Bytes::from(with_line_ends_of(before, written)));
    (request.original, request.position) = (Some(original), position);
    request.why = Some(why.to_owned());
    request.to = fields.get("to").map(str::to_owned);
    let about = About {
        title: format!("Edit message {chain}"),
        why: why.to_owned(),
        from: address.query(),
    };
    let run = state.runs.start(parked, Operation::Edit(request), about);
    Ok(Redirect::to(&format!("/runs/{}", run.id)).into_response())
}

/// The one message that the address names, if the page may edit.
fn subject(state: &AppState, fields: &Fields) -> Result<(Address, String, Parked), Refusal> {
    let address = state.address(fields)?;
    if !state.allowed.contains(Action::Edit) {
        return Err(Refusal::not_allowed(Action::Edit));
    }
    let chain = address.filter.chains.first().cloned();
    let chain = chain.ok_or_else(|| Refusal::not_found("The address names no message."))?;
    let parked = state.parked(&address)?;
    Ok((address, chain, parked))
}

async fn body(
    state: &AppState,
    parked: Parked,
    chain: String,
    position: Option<u64>,
) -> Result<(ParkedMessage, Bytes), Refusal> {
    let looking = readings::look(&state.work, move || {
        let (parked, chain) = (parked.clone(), chain.clone());
        async move { parked.body(&chain, position).await }
    });
    looking.await
}

fn position(fields: &Fields) -> Option<u64> {
    fields.get("position")?.parse().ok()
}

/// The body as text, if a browser sends back all of it that was not edited.
fn editable(body: &[u8]) -> Option<&str> {
    std::str::from_utf8(body)
        .ok()
        .filter(|text| text.len() <= MAX_BODY && !text.contains('\0') && ends_alike(text))
}

/// Whether all lines end with LF, or all with CR LF.
fn ends_alike(text: &str) -> bool {
    let (pairs, crs, lfs) =
        (text.matches("\r\n").count(), text.matches('\r').count(), text.matches('\n').count());
    crs == pairs && (pairs == 0 || lfs == pairs)
}

fn fingerprint(body: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// A browser sends every line end as CR LF. The text keeps those that it had.
fn with_line_ends_of(before: &str, written: &str) -> String {
    if before.contains("\r\n") { written.to_owned() } else { written.replace("\r\n", "\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_stay_as_they_were() {
        assert_eq!(with_line_ends_of("a\nb", "a\r\nc\r\n"), "a\nc\n");
        assert_eq!(with_line_ends_of("a\r\nb", "a\r\nc"), "a\r\nc");
        assert_eq!(with_line_ends_of("", "a\r\nb"), "a\nb");
    }

    #[test]
    fn only_short_texts_that_a_browser_leaves_alone_can_be_edited() {
        assert_eq!(editable(b"text"), Some("text"));
        assert_eq!((editable(&[0xff]), editable(&vec![b'x'; MAX_BODY + 1])), (None, None));
        for (text, is_editable) in [
            ("", true),
            ("a\nb\n", true),
            ("a\r\nb\r\n", true),
            // A browser would make all line ends alike.
            ("a\r\nb\n", false),
            ("a\rb", false),
            ("a\n\r\n", false),
            // It would be another character.
            ("a\0b", false),
        ] {
            assert_eq!(editable(text.as_bytes()).is_some(), is_editable, "{text:?}");
        }
        assert_ne!(fingerprint(b"a"), fingerprint(b"b"));
    }
}
