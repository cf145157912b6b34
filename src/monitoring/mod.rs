//! An HTTP server for probes and metrics.
//!
//! | path | answers |
//! |---|---|
//! | `/livez` | 200 as long as the process can answer. A service reconnects by itself, so an outage of the broker is no reason to restart it |
//! | `/readyz` | 200 if each queue is consumed and copies can be published; else 503, with one line for each problem, without hosts and users |
//! | `/metrics` | the [metrics](crate::telemetry) in Prometheus' text format |
//!
//! ```no_run
//! # use rehop::{Failure, Message};
//! # async fn handle(_: Message<u64>) -> Result<(), Failure> { Ok(()) }
//! # async fn run(settings: rehop::Settings) -> Result<(), Box<dyn std::error::Error>> {
//! let monitoring = rehop::monitoring::start("orders", "127.0.0.1:9464").await?;
//! let service = rehop::Service::new(&settings).consumer("orders", handle);
//! monitoring.watch(service.status());
//! service.await?;
//! # Ok(()) }
//! ```
//!
//! It has neither TLS nor a login, so let it listen where only probes and Prometheus can reach it.

mod answer;
mod server;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::status::Status;
use crate::telemetry::prometheus;

/// A running server. It stops when this is dropped.
#[derive(Debug)]
#[must_use = "the server stops when this is dropped"]
pub struct Monitoring {
    address: SocketAddr,
    status: Arc<OnceLock<Status>>,
    server: AbortHandle,
}

impl Monitoring {
    /// Answers `/readyz` with this service's status from now on; before, the process is not ready.
    /// Only the first call has an effect.
    pub fn watch(&self, status: Status) {
        self.status.get_or_init(|| status);
    }

    /// Where it listens; tells the port if it was asked to listen on port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Monitoring {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Records the process's metrics for `/metrics` under this service's name, and listens on this
/// address, such as `127.0.0.1:9464`. It sets OpenTelemetry's meter provider of the process, so
/// call it before the service is awaited. With a provider of your own, or a collector, use
/// [`listen`].
///
/// # Errors
///
/// When the address cannot be listened on, for instance because its port is taken, or when metrics
/// are recorded already.
pub async fn start(service: &str, address: &str) -> Result<Monitoring, ListenError> {
    let monitoring = listen(address).await?;
    record_metrics(service)?;
    Ok(monitoring)
}

/// Listens on this address, such as `127.0.0.1:9464`. `/metrics` is empty unless something records
/// them:
#[cfg_attr(
    feature = "otlp",
    doc = "[`with_prometheus`](crate::telemetry::Builder::with_prometheus)"
)]
#[cfg_attr(not(feature = "otlp"), doc = "`telemetry::Builder::with_prometheus`")]
/// or [`record_metrics`].
///
/// # Errors
///
/// When the address cannot be listened on, for instance because its port is taken.
pub async fn listen(address: &str) -> Result<Monitoring, ListenError> {
    let failed = |error| ListenError::Listen { address: address.to_owned(), error };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let status = Arc::<OnceLock<Status>>::default();
    let server = tokio::spawn(server::serve(listener, status.clone())).abort_handle();
    Ok(Monitoring { address: bound, status, server })
}

/// Records the process's metrics for `/metrics`, under this service's name. It sets OpenTelemetry's
/// meter provider of the process.
///
/// # Errors
///
/// When metrics are recorded already.
pub fn record_metrics(service: &str) -> Result<(), ListenError> {
    prometheus::install(service)
        .map_err(|error| ListenError::Metrics { problem: error.to_string() })
}

/// Why probes and metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}{}", advice(error))]
    Listen {
        /// The address.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// Metrics cannot be recorded.
    #[error("cannot record metrics for /metrics: {problem}; they can be set up once in a process")]
    Metrics {
        /// Why.
        problem: String,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another process has this port, so choose another one",
        io::ErrorKind::InvalidInput => "; an address has a host and a port, such as 127.0.0.1:9464",
        _ => "",
    }
}
