//! The HTTP client.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::net::TcpStream;
use tower_service::Service;

use super::connections::{Connections, Watched};

pub(super) type Client = legacy::Client<Connector, Full<Bytes>>;

type Stream = TokioIo<Watched<TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>>>;

/// How long requests may take, and connections stay idle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// From the start of a request to the head of its answer.
    pub(super) timeout: Duration,
    /// How long a connection without a request is kept. None is, if it is zero.
    pub(super) idle: Duration,
}

impl Times {
    /// How long the endpoint's machine may leave what was sent unconfirmed. What remains of the
    /// timeout is enough for a second try.
    fn patience(self) -> Duration {
        const MAX: Duration = Duration::from_secs(30);
        (self.timeout / 2).min(MAX)
    }
}

/// # Errors
///
/// When no certificate authorities are found, and they are needed.
pub(super) fn client(
    is_https: bool,
    times: Times,
    connections: &Connections,
) -> Result<Client, rustls::Error> {
    let tls = ClientConfig::builder();
    // http needs no certificate authorities, which small images lack.
    let tls = if is_https {
        tls.with_platform_verifier()?
    } else {
        tls.with_root_certificates(RootCertStore::empty())
    };
    let patience = times.patience();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(Duration::from_secs(15)));
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    tcp.set_tcp_user_timeout(Some(patience));
    let tls = HttpsConnectorBuilder::new()
        .with_tls_config(tls.with_no_client_auth())
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(tcp);
    let connector = Connector { tls, connections: connections.clone() };
    let mut client = legacy::Client::builder(TokioExecutor::new());
    client
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(times.idle)
        .http2_keep_alive_interval(patience / 2)
        .http2_keep_alive_timeout(patience / 2);
    lenient(&mut client);
    if times.idle.is_zero() {
        client.pool_max_idle_per_host(0);
    }
    Ok(client.build(connector))
}

/// Reads what browsers read: an answer that cannot be read costs an attempt, although the endpoint
/// may have handled the message.
fn lenient(client: &mut legacy::Builder) {
    const MAX_HEADERS: usize = 4096;
    const MAX_HEADER_BYTES: u32 = 256 * 1024;
    client
        .http1_max_headers(MAX_HEADERS)
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .http1_allow_spaces_after_header_name_in_responses(true)
        .http1_ignore_invalid_headers_in_responses(true)
        .http2_max_header_list_size(MAX_HEADER_BYTES);
}

/// Connects, and has the connections watched.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    tls: HttpsConnector<HttpConnector>,
    connections: Connections,
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tls.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, connections) = (self.tls.call(uri), self.connections.clone());
        Box::pin(async move {
            let stream = connecting.await?;
            Ok(TokioIo::new(connections.watch(TokioIo::new(stream))))
        })
    }
}
