//! The headers of a message's request.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use rehop::internals::names;
use rehop::{Message, telemetry};

use super::content::Content;

pub(super) fn headers(message: &Message<Bytes>, queue: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let attempt = message.attempt().to_string();
    let deadline = message.deadline().map(|deadline| deadline.as_millis().to_string());
    let content = Content::of(message.content_type(), message.content_encoding());
    let ours = [
        ("rehop-queue", Some(queue)),
        ("rehop-exchange", Some(message.exchange())),
        ("rehop-routing-key", Some(message.routing_key())),
        ("rehop-message-id", message.message_id()),
        ("rehop-attempt", Some(attempt.as_str())),
        ("rehop-deadline", deadline.as_deref()),
        ("rehop-content-encoding", content.other),
    ];
    for (name, value) in ours {
        if let Some(value) = value.and_then(encoded) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    for (name, value) in [
        (CONTENT_TYPE, content.media_type.as_deref()),
        (CONTENT_ENCODING, content.coding.as_deref()),
    ] {
        if let Some(value) = value.and_then(as_it_is) {
            headers.insert(name, value);
        }
    }
    for (name, value) in telemetry::current_headers() {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    headers
}

/// Removes what is not the message's own. Returns whether there was any.
pub(super) fn shorten(headers: &mut HeaderMap) -> bool {
    let removed = [names::BAGGAGE, names::TRACESTATE].map(|name| headers.remove(name));
    removed.iter().any(Option::is_some)
}

/// `%` is encoded too, so that decoding always restores the original; and so are spaces, because
/// HTTP trims them at the ends.
const OURS: AsciiSet = CONTROLS.add(b'%').add(b' ');

fn encoded(value: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(utf8_percent_encode(value, &OURS).to_string()).ok()
}

fn as_it_is(value: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(value)
        .or_else(|_| HeaderValue::try_from(utf8_percent_encode(value, CONTROLS).to_string()))
        .ok()
}

#[cfg(test)]
mod tests {
    use percent_encoding::percent_decode_str;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_value_can_be_sent_and_decoded(value in ".*") {
            let encoded = encoded(&value).unwrap();
            let text = encoded.to_str().unwrap();
            prop_assert_eq!(text.trim(), text);
            prop_assert_eq!(percent_decode_str(text).decode_utf8().unwrap(), value.as_str());
            prop_assert!(as_it_is(&value).is_some());
        }
    }

    #[test]
    fn a_legal_content_type_stays_as_it_is() {
        assert_eq!(as_it_is("text/plain; x=100%").unwrap(), "text/plain; x=100%");
        assert_eq!(as_it_is("text/\u{fc}\r\nx: y").unwrap(), "text/%C3%BC%0D%0Ax: y");
    }
}
