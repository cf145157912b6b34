//! The pages, one file each.

mod edit;
mod frame;
mod front;
mod invite;
mod live;
mod message;
mod messages;
mod plan;
mod runs;

use std::sync::Arc;

use axum::Router;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use http::StatusCode;

use crate::door;
use crate::refusal::Refusal;
use crate::state::AppState;
use crate::visible;

/// A page, or what is shown in its place.
type Outcome = Result<Response, Refusal>;

/// All pages, behind the door.
pub(super) fn routes(state: AppState) -> Router {
    let door = state.door.clone();
    let routes = Router::new()
        .route("/", get(front::page))
        .route("/live", get(front::live))
        .route("/invite", post(invite::page))
        .route("/messages", get(messages::page))
        .route("/messages/live", get(messages::live))
        .route("/message", get(message::page))
        .route("/edit", get(edit::page).post(edit::start))
        .route("/plan/{action}", get(plan::page).post(plan::start))
        .route("/runs", get(runs::all))
        .route("/runs/{id}", get(runs::one))
        .route("/runs/{id}/live", get(runs::live))
        .route("/runs/{id}/stop", post(runs::stop))
        .route("/runs/{id}/undo", post(runs::undo))
        .fallback(async || Refusal::not_found("There is no such page. The first one is at /."))
        .with_state(Arc::new(state));
    door::guard(routes, &door)
}

/// A page, as an answer.
fn html(page: &impl askama::Template) -> Response {
    match page.render() {
        Ok(text) => Html(visible::page(text)).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page could not be written");
            Refusal::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "This page could not be written; the log says why.",
            )
            .into_response()
        }
    }
}
