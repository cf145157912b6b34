//! What every answer says to the browser.

use http::header::{
    CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};

/// Only this server's own files, and no script or style inside a page: what a message contains
/// could never run.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Adds them. Nothing is cached: a page shows messages.
pub(super) fn add(headers: &mut HeaderMap) {
    for (name, value) in [
        (HeaderName::from_static("content-security-policy"), POLICY),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("x-frame-options"), "DENY"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // With "no-referrer" browsers would not say which page sent a form.
        (REFERRER_POLICY, "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
