//! The server: one request for each connection, and not many connections at a time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::answer::{Answer, answer};
use crate::status::Status;

/// How many connections may be open. A further one closes the oldest: were it to wait, clients that
/// connect and send nothing would keep the probes from being answered, and a process that is well
/// would be restarted.
const CONNECTIONS: usize = 32;
/// How long a client may take to send its request.
const HEADER_TIME_LIMIT: Duration = Duration::from_secs(2);
/// How long a connection may stay open.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// The pause after a failed accept, for instance because the process has too many open files.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn serve(listener: TcpListener, status: Arc<OnceLock<Status>>) {
    let mut open = VecDeque::<AbortHandle>::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                open.retain(|connection| !connection.is_finished());
                if open.len() >= CONNECTIONS
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                }
                open.push_back(tokio::spawn(serve_one(stream, status.clone())).abort_handle());
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a monitoring connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve_one(stream: TcpStream, status: Arc<OnceLock<Status>>) {
    let service = service_fn(|request: Request<Incoming>| {
        let response = respond(request.method(), request.uri().path(), status.get());
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME_LIMIT)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(TIME_LIMIT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a monitoring connection ended early"),
        Err(_) => tracing::debug!("a monitoring request was given up after {TIME_LIMIT:?}"),
    }
}

fn respond(method: &Method, path: &str, status: Option<&Status>) -> Response<Full<Bytes>> {
    if ![Method::GET, Method::HEAD].contains(method) {
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let Answer { status, content_type, body } = answer(path, status);
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
