//! The page's three files, which are part of the program.

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;

#[derive(Debug, Clone, Copy)]
pub(super) struct Asset {
    content_type: &'static str,
    bytes: &'static [u8],
}

/// The file at this path.
pub(super) fn find(path: &str) -> Option<Asset> {
    let (content_type, bytes): (_, &[u8]) = match path {
        "/page.css" => ("text/css; charset=utf-8", include_bytes!("assets/page.css")),
        "/page.js" => ("text/javascript; charset=utf-8", include_bytes!("assets/page.js")),
        "/icon.svg" => ("image/svg+xml", include_bytes!("assets/icon.svg")),
        _ => return None,
    };
    Some(Asset { content_type, bytes })
}

impl IntoResponse for Asset {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, self.content_type)], self.bytes).into_response()
    }
}
