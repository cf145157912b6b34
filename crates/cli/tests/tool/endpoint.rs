//! The HTTP server that a relay calls.

use std::time::{Instant, SystemTime};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::Response;
use rehop::Settings;
use rehop_testing::Received;

use super::process::variables;
use crate::support::{Log, failures};

/// A request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) at: Instant,
    pub(crate) date: SystemTime,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Arrived {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A real HTTP server with the test's answers. It ends with its runtime.
pub(crate) struct Endpoint {
    pub(crate) url: String,
    arrived: Log<Arrived>,
}

impl Endpoint {
    /// The path of its URL.
    pub(crate) const PATH: &str = "/orders";

    pub(crate) async fn start<F, R>(answer: F) -> Self
    where
        F: Fn(Arrived) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response> + Send,
    {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}{}", listener.local_addr().unwrap(), Self::PATH);
        let arrived = Log::default();
        let log = arrived.clone();
        let handle = move |request: Request| {
            let (log, answer) = (log.clone(), answer.clone());
            async move {
                let (parts, body) = request.into_parts();
                let arrived = Arrived {
                    at: Instant::now(),
                    date: SystemTime::now(),
                    path: parts.uri.to_string(),
                    headers: parts.headers,
                    body: to_bytes(body, usize::MAX).await.unwrap(),
                };
                log.push(arrived.clone());
                answer(arrived).await
            }
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(handle)).await });
        Self { url, arrived }
    }

    /// The variables of a tool with these settings that exports its metrics to this server, and
    /// neither traces nor logs.
    pub(crate) fn as_metrics_collector(&self, settings: &Settings) -> Vec<(String, String)> {
        let mut environment = variables(settings);
        let exports = [
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", self.url.as_str()),
            ("OTEL_TRACES_EXPORTER", "none"),
            ("OTEL_LOGS_EXPORTER", "none"),
        ];
        environment.extend(exports.map(|(name, value)| (name.to_owned(), value.to_owned())));
        environment
    }

    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.arrived.all()
    }

    /// Waits for this many requests and returns them.
    pub(crate) async fn receives(&self, count: usize) -> Vec<Arrived> {
        self.arrived.reaches(count).await
    }
}

pub(crate) fn status(status: u16) -> Response {
    Response::builder().status(status).body(Body::from("any body")).unwrap()
}

pub(crate) fn with(status: u16, header: &str, value: &str) -> Response {
    Response::builder().status(status).header(header, value).body(Body::empty()).unwrap()
}

/// The class of a parked message's last failure.
pub(crate) fn class(parked: &Received) -> String {
    let errors = failures(parked);
    errors.last().unwrap()["class"].as_str().unwrap().to_owned()
}

/// Variables that name a proxy at which nobody answers.
pub(crate) fn through_nowhere() -> Vec<(String, String)> {
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]
        .iter()
        .flat_map(|name| [(*name).to_owned(), name.to_lowercase()])
        .map(|name| (name, "http://127.0.0.1:1".to_owned()))
        .collect()
}
