//! One exporter per signal, over HTTP or gRPC.

use std::sync::Arc;
use std::time::Duration;

#[cfg(any(feature = "tls-ring", feature = "tls-aws-lc"))]
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig, Identity};
use opentelemetry_otlp::{
    ExporterBuildError, LogExporter, MetricExporter, SpanExporter, WithExportConfig,
    WithHttpConfig, WithTonicConfig,
};
use tokio::runtime::{Builder, EnterGuard, Runtime};

use super::InitError;
use super::environment::{Environment, Protocol, Signal};
use super::health::{Health, Watched};

/// Builds exporters. gRPC exporters have their own runtime, so that a flush works from any thread,
/// even if the service's runtime is busy, single-threaded or gone.
pub(super) struct Exporters<'a, F> {
    environment: &'a Environment<F>,
    endpoint: Option<&'a str>,
    health: Arc<Health>,
    runtime: Option<KeptRuntime>,
}

/// How one signal is exported, according to the environment.
#[cfg_attr(
    not(any(feature = "tls-ring", feature = "tls-aws-lc")),
    allow(dead_code, reason = "certificates are for TLS")
)]
struct Way {
    signal: Signal,
    protocol: Protocol,
    /// The complete endpoint given by the program; `None` leaves the choice to the exporter.
    given: Option<String>,
    /// The endpoint for messages, without credentials.
    shown: String,
    tls: bool,
    timeout: Duration,
    certificate: Option<Vec<u8>>,
    /// A certificate and its key.
    identity: Option<[Vec<u8>; 2]>,
}

impl<'a, F: Fn(&str) -> Option<String>> Exporters<'a, F> {
    pub(super) fn new(
        environment: &'a Environment<F>,
        endpoint: Option<&'a str>,
        health: Arc<Health>,
    ) -> Self {
        Self { environment, endpoint, health, runtime: None }
    }

    /// The runtime for gRPC, if any signal uses it. It must be kept as long as the exporters.
    pub(super) fn into_runtime(self) -> Option<KeptRuntime> {
        self.runtime
    }

    pub(super) fn spans(&mut self) -> Result<Option<Watched<SpanExporter>>, InitError> {
        self.build(
            Signal::Traces,
            |way, client| {
                http(SpanExporter::builder().with_http(), &way.given)
                    .with_http_client(client)
                    .build()
            },
            |way| grpc(SpanExporter::builder().with_tonic(), way).build(),
        )
    }

    pub(super) fn metrics(&mut self) -> Result<Option<Watched<MetricExporter>>, InitError> {
        self.build(
            Signal::Metrics,
            |way, client| {
                http(MetricExporter::builder().with_http(), &way.given)
                    .with_http_client(client)
                    .build()
            },
            |way| grpc(MetricExporter::builder().with_tonic(), way).build(),
        )
    }

    pub(super) fn logs(&mut self) -> Result<Option<Watched<LogExporter>>, InitError> {
        self.build(
            Signal::Logs,
            |way, client| {
                http(LogExporter::builder().with_http(), &way.given)
                    .with_http_client(client)
                    .build()
            },
            |way| grpc(LogExporter::builder().with_tonic(), way).build(),
        )
    }

    fn build<E>(
        &mut self,
        signal: Signal,
        over_http: impl FnOnce(&Way, reqwest::blocking::Client) -> Result<E, ExporterBuildError>,
        over_grpc: impl FnOnce(&Way) -> Result<E, ExporterBuildError>,
    ) -> Result<Option<Watched<E>>, InitError> {
        if !self.environment.exported(signal)? {
            return Ok(None);
        }
        let way = self.way(signal)?;
        let built = match way.protocol {
            Protocol::Http => over_http(&way, client(&way)?),
            Protocol::Grpc => {
                let runtime = match self.runtime.take() {
                    Some(runtime) => runtime,
                    None => KeptRuntime::start()?,
                };
                let _inside = self.runtime.insert(runtime).enter();
                over_grpc(&way)
            }
        };
        let exporter = built.map_err(|error| InitError::exporter(signal, error))?;
        Ok(Some(Watched { exporter, signal, endpoint: way.shown, health: self.health.clone() }))
    }

