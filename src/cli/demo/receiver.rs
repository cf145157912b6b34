//! A small OTLP receiver: it keeps what the real exporters send, and passes it on to a collector if there is one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;

use super::spans::{Span, spans_of};

#[derive(Debug)]
pub(super) struct Receiver {
    spans: Mutex<Vec<Span>>,
    collector: Option<Collector>,
}

/// A real collector.
#[derive(Debug)]
struct Collector {
    client: reqwest::Client,
    url: String,
    /// The first failure: one warning is enough.
    failure: Mutex<Option<String>>,
}

impl Receiver {
    pub(super) fn new(collector: Option<&str>) -> anyhow::Result<Arc<Self>> {
        let collector = match collector {
            Some(url) => Some(Collector {
                client: reqwest::Client::builder().timeout(Duration::from_secs(3)).build()?,
                url: url.trim_end_matches('/').to_owned(),
                failure: Mutex::default(),
            }),
            None => None,
        };
        Ok(Arc::new(Self { spans: Mutex::default(), collector }))
    }

    pub(super) fn router(self: &Arc<Self>) -> Router {
        Router::new().fallback(receive).with_state(self.clone())
    }

    pub(super) fn spans(&self) -> Vec<Span> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why the collector did not get everything, if it did not.
    pub(super) fn failure(&self) -> Option<String> {
        self.collector.as_ref()?.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Takes every signal and keeps the traces.
async fn receive(State(receiver): State<Arc<Receiver>>, uri: Uri, headers: HeaderMap, body: Bytes) -> StatusCode {
    if let Some(collector) = &receiver.collector {
        collector.pass_on(uri.path(), &headers, body.clone()).await;
    }
    if uri.path() != "/v1/traces" {
        return StatusCode::OK;
    }
    match ExportTraceServiceRequest::decode(body) {
        Ok(export) => {
            receiver.spans.lock().unwrap_or_else(PoisonError::into_inner).extend(spans_of(export));
            StatusCode::OK
        }
        Err(_) => StatusCode::BAD_REQUEST,
    }
}

impl Collector {
    async fn pass_on(&self, path: &str, headers: &HeaderMap, body: Bytes) {
        let mut request = self.client.post(format!("{}{path}", self.url)).body(body);
        for name in [header::CONTENT_TYPE, header::CONTENT_ENCODING] {
            if let Some(value) = headers.get(&name) {
                request = request.header(name, value);
            }
        }
        let sent = request.send().await.and_then(reqwest::Response::error_for_status);
        if let Err(error) = sent {
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert_with(|| format!("{:#}", anyhow::Error::from(error.without_url())));
        }
    }
}
