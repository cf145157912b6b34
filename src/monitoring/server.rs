//! The server: one request for each connection, and not many connections at a time.

use std::convert::Infallible;
use std::io::Cursor;
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
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use super::answer::{Page, answer};
use crate::lobby::{Guest, Lobby};
use crate::status::Status;

/// How many connections may be open that have sent no request. A further one closes the oldest:
/// were it to wait, clients that connect and send nothing would keep the probes from being
/// answered, and a process that is well would be restarted.
const SILENT: usize = 256;
/// How many answers may be under way. Most are sent at once; of those whose clients do not read,
/// the oldest gives way.
const ANSWERS: usize = 32;
/// How long a client may take to send its request.
const HEADER_TIME_LIMIT: Duration = Duration::from_secs(2);
/// How many bytes its head may have.
const HEADER_BYTES: usize = 16 * 1024;
/// How long a connection may stay open.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// The pause after a failed accept, for instance because the process has too many open files.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn serve(listener: TcpListener, status: Arc<OnceLock<Status>>) {
    let (mut lobby, answers) = (Lobby::new(SILENT), Arc::new(Mutex::new(Lobby::new(ANSWERS))));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let guest = lobby.admit().await;
                tokio::spawn(serve_one(stream, guest, answers.clone(), status.clone()));
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a monitoring connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve_one(
    mut stream: TcpStream,
    guest: Guest,
    answers: Arc<Mutex<Lobby>>,
    status: Arc<OnceLock<Status>>,
) {
    let head = guest.head(&mut stream, HEADER_BYTES, HEADER_TIME_LIMIT).await;
    let Some(head) = head else { return };
    let (rest, answer) = tokio::io::split(stream);
    let stream = tokio::io::join(Cursor::new(head).chain(rest), answer);
    let service = service_fn(|request: Request<Incoming>| {
        let response = respond(request.method(), request.uri().path(), status.get());
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME_LIMIT)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let place = answers.lock().await.admit().await;
    tokio::select! {
        biased;
        served = tokio::time::timeout(TIME_LIMIT, connection) => match served {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a monitoring connection ended early"),
            Err(_) => tracing::debug!("a monitoring request was given up after {TIME_LIMIT:?}"),
        },
        () = place.gives_way() => tracing::debug!("a monitoring answer was not read in time"),
    }
}

fn respond(method: &Method, path: &str, status: Option<&Status>) -> Response<Full<Bytes>> {
    if ![Method::GET, Method::HEAD].contains(method) {
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let Page { status, content_type, body } = answer(path, status);
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
