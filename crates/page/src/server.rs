//! The server: limits on what a client may hold.

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncReadExt;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::listener::{Listener, Stream};
use rehop::internals::{Guest, Lobby};

/// How many connections may be open that have sent no request; for a further one, the oldest gives
/// way.
const SILENT: usize = 256;
/// How many requests may be answered at a time; further ones wait.
const REQUESTS: usize = 256;
/// How long a request's head may take.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// How many bytes and lines it may have.
const HEAD_BYTES: usize = 16 * 1024;
const HEAD_LINES: usize = 64;
/// How long one request may take in all. What is followed for longer is asked for again.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// The pause after a failed accept, for instance because the process has too many open files.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn serve(listener: Listener, routes: Router) {
    let (mut lobby, requests) = (Lobby::new(SILENT), Arc::new(Semaphore::new(REQUESTS)));
    // Ends them all when it is dropped.
    let mut serving = JoinSet::new();
    loop {
        while serving.try_join_next().is_some() {}
        match listener.accept().await {
            Ok(stream) => {
                let (routes, requests) = (routes.clone(), requests.clone());
                let guest = lobby.admit().await;
                serving.spawn(async move {
                    let served = serve_one(stream, guest, &requests, routes);
                    if tokio::time::timeout(TIME_LIMIT, served).await.is_err() {
                        tracing::debug!("a request was given up after {TIME_LIMIT:?}");
                    }
                });
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// One request for each connection, so that an idle one holds nothing.
async fn serve_one(
    mut stream: Box<dyn Stream>,
    guest: Guest,
    requests: &Semaphore,
    routes: Router,
) {
    let Some(head) = guest.head(&mut stream, HEAD_BYTES, HEAD_TIME).await else { return };
    let Ok(_permit) = requests.acquire().await else { return };
    let (rest, answer) = tokio::io::split(stream);
    let stream = tokio::io::join(Cursor::new(head).chain(rest), answer);
    let connection = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_LINES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection ended early");
    }
}
