//! The broker's addresses.

use lapin::uri::{AMQPScheme, AMQPUri};

use super::{BrokerSettings, DEFAULT_URL};

/// A URL that cannot be used. Neither part quotes it.
pub struct InvalidUrl {
    pub(crate) key: String,
    pub(crate) problem: String,
}

/// Host and port, the only parts of the URL that may be shown.
pub(crate) fn shown(uri: &AMQPUri) -> String {
    format!("{}:{}", uri.authority.host, uri.authority.port)
}

/// The broker's URLs, at least one, with user, password and heartbeat in place.
pub fn uris(broker: &BrokerSettings) -> Result<Vec<AMQPUri>, InvalidUrl> {
    if broker.urls.is_empty() {
        return Ok(vec![uri(broker, broker.url.expose(), "broker.url".to_owned())?]);
    }
    if broker.url.expose() != DEFAULT_URL {
        let problem = "set `url` or `urls`, not both; `urls` has the addresses of all nodes".to_owned();
        return Err(InvalidUrl { key: "broker.urls".to_owned(), problem });
    }
    let urls = broker.urls.iter().enumerate();
    urls.map(|(index, url)| uri(broker, url.expose(), format!("broker.urls.{index}"))).collect()
}

fn uri(broker: &BrokerSettings, url: &str, key: String) -> Result<AMQPUri, InvalidUrl> {
    let Ok(mut uri) = url.parse::<AMQPUri>() else {
        let problem = "expected an AMQP URL such as amqp://user:password@host:5672/vhost, percent-encoded".to_owned();
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
    uri.query.heartbeat = Some(u16::try_from(broker.heartbeat.as_secs()).unwrap_or(u16::MAX));
    Ok(uri)
}
