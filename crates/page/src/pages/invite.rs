//! A one-time address for another browser.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use super::frame::Frame;
use super::html;
use crate::door::FormToken;
use crate::refusal::Refusal;
use crate::state::AppState;

#[derive(Template)]
#[template(path = "invite.html")]
struct Page {
    frame: Frame,
    address: String,
}

pub(super) async fn page(
    State(state): State<Arc<AppState>>,
    Extension(form): Extension<FormToken>,
) -> Response {
    match state.door.invite() {
        Ok(token) => html(&Page {
            frame: Frame::new(&state, &form, "Let another browser in"),
            address: format!("{}/enter?token={token}", state.origin),
        }),
        Err(_) => {
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "This machine has no random numbers.")
                .into_response()
        }
    }
}
