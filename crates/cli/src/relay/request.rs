//! The headers of a message's request.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_encode, utf8_percent_encode};
use rehop::internals::names;
use rehop::{Message, telemetry};
use rehop_operator::parked::{plain, wildcard};

use super::content::Content;

/// Which headers the requests have.
#[derive(Debug)]
pub(super) struct Headers {
    pub(super) queue: String,
    /// The names of the producer's headers that are sent. `*` is any text.
    pub(super) producers: Vec<String>,
}

impl Headers {
    pub(super) fn of(&self, message: &Message<Bytes>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let attempt = message.attempt().to_string();
        let deadline = message.deadline().map(|deadline| deadline.as_millis().to_string());
        let content = Content::of(message.content_type(), message.content_encoding());
        let ours = [
            ("rehop-queue", Some(self.queue.as_str())),
            ("rehop-exchange", Some(message.exchange())),
            ("rehop-routing-key", Some(message.routing_key())),
            ("rehop-message-id", message.message_id()),
            ("rehop-correlation-id", message.correlation_id()),
            ("rehop-reply-to", message.reply_to()),
            ("rehop-type", message.message_type()),
            ("rehop-app-id", message.app_id()),
            ("rehop-user-id", message.user_id()),
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
        self.add_producers(message, &mut headers);
        headers
    }

    /// Adds the producer's own headers: neither rehop's, nor the broker's, nor the trace context.
    fn add_producers(&self, message: &Message<Bytes>, headers: &mut HeaderMap) {
        let is_sent = |name: &str| {
            let is_own = !names::is_own(name) && !names::is_reserved(name);
            let lower = name.to_lowercase();
            is_own && self.producers.iter().any(|pattern| wildcard(pattern, &lower))
        };
        for (name, value) in message.headers().filter(|(name, _)| is_sent(name)) {
            // Names that differ only in case are one name in HTTP.
            if let (Some(name), Some(value)) = (producers_name(name), producers_value(&value)) {
                headers.append(name, value);
            }
        }
    }

    /// Removes what is not the message's own. Returns whether there was any.
    pub(super) fn shorten(headers: &mut HeaderMap) -> bool {
        let removed = [names::BAGGAGE, names::TRACESTATE].map(|name| headers.remove(name));
        removed.iter().any(Option::is_some)
    }
}

/// `%` is encoded too, so that decoding always restores the original; and so are spaces, because
/// HTTP trims them at the ends.
const OURS: AsciiSet = CONTROLS.add(b'%').add(b' ');

fn encoded(value: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(utf8_percent_encode(value, &OURS).to_string()).ok()
}

/// All but the characters of a name in HTTP, and `%`.
const NAME: AsciiSet = NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// The prefix keeps what producers say apart from what the relay and HTTP say.
fn producers_name(name: &str) -> Option<HeaderName> {
    let name = utf8_percent_encode(name, &NAME);
    HeaderName::try_from(format!("rehop-header-{name}")).ok()
}

/// Text as it is, bytes as bytes, and anything else as JSON; all of it encoded.
fn producers_value(value: &rehop::HeaderValue<'_>) -> Option<HeaderValue> {
    match value {
        rehop::HeaderValue::Text(text) => encoded(text),
        rehop::HeaderValue::Bytes(bytes) => {
            HeaderValue::try_from(percent_encode(bytes, &OURS).to_string()).ok()
        }
        rehop::HeaderValue::Void => encoded(""),
        rehop::HeaderValue::Decimal { .. } => encoded(plain(value).as_str()?),
        other => encoded(&plain(other).to_string()),
    }
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

    /// The name and the value of a producer's header in HTTP.
    fn producers(name: &str, value: impl Into<rehop::HeaderValue<'static>>) -> (String, String) {
        let value = producers_value(&value.into()).unwrap();
        (producers_name(name).unwrap().to_string(), value.to_str().unwrap().to_owned())
    }

    #[test]
    fn names_and_values_of_producers_are_encoded_where_http_cannot_carry_them() {
        let said = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(producers("x-Tenant", "a"), said("rehop-header-x-tenant", "a"));
        assert_eq!(
            producers("\u{fc} (100%):\n", "a b\r\nx: y%"),
            said("rehop-header-%c3%bc%20%28100%25%29%3a%0a", "a%20b%0D%0Ax:%20y%25")
        );
        assert_eq!(producers("", true), said("rehop-header-", "true"));
        assert_eq!(producers("n", -7), said("rehop-header-n", "-7"));
        assert_eq!(producers("b", &b"a\xff"[..]), said("rehop-header-b", "a%FF"));
    }

    #[test]
    fn of_the_producers_headers_only_those_are_sent_that_were_asked_for() {
        let message = rehop::testing::message(Bytes::new())
            .header("Tenant", "a")
            .header("shop-id", 7)
            .header("shop-name", "b")
            .header("secret", "c")
            .header("rehop-chain-id", "d")
            .header("x-death", "e")
            .header("baggage", "f=1")
            .build();
        let sent = |producers: &[&str]| {
            let producers = producers.iter().map(|name| (*name).to_owned()).collect();
            let headers = Headers { queue: "q".to_owned(), producers }.of(&message);
            let names =
                headers.keys().filter_map(|name| name.as_str().strip_prefix("rehop-header-"));
            let mut names: Vec<_> = names.map(str::to_owned).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(sent(&[]), [""; 0]);
        assert_eq!(sent(&["tenant", "shop-*"]), ["shop-id", "shop-name", "tenant"]);
        assert_eq!(sent(&["*"]), ["secret", "shop-id", "shop-name", "tenant"]);
    }

    #[test]
    fn a_legal_content_type_stays_as_it_is() {
        assert_eq!(as_it_is("text/plain; x=100%").unwrap(), "text/plain; x=100%");
        assert_eq!(as_it_is("text/\u{fc}\r\nx: y").unwrap(), "text/%C3%BC%0D%0Ax: y");
    }
}
