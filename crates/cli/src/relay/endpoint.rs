//! The endpoint: one request per message.

use std::mem;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT,
};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::capture_connection;
use rehop::{Failure, Handler, Message};
use tokio::time::Instant;

use super::answer::{Treatments, retry_after};
use super::client::{Client, Times, client};
use super::connections::Connections;
use super::explain::Explanations;
use super::missing::Missing;
use super::request::Headers;
use super::shortage::Shortage;
use super::target::Target;

pub(super) struct Endpoint {
    pub(super) target: Target,
    client: Client,
    connections: Connections,
    /// The headers of every request.
    common: HeaderMap,
    headers: Headers,
    times: Times,
    treatments: Treatments,
    explanations: Explanations,
    shortage: Shortage,
}

/// How long a request waits for a file descriptor before it is tried again.
const PAUSE: Duration = Duration::from_millis(200);

impl Endpoint {
    pub(super) fn new(
        target: Target,
        headers: Headers,
        times: Times,
        (treatments, explanations): (Treatments, Explanations),
    ) -> anyhow::Result<Self> {
        if cfg!(not(any(feature = "tls-ring", feature = "tls-aws-lc"))) {
            anyhow::bail!(
                "relay was built without TLS, and its HTTP client needs it: build with feature tls-ring"
            );
        }
        let connections = Connections::default();
        let client = client(target.is_https(), times, &connections).context(
            "cannot set up the HTTP client; https needs certificate authorities: install the package ca-certificates, or \
             name a file of them in SSL_CERT_FILE",
        )?;
        let agent = HeaderValue::from_static(concat!("rehop/", env!("CARGO_PKG_VERSION")));
        let mut common =
            HeaderMap::from_iter([(USER_AGENT, agent), (ACCEPT, HeaderValue::from_static("*/*"))]);
        common.extend(target.credentials.clone().map(|it| (AUTHORIZATION, it)));
        let shortage = Shortage::default();
        Ok(Self {
            target,
            client,
            connections,
            common,
            headers,
            times,
            treatments,
            explanations,
            shortage,
        })
    }

    /// The head of the answer. A request for which the process has no file descriptor waits for
    /// one: that is not the endpoint's fault, so no attempt is spent. If a reused connection turns
    /// out to be dead, the endpoint says that it has not processed the request, or the request was
    /// not sent, it is sent once more.
    async fn answer(
        &self,
        headers: &HeaderMap,
        body: &Bytes,
        deadline: Instant,
    ) -> Result<Response<Incoming>, Missing> {
        let (mut is_lost, mut is_refused) = (false, false);
        let has_body = !body.is_empty();
        loop {
            match self.send(headers, body, deadline).await {
                Ok(response) => return Ok(response),
                Err((missing, _)) if missing.is_out_of_descriptors() => {
                    self.shortage.say();
                    if tokio::time::timeout_at(deadline, tokio::time::sleep(PAUSE)).await.is_err() {
                        return Err(Missing::NoDescriptor(self.times.timeout));
                    }
                }
                // The one says nothing of the other: behind a dead connection may be an endpoint
                // that is about to stop.
                Err((missing, true)) => {
                    let was_resent = if missing.is_unprocessed(has_body) {
                        &mut is_refused
                    } else {
                        &mut is_lost
                    };
                    if mem::replace(was_resent, true) {
                        return Err(missing);
                    }
                    tracing::debug!(
                        "the request was probably not processed ({missing}); sending it once more"
                    );
                }
                Err((missing, false)) => return Err(missing),
            }
        }
    }

    /// Sends the request once. The flag beside an error is true if the request was probably not
    /// processed.
    async fn send(
        &self,
        headers: &HeaderMap,
        body: &Bytes,
        deadline: Instant,
    ) -> Result<Response<Incoming>, (Missing, bool)> {
        let mut request = Request::post(self.target.uri.clone())
            .body(Full::new(body.clone()))
            .map_err(|error| (Missing::Unsendable(error), false))?;
        *request.headers_mut() = headers.clone();
        let sent = self.connections.sending(capture_connection(&mut request));
        let missing = match tokio::time::timeout_at(deadline, self.client.request(request)).await {
            Ok(Ok(response)) => {
                self.connections.answered(sent);
                return Ok(response);
            }
            Ok(Err(error)) => Missing::Failed(error),
            Err(_) => Missing::Late(self.times.timeout),
        };
        if missing.is_unprocessed(!body.is_empty()) {
            return Err((missing, true));
        }
        // A reset concerns this request alone, so its connection stays in use.
        let was_dead = !missing.is_reset() && self.connections.failed(&sent);
        let may_resend = was_dead && missing.is_lost_connection();
        Err((missing, may_resend))
    }

    /// What the body says about a failure.
    async fn explanation(&self, response: Response<Incoming>) -> Option<String> {
        let (head, body) = response.into_parts();
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default();
        let is_plain = !head.headers.contains_key(CONTENT_ENCODING);
        let read = read(body, is_plain && self.explanations.wants(content_type)).await;
        self.explanations.of(content_type, &read)
    }
}

impl Handler<Bytes> for Endpoint {
    async fn handle(&self, message: Message<Bytes>) -> Result<(), Failure> {
        let deadline = Instant::now() + self.times.timeout;
        let mut headers = self.common.clone();
        headers.extend(self.headers.of(&message));
        let mut answer = self.answer(&headers, &message.body, deadline).await;
        // What others put into the trace context must not fail the message.
        if let Ok(response) = &answer
            && response.status() == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            && Headers::shorten(&mut headers)
        {
            tracing::debug!("the endpoint answered 431; the request is sent without baggage");
            answer = self.answer(&headers, &message.body, deadline).await;
        }
        let response = match answer {
            Ok(response) => response,
            Err(missing) => return self.treatments.missing(&missing),
        };
        let retry_after = retry_after(response.headers(), SystemTime::now());
        let status = response.status();
        let explanation = if status.is_success() {
            read(response.into_body(), false).await;
            None
        } else {
            self.explanation(response).await
        };
        self.treatments.judge(status, retry_after, explanation)
    }
}

/// Reads the body, so that the connection can be reused, and returns it if it is kept. It gives up
/// on a large or slow body, because the status matters more.
async fn read(mut body: Incoming, is_kept: bool) -> BytesMut {
    const LIMIT: usize = 64 * 1024;
    const TIME_LIMIT: Duration = Duration::from_millis(500);
    let mut kept = BytesMut::new();
    let read = async {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await {
            let Some(data) = frame.data_ref() else { continue };
            read += data.len();
            if read > LIMIT {
                return;
            }
            if is_kept {
                kept.extend_from_slice(data);
            }
        }
    };
    // What remains is dropped with the connection.
    let _ = tokio::time::timeout(TIME_LIMIT, read).await;
    kept
}
