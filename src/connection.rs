//! Connections: how one is opened, and how a lost one is replaced.

use std::sync::Arc;
use std::time::Duration;

use lapin::tcp::{OwnedIdentity, OwnedTLSConfig};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Connection, ConnectionProperties, ErrorKind};
use secrecy::ExposeSecret;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::error::{Error, describe};
use crate::settings::BrokerSettings;

/// A connection that is opened when it is needed, and opened anew after it was lost.
///
/// lapin's own recovery stays off: its streams hang after a channel error, and it gives up after 16 tries (4.12).
pub(crate) struct Link {
    name: String,
    broker: BrokerSettings,
    current: Mutex<Option<Arc<Connection>>>,
}

impl Link {
    pub(crate) fn new(name: String, broker: BrokerSettings) -> Self {
        Self { name, broker, current: Mutex::new(None) }
    }

    /// The time limit for any one answer of the broker.
    pub(crate) fn patience(&self) -> Duration {
        self.broker.timeout
    }

    /// The connection, opened if there is none that works. One try.
    pub(crate) async fn get(&self) -> Result<Arc<Connection>, Error> {
        let mut current = self.current.lock().await;
        if let Some(connection) = current.as_ref().filter(|connection| connection.status().connected()) {
            return Ok(connection.clone());
        }
        let connection = Arc::new(open(&self.broker, &self.name).await?);
        tracing::info!(broker = %address(&self.broker), connection = %self.name, "connected");
        *current = Some(connection.clone());
        Ok(connection)
    }

    /// The connection, for as long as the broker may take to come up. A refused login is no matter of patience.
    pub(crate) async fn start(&self) -> Result<Arc<Connection>, Error> {
        let deadline = Instant::now() + self.broker.startup_timeout;
        for attempt in 0.. {
            match self.get().await {
                Err(error) if error.is_transient() => {
                    let pause = pause(attempt);
                    if Instant::now() + pause >= deadline {
                        return Err(error);
                    }
                    tracing::warn!(%error, "the broker is away; trying again in {pause:?}");
                    tokio::time::sleep(pause).await;
                }
                result => return result,
            }
        }
        unreachable!("there are as many attempts as it takes")
    }

    /// Drops a connection that is not to be used again, though it may look alive.
    pub(crate) async fn abandon(&self, connection: &Arc<Connection>) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            *current = None;
        }
    }

    /// Closes the connection in order.
    pub(crate) async fn close(&self) {
        if let Some(connection) = self.current.lock().await.take() {
            let closed = timeout(CLOSE_LIMIT, connection.close(200, "goodbye".into())).await;
            if !matches!(closed, Ok(Ok(()))) {
                tracing::debug!(connection = %self.name, "the connection was gone before it could be closed");
            }
        }
    }
}

/// How long a broker may take to say goodbye.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// How long to wait before the next try: doubling from 0.1 s to 10 s, and between half and all of that, so that the services
/// of a restarted broker do not all come at once.
pub(crate) fn pause(attempt: u32) -> Duration {
    let whole = Duration::from_millis(100).saturating_mul(1 << attempt.min(10)).min(Duration::from_secs(10));
    whole.mul_f64(rand::random_range(0.5..1.0))
}

/// Host and port, which is all of the URL that may be shown.
pub(crate) fn address(broker: &BrokerSettings) -> String {
    uri(broker)
        .map_or_else(|_| "an unreadable URL".to_owned(), |uri| format!("{}:{}", uri.authority.host, uri.authority.port))
}

/// The broker's URL, with user, password and heartbeat in place. The error does not quote it.
pub(crate) fn uri(broker: &BrokerSettings) -> Result<AMQPUri, String> {
    let problem = "expected an AMQP URL such as amqp://user:password@host:5672/vhost, percent-encoded";
    let mut uri: AMQPUri = broker.url.expose_secret().parse().map_err(|_| problem.to_owned())?;
    if uri.scheme == AMQPScheme::AMQPS && !cfg!(any(feature = "tls-ring", feature = "tls-aws-lc")) {
        return Err("amqps needs rehop's feature `tls-ring` or `tls-aws-lc`".to_owned());
    }
    if let Some(username) = &broker.username {
        uri.authority.userinfo.username.clone_from(username);
    }
    if let Some(password) = &broker.password {
        password.expose_secret().clone_into(&mut uri.authority.userinfo.password);
    }
    uri.query.heartbeat = Some(u16::try_from(broker.heartbeat.as_secs()).unwrap_or(u16::MAX));
    Ok(uri)
}

async fn open(broker: &BrokerSettings, name: &str) -> Result<Connection, Error> {
    let address = address(broker);
    let uri = uri(broker).map_err(|problem| Error::Connect { broker: address.clone(), problem })?;
    let (user, encrypted) = (uri.authority.userinfo.username.clone(), uri.scheme == AMQPScheme::AMQPS);
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let tls = tls(broker).map_err(|problem| Error::Tls { broker: address.clone(), problem })?;
    let runtime = lapin::runtime::default_runtime()
        .map_err(|error| Error::Connect { broker: address.clone(), problem: describe(&error) })?;
    let connecting = Connection::connect_uri_with_config(uri, properties, tls, runtime);
    let Ok(result) = timeout(broker.timeout, connecting).await else {
        return Err(Error::Timeout { what: format!("connecting to {address}"), limit: broker.timeout });
    };
    result.map_err(|error| {
        let problem = describe(&error);
        match error.kind() {
            ErrorKind::ProtocolError(answer) if [403, 530].contains(&answer.get_id()) => {
                Error::Login { broker: address, user, problem }
            }
            ErrorKind::IOError(cause) if encrypted && is_tls(cause) => Error::Tls { broker: address, problem },
            _ => Error::Connect { broker: address, problem },
        }
    })
}

/// rustls reports a failed handshake as invalid data.
fn is_tls(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidData, InvalidInput, Other};
    matches!(error.kind(), InvalidData | InvalidInput | Other)
}

fn tls(broker: &BrokerSettings) -> Result<OwnedTLSConfig, String> {
    let read = |path: &std::path::PathBuf| {
        std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    let text = |path| String::from_utf8(read(path)?).map_err(|_| format!("{} is no PEM file", path.display()));
    let identity = match (&broker.tls.cert_file, &broker.tls.key_file) {
        (Some(certificate), Some(key)) => Some(OwnedIdentity::PKCS8 { pem: read(certificate)?, key: read(key)? }),
        _ => None,
    };
    Ok(OwnedTLSConfig { identity, cert_chain: broker.tls.ca_file.as_ref().map(text).transpose()? })
}