    fn way(&self, signal: Signal) -> Result<Way, InitError> {
        let protocol = self.environment.protocol(signal)?;
        let endpoint = self.environment.endpoint(signal, protocol, self.endpoint);
        let Endpoint { shown, tls } = inspect(&endpoint, protocol).ok_or_else(|| {
            InitError::exporter(
                signal,
                "its endpoint is not a URL such as http://collector:4318, with special characters percent-encoded",
            )
        })?;
        if tls && cfg!(not(any(feature = "tls-ring", feature = "tls-aws-lc"))) {
            let problem = "its endpoint needs TLS, but rehop was built without it: enable the feature tls-ring or tls-aws-lc";
            return Err(InitError::exporter(signal, problem));
        }
        let given = self.endpoint.map(|endpoint| match protocol {
            Protocol::Http => format!("{}/v1/{signal}", endpoint.trim_end_matches('/')),
            Protocol::Grpc => endpoint.to_owned(),
        });
        let identity = self.environment.client_certificate(signal)?;
        Ok(Way {
            signal,
            protocol,
            given,
            shown,
            tls,
            timeout: self.environment.timeout(signal)?,
            certificate: self.environment.certificate(signal).map(read).transpose()?,
            identity: identity
                .map(|[certificate, key]| Ok([read(certificate)?, read(key)?]))
                .transpose()?,
        })
    }
}

struct Endpoint {
    shown: String,
    tls: bool,
}

/// A gRPC endpoint may have no scheme. The exporter then uses https, unless it is told that the
/// endpoint is insecure.
///
/// The exporter parses the endpoint as a [`Uri`](http::Uri), and would quote one that is none, with
/// its password.
fn inspect(endpoint: &str, protocol: Protocol) -> Option<Endpoint> {
    endpoint.parse::<http::Uri>().ok()?;
    let bare = !endpoint.contains("://");
    if bare && protocol == Protocol::Http {
        return None;
    }
    let mut url = reqwest::Url::parse(&if bare {
        format!("https://{endpoint}")
    } else {
        endpoint.to_owned()
    })
    .ok()?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return None;
    }
    let _ = (url.set_username(""), url.set_password(None));
    url.set_query(None);
    Some(Endpoint { tls: url.scheme() == "https", shown: url.to_string() })
}

fn read((path, variable): (String, String)) -> Result<Vec<u8>, InitError> {
    std::fs::read(&path).map_err(|error| InitError::File { variable, path, error })
}

fn http<B: WithExportConfig>(builder: B, endpoint: &Option<String>) -> B {
    match endpoint {
        Some(endpoint) => builder.with_endpoint(endpoint),
        None => builder,
    }
}

#[cfg(not(any(feature = "tls-ring", feature = "tls-aws-lc")))]
fn grpc<B: WithExportConfig + WithTonicConfig>(builder: B, way: &Way) -> B {
    http(builder, &way.given)
}

