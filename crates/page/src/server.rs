//! The server: limits on what a client may hold.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::listener::{Listener, Stream};

/// How many connections may be open; further ones wait.
const CONNECTIONS: usize = 256;
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
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    // Ends them all when it is dropped.
    let mut serving = JoinSet::new();
    loop {
        while serving.try_join_next().is_some() {}
        let Ok(permit) = connections.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok(stream) => {
                let routes = routes.clone();
                serving.spawn(async move {
                    let _permit = permit;
                    if tokio::time::timeout(TIME_LIMIT, serve_one(stream, routes)).await.is_err() {
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
async fn serve_one(stream: Box<dyn Stream>, routes: Router) {
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
