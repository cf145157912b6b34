//! The broker's addresses.

use lapin::uri::{AMQPAuthority, AMQPScheme, AMQPUri};

use super::{BrokerSettings, DEFAULT_URL};

/// The largest `frame_max` that is negotiated. lapin allocates 64 times as much for each
/// connection, and 0 would mean frames of any size (4.12).
pub(crate) const MAX_FRAME: u32 = 1024 * 1024;

/// A URL that cannot be used. Neither part quotes it.
pub struct InvalidUrl {
    pub(crate) key: String,
    pub(crate) problem: String,
}

/// Host and port, the only parts of the URL that may be shown.
pub(crate) fn shown(uri: &AMQPUri) -> String {
    let AMQPAuthority { host, port, .. } = &uri.authority;
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Host and port of the broker, for spans.
pub(crate) type Server = (String, u16);

/// `None` if there are several addresses, because the one in use may change under a span.
pub(crate) fn server(broker: &BrokerSettings) -> Option<Server> {
    match &uris(broker).unwrap_or_default()[..] {
        [uri] => Some((uri.authority.host.clone(), uri.authority.port)),
        _ => None,
    }
}

/// The broker's URLs, at least one, with user, password and heartbeat in place.
pub fn uris(broker: &BrokerSettings) -> Result<Vec<AMQPUri>, InvalidUrl> {
    if broker.urls.is_empty() {
        return Ok(vec![uri(broker, broker.url.expose(), "broker.url".to_owned())?]);
    }
    if broker.url.expose() != DEFAULT_URL {
        let problem =
            "set `url` or `urls`, not both; `urls` has the addresses of all nodes".to_owned();
        return Err(InvalidUrl { key: "broker.urls".to_owned(), problem });
    }
    let urls = broker.urls.iter().enumerate();
    urls.map(|(index, url)| uri(broker, url.expose(), format!("broker.urls.{index}"))).collect()
}

fn uri(broker: &BrokerSettings, url: &str, key: String) -> Result<AMQPUri, InvalidUrl> {
    let Ok(mut uri) = url.parse::<AMQPUri>() else {
        let problem =
            "expected an AMQP URL such as amqp://user:password@host:5672/vhost, percent-encoded"
                .to_owned();
        return Err(InvalidUrl { key, problem });
    };
    if uri.scheme == AMQPScheme::AMQPS && !cfg!(any(feature = "tls-ring", feature = "tls-aws-lc")) {
        let problem = "amqps needs rehop's feature `tls-ring` or `tls-aws-lc`".to_owned();
        return Err(InvalidUrl { key, problem });
    }
    if let Some(username) = &broker.username {
        uri.authority.userinfo.username.clone_from(username);
    }
    if let Some(password) = &broker.password {
        password.expose().clone_into(&mut uri.authority.userinfo.password);
    }
    if let Some(address) = ipv6(url) {
        address.clone_into(&mut uri.authority.host);
    }
    uri.query.frame_max = uri.query.frame_max.map(|size| size.min(MAX_FRAME));
    uri.query.heartbeat = Some(u16::try_from(broker.heartbeat.as_secs()).unwrap_or(u16::MAX));
    Ok(uri)
}

/// The IPv6 address in a valid URL, if its host is one. lapin would connect to `localhost` instead
/// (4.12).
fn ipv6(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let (_, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    host.strip_prefix('[')?.split_once(']').map(|(address, _)| address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Secret;

    fn broker(urls: &[&str]) -> BrokerSettings {
        BrokerSettings {
            urls: urls.iter().map(|url| Secret::from(*url)).collect(),
            ..BrokerSettings::default()
        }
    }

    #[test]
    fn the_host_is_the_one_in_the_url_also_if_it_is_an_ipv6_address() {
        for (url, host, address) in [
            ("amqp://rabbit", "rabbit", "rabbit:5672"),
            ("amqp://10.0.0.5:5673/%2f", "10.0.0.5", "10.0.0.5:5673"),
            ("amqp://[2001:db8::5]", "2001:db8::5", "[2001:db8::5]:5672"),
            ("amqp://me:p%5Bw%40@[::1]:5673/%2f", "::1", "[::1]:5673"),
            ("amqp://me:p[w@x@[fd00::1]/[v]?heartbeat=9", "fd00::1", "[fd00::1]:5672"),
            ("amqp://rabbit/[::1]", "rabbit", "rabbit:5672"),
            ("amqp://me:[::1]@rabbit?x=@[::1]", "rabbit", "rabbit:5672"),
        ] {
            let Ok(uris) = uris(&broker(&[url])) else { panic!("{url}") };
            assert_eq!(
                (uris[0].authority.host.as_str(), shown(&uris[0]).as_str()),
                (host, address),
                "{url}"
            );
        }
        for wrong in ["amqp://[2001:db8::5", "amqp://[::1]x/", "amqp://[localhost]"] {
            assert!(uris(&broker(&[wrong])).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_url_asks_for_frames_of_one_mib_at_most() {
        for (query, expected) in [
            ("", None),
            ("?frame_max=4096", Some(4096)),
            ("?frame_max=4294967295", Some(MAX_FRAME)),
        ] {
            let Ok(uris) = uris(&broker(&[&format!("amqp://rabbit/%2f{query}")])) else {
                panic!("{query}")
            };
            assert_eq!(uris[0].query.frame_max, expected, "{query}");
        }
    }

    #[test]
    fn spans_name_the_server_only_if_there_is_one_address() {
        assert_eq!(server(&broker(&["amqp://one:1"])), Some(("one".to_owned(), 1)));
        assert_eq!(server(&broker(&["amqp://one", "amqp://two"])), None);
    }
}
