//! The front page: what is where, and how many.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use http::StatusCode;
use tokio::time::Instant;

use super::frame::Frame;
use super::html;
use super::live::LASTS;
use crate::door::FormToken;
use crate::overview::Overview;
use crate::refusal::Refusal;
use crate::state::AppState;
use crate::visible;

/// The time between two updates of an open page.
const UPDATE_EVERY: Duration = Duration::from_secs(2);

#[derive(Template)]
#[template(path = "front.html")]
struct Page {
    frame: Frame,
    overview: Arc<Overview>,
}

pub(super) async fn page(
    State(state): State<Arc<AppState>>,
    Extension(token): Extension<FormToken>,
) -> Response {
    match state.overview().await {
        Ok(overview) => html(&Page { frame: Frame::new(&state, &token, "Queues"), overview }),
        Err(error) => Refusal::new(StatusCode::BAD_GATEWAY, format!("{error}.")).into_response(),
    }
}

/// The values that change, as long as the page is open.
pub(super) async fn live(
    State(state): State<Arc<AppState>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>> + use<>> {
    let until = Instant::now() + LASTS;
    Sse::new(stream::unfold(state, move |state| async move {
        if Instant::now() >= until {
            return None;
        }
        tokio::time::sleep(UPDATE_EVERY).await;
        let event = match state.overview().await {
            Ok(overview) => {
                let cells = visible::texts(serde_json::json!(overview.cells()));
                Event::default().data(cells.to_string())
            }
            // The last values stay, and the page says that they are old.
            Err(_) => Event::default().event("away").data("the broker cannot be reached"),
        };
        Some((Ok(event), state))
    }))
}