#[cfg(any(feature = "tls-ring", feature = "tls-aws-lc"))]
fn grpc<B: WithExportConfig + WithTonicConfig>(builder: B, way: &Way) -> B {
    let builder = http(builder, &way.given);
    if !way.tls {
        return builder;
    }
    let mut tls = ClientTlsConfig::new().with_enabled_roots();
    if let Some(certificate) = &way.certificate {
        tls = tls.ca_certificate(Certificate::from_pem(certificate));
    }
    if let Some([certificate, key]) = &way.identity {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    builder.with_tls_config(tls)
}

/// The SDK exports on its own threads, so the client is a blocking one. It is built on another
/// thread, because it must not be built in an asynchronous context.
fn client(way: &Way) -> Result<reqwest::blocking::Client, InitError> {
    choose_provider();
    let build = || {
        let mut builder = reqwest::blocking::Client::builder().timeout(way.timeout);
        if way.tls {
            builder = with_certificates(builder, way)?;
        }
        builder.build()
    };
    let built = std::thread::scope(|scope| scope.spawn(build).join());
    match built {
        Ok(built) => built.map_err(|error| InitError::exporter(way.signal, error)),
        Err(_) => Err(InitError::exporter(way.signal, "its HTTP client could not be built")),
    }
}

#[cfg(any(feature = "tls-ring", feature = "tls-aws-lc"))]
fn with_certificates(
    mut builder: reqwest::blocking::ClientBuilder,
    way: &Way,
) -> reqwest::Result<reqwest::blocking::ClientBuilder> {
    if let Some(pem) = &way.certificate {
        builder = builder.tls_certs_merge(reqwest::Certificate::from_pem_bundle(pem)?);
    }
    if let Some(identity) = &way.identity {
        builder = builder.identity(reqwest::Identity::from_pem(&identity.join(&b'\n'))?);
    }
    Ok(builder)
}

#[cfg(not(any(feature = "tls-ring", feature = "tls-aws-lc")))]
fn with_certificates(
    builder: reqwest::blocking::ClientBuilder,
    _: &Way,
) -> reqwest::Result<reqwest::blocking::ClientBuilder> {
    Ok(builder)
}

/// The HTTP client uses the process's rustls crypto provider, and panics if there is none. A
/// provider that the program has chosen is kept.
fn choose_provider() {
    #[cfg(feature = "tls-ring")]
    let provider = Some(rustls::crypto::ring::default_provider());
    #[cfg(all(feature = "tls-aws-lc", not(feature = "tls-ring")))]
    let provider = Some(rustls::crypto::aws_lc_rs::default_provider());
    #[cfg(not(any(feature = "tls-ring", feature = "tls-aws-lc")))]
    let provider = None::<rustls::crypto::CryptoProvider>;
    if let Some(provider) =
        provider.filter(|_| rustls::crypto::CryptoProvider::get_default().is_none())
    {
        // An error means that another thread has just chosen one.
        let _ = provider.install_default();
    }
}

/// The runtime of gRPC exporters. A runtime must not be dropped in an asynchronous context, but
/// that is where a service ends, and where the set-up may fail.
pub(super) struct KeptRuntime(Option<Runtime>);

impl KeptRuntime {
    fn start() -> Result<Self, InitError> {
        let mut builder = Builder::new_multi_thread();
        let built = builder.worker_threads(1).thread_name("rehop-otlp").enable_all().build();
        Ok(Self(Some(built.map_err(|error| InitError::Runtime { error })?)))
    }

    fn enter(&self) -> Option<EnterGuard<'_>> {
        self.0.as_ref().map(Runtime::enter)
    }
}

impl Drop for KeptRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_shown_without_credentials_and_its_scheme_decides_on_tls() {
        let shown =
            |text, protocol| inspect(text, protocol).map(|endpoint| (endpoint.shown, endpoint.tls));
        let http = shown("https://me:secret@collector:4318/v1/traces?token=secret", Protocol::Http);
        assert_eq!(http, Some(("https://collector:4318/v1/traces".to_owned(), true)));
        assert_eq!(
            shown("http://[::1]:4317", Protocol::Grpc),
            Some(("http://[::1]:4317/".to_owned(), false))
        );
        assert_eq!(
            shown("collector:4317", Protocol::Grpc),
            Some(("https://collector:4317/".to_owned(), true))
        );
        for wrong in [
            "collector:4318",
            "ftp://collector",
            "http://",
            "nonsense",
            "",
            "http://me:p^ss@host",
            "http://me:p[ss@host",
            "http:me:secret@host",
            "http://m\u{fc}:p@host",
        ] {
            assert_eq!(shown(wrong, Protocol::Http), None, "{wrong}");
        }
    }
}
