//! The front page: what is where, and how many.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::State as Shared;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use http::StatusCode;

use super::frame::Frame;
use super::html;
use crate::ui::door::Session;
use crate::ui::overview::Overview;
use crate::ui::refusal::Refusal;
use crate::ui::state::State;

/// The time between two updates of an open page.
const UPDATE_EVERY: Duration = Duration::from_secs(2);
/// How many updates one answer has. The browser asks again, and a request has a time limit.
const UPDATES: u32 = 20;

#[derive(Template)]
#[template(path = "front.html")]
struct Page {
    frame: Frame,
    overview: Arc<Overview>,
}

pub(super) async fn page(Shared(state): Shared<Arc<State>>, Extension(session): Extension<Session>) -> Response {
    match state.overview().await {
        Ok(overview) => html(&Page { frame: Frame::new(&state, &session, "Queues"), overview }),
        Err(error) => Refusal::new(StatusCode::BAD_GATEWAY, format!("{error}.")).into_response(),
    }
}

/// The values that change, as long as the page is open.
pub(super) async fn live(
    Shared(state): Shared<Arc<State>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>> + use<>> {
    Sse::new(stream::unfold((state, 0), |(state, sent)| async move {
        if sent == UPDATES {
            return None;
        }
        tokio::time::sleep(UPDATE_EVERY).await;
        let event = match state.overview().await {
            Ok(overview) => Event::default().data(serde_json::json!(overview.cells()).to_string()),
            // The last values stay, and the page says that they are old.
            Err(_) => Event::default().event("away").data("the broker cannot be reached"),
        };
        Some((Ok(event), (state, sent + 1)))
    }))
}
