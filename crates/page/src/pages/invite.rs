//! A one-time address for another browser.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use super::frame::Frame;
use super::html;
use crate::door::Session;
use crate::refusal::Refusal;
use crate::state::State;

#[derive(Template)]
#[template(path = "invite.html")]
struct Page {
    frame: Frame,
    address: String,
}

pub(super) async fn page(
    Shared(state): Shared<Arc<State>>,
    Extension(session): Extension<Session>,
) -> Response {
    match state.door.invite() {
        Ok(token) => html(&Page {
            frame: Frame::new(&state, &session, "Let another browser in"),
            address: format!("{}/enter?token={token}", state.origin),
        }),
        Err(_) => {
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "This machine has no random numbers.")
                .into_response()
        }
    }
}
