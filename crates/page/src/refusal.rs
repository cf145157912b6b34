//! What a browser sees in place of a page.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;

use crate::allowed::Action;
use crate::visible;
use rehop_operator::parked::ParkedError;

/// A request that gets no page, and what to do about it.
#[derive(Debug, Clone, Template)]
#[template(path = "refusal.html")]
pub(super) struct Refusal {
    status: StatusCode,
    title: String,
    text: String,
    /// Where a click may help: a link on another site's page does not bring the session's cookie
    /// along.
    again: Option<String>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error").to_owned();
        Self { status, title, text: text.into(), again: None }
    }

    pub(super) fn not_found(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    pub(super) fn given_up() -> Self {
        Self::not_found("The reading was given up. Reload this page.")
    }

    pub(super) fn not_allowed(action: Action) -> Self {
        let text = format!("This page may not do that. Start it with: rehop ui --allow {action}");
        Self { title: "Not allowed".to_owned(), ..Self::new(StatusCode::FORBIDDEN, text) }
    }

    /// The same with a link.
    pub(super) fn continue_at(mut self, path: String) -> Self {
        self.again = Some(path);
        self
    }

    pub(super) fn without_session(path: Option<String>) -> Self {
        let text = "This browser has not been let in yet. Open the address that `rehop ui` printed when it started. If you have been here \
                    before and followed a link, continue.";
        Self {
            title: "Not let in".to_owned(),
            again: path,
            ..Self::new(StatusCode::FORBIDDEN, text)
        }
    }

    pub(super) fn used_token() -> Self {
        let text = "This address is used up: each works once. Start `rehop ui` again for another one, or ask for one in a browser that is \
                    already let in. If you have not used it yourself, somebody else has.";
        Self { title: "Used up".to_owned(), ..Self::new(StatusCode::FORBIDDEN, text) }
    }
}

impl From<ParkedError> for Refusal {
    fn from(error: ParkedError) -> Self {
        let status = match &error {
            ParkedError::NoSuchMessage { .. } => StatusCode::NOT_FOUND,
            ParkedError::Busy { .. }
            | ParkedError::NearLimit { .. }
            | ParkedError::LowLimit { .. } => StatusCode::CONFLICT,
            _ => StatusCode::BAD_GATEWAY,
        };
        Self::new(status, format!("{error}."))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = self.status;
        match self.render() {
            Ok(page) => (status, Html(visible::page(page))).into_response(),
            Err(_) => (status, self.text).into_response(),
        }
    }
}
