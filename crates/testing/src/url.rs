//! The few operations on URLs that the fixtures need. A full parser would drop parts of a broker
//! URL's query.

use super::error::BrokerError;

/// Host and port of an AMQP URL. The default port is that of the scheme.
pub(super) fn address_of(url: &str) -> Result<String, BrokerError> {
    let (start, end) = address_span(url)?;
    let address = &url[start..end];
    let after_host = address.rfind(']').unwrap_or(0);
    if address[after_host..].contains(':') {
        return Ok(address.to_owned());
    }
    let port = if url.starts_with("amqps:") { 5671 } else { 5672 };
    Ok(format!("{address}:{port}"))
}

/// The same URL with another host and port.
pub(super) fn with_address(url: &str, address: &str) -> Result<String, BrokerError> {
    let (start, end) = address_span(url)?;
    Ok(format!("{}{address}{}", &url[..start], &url[end..]))
}

/// The same URL with another virtual host, whose name needs no encoding.
#[cfg(feature = "rehop")]
pub(super) fn with_vhost(url: &str, vhost: &str) -> Result<String, BrokerError> {
    let (_, end) = address_span(url)?;
    let query = url[end..].find(['?', '#']).map_or("", |at| &url[end + at..]);
    Ok(format!("{}/{vhost}{query}", &url[..end]))
}

/// The user of an AMQP URL, percent-encoded as it is there.
#[cfg(feature = "rehop")]
pub(super) fn user_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let user = authority_of(rest).rsplit_once('@').map_or("guest", |(user, _)| user);
    user.split(':').next().unwrap_or_default()
}

/// The URL without its password, for printing.
pub(super) fn without_password(url: &str) -> String {
    let Some(scheme) = url.find("://") else {
        return "(not a URL)".to_owned();
    };
    let authority = scheme + 3;
    let Some(at) = authority_of(&url[authority..]).rfind('@') else {
        return url.to_owned();
    };
    let user = url[authority..authority + at].split(':').next().unwrap_or_default();
    format!("{}{user}:***{}", &url[..authority], &url[authority + at..])
}

fn address_span(url: &str) -> Result<(usize, usize), BrokerError> {
    let wrong = || BrokerError::Url { url: without_password(url) };
    if !url.starts_with("amqp://") && !url.starts_with("amqps://") {
        return Err(wrong());
    }
    let authority = url.find("://").ok_or_else(wrong)? + 3;
    let length = authority_of(&url[authority..]).len();
    let start =
        url[authority..authority + length].rfind('@').map_or(authority, |at| authority + at + 1);
    if start == authority + length {
        return Err(wrong());
    }
    Ok((start, authority + length))
}

fn authority_of(rest: &str) -> &str {
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{address_of, with_address, without_password};

    #[test]
    fn an_address_is_found_and_replaced_without_touching_the_rest() {
        let url = "amqp://us%40er:p@ss@broker:5673/%2f?heartbeat=10";
        assert_eq!(address_of(url).ok().as_deref(), Some("broker:5673"));
        assert_eq!(
            with_address(url, "127.0.0.1:1").ok().as_deref(),
            Some("amqp://us%40er:p@ss@127.0.0.1:1/%2f?heartbeat=10")
        );
        assert_eq!(address_of("amqps://broker").ok().as_deref(), Some("broker:5671"));
        assert_eq!(address_of("amqp://[::1]/x").ok().as_deref(), Some("[::1]:5672"));
        assert!(address_of("http://broker").is_err());
        assert!(address_of("amqp:///vhost").is_err());
    }

    #[test]
    fn a_printed_url_has_no_password() {
        assert_eq!(without_password("amqp://a:secret@b:1/v"), "amqp://a:***@b:1/v");
        assert_eq!(without_password("amqp://b:1/v"), "amqp://b:1/v");
        assert_eq!(without_password("secret"), "(not a URL)");
    }

    #[cfg(feature = "rehop")]
    #[test]
    fn a_virtual_host_takes_the_place_of_another_and_the_query_stays() {
        use super::{user_of, with_vhost};
        for (url, user, expected) in [
            (
                "amqp://guest:guest@127.0.0.1:5672/%2f",
                "guest",
                "amqp://guest:guest@127.0.0.1:5672/t",
            ),
            ("amqps://a%40b:c@host?frame_max=9", "a%40b", "amqps://a%40b:c@host/t?frame_max=9"),
            ("amqp://host/old#x", "guest", "amqp://host/t#x"),
        ] {
            assert_eq!((with_vhost(url, "t").unwrap().as_str(), user_of(url)), (expected, user));
        }
        assert!(with_vhost("http://host", "t").is_err());
    }
}
