//! Events for open pages.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::readings::Reading;
use crate::visible;
use rehop_operator::parked::Listing;

/// How long one answer lasts. The browser asks again, and a request has a time limit.
pub(super) const LASTS: Duration = Duration::from_secs(40);

/// How far a reading is, in the texts of these elements. At its end the page is loaded again.
pub(super) fn reading(
    reading: watch::Receiver<Reading>,
    texts: fn(&Listing) -> serde_json::Value,
) -> Response {
    let until = Instant::now() + LASTS;
    let events = stream::unfold(Some(reading), move |reading| async move {
        let mut reading = reading?;
        let event = if is_over(&mut reading, until).await {
            return Some((Ok(Event::default().event("reload").data("done")), None));
        } else if Instant::now() < until {
            progress(&reading.borrow_and_update(), texts)
        } else {
            return Some((Ok(Event::default().comment("not yet")), None));
        };
        Some((Ok::<_, Infallible>(event), Some(reading)))
    });
    Sse::new(events).into_response()
}

/// Waits for news. Whoever reads may have ended without a word, and then there are none.
async fn is_over(reading: &mut watch::Receiver<Reading>, until: Instant) -> bool {
    if reading.borrow().is_complete() {
        return true;
    }
    match timeout_at(until, reading.changed()).await {
        Ok(Ok(())) => reading.borrow().is_complete(),
        Ok(Err(_)) => true,
        Err(_) => false,
    }
}

fn progress(reading: &Reading, texts: fn(&Listing) -> serde_json::Value) -> Event {
    match &reading.seen {
        Some(Ok(seen)) => Event::default().data(visible::texts(texts(seen)).to_string()),
        Some(Err(_)) | None => Event::default().comment("nothing yet"),
    }
}
