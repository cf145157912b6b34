//! Which connections to the endpoint are believed to be alive.
//!
//! A connection may die without a word: a firewall or NAT forgets it, or the endpoint restarts.
//! What is kept for reuse then costs each request that tries it. Hence, once a reused connection
//! has failed without a byte of an answer, every other one that has been silent since that request
//! was sent is not used again.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http::Extensions;
use hyper_util::client::legacy::connect::{CaptureConnection, Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Counts requests; this orders what happens on different connections.
type Moment = u64;

#[derive(Debug, Clone, Default)]
pub(super) struct Connections(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    moment: AtomicU64,
    next: AtomicU64,
    /// Those that have answered and may be used again.
    answered: Mutex<HashMap<u64, (Arc<ConnectionState>, CaptureConnection)>>,
}

/// What is known about one connection.
#[derive(Debug)]
struct ConnectionState {
    id: u64,
    /// The last time that something was heard from the endpoint.
    heard: AtomicU64,
    has_answered: AtomicBool,
    is_closed: AtomicBool,
}

/// One request: when it was sent, and on which connection.
#[derive(Debug)]
pub(super) struct Sent {
    at: Moment,
    connection: CaptureConnection,
}

impl Connections {
    /// Notes that a request is about to be sent.
    pub(super) fn sending(&self, connection: CaptureConnection) -> Sent {
        Sent { at: self.0.moment.fetch_add(1, Ordering::Relaxed) + 1, connection }
    }

    /// Watches a new connection.
    pub(super) fn watch<S>(&self, stream: S) -> Watched<S> {
        let state = ConnectionState {
            id: self.0.next.fetch_add(1, Ordering::Relaxed),
            heard: AtomicU64::new(0),
            has_answered: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        };
        Watched { stream, state: Arc::new(state), connections: self.clone() }
    }

    /// The request has an answer.
    pub(super) fn answered(&self, sent: Sent) {
        let Some((state, _)) = sent.state() else { return };
        if state.has_answered.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut answered = self.0.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.retain(|_, (state, _)| !state.is_closed.load(Ordering::Relaxed));
        answered.insert(state.id, (state, sent.connection));
    }

    /// The request has no answer. Returns whether it failed on a connection that had answered
    /// before, and that brought nothing since it was sent.
    pub(super) fn failed(&self, sent: &Sent) -> bool {
        let Some((state, is_http2)) = sent.state() else { return false };
        // HTTP/2 brings more than answers.
        let is_silent = is_http2 || state.heard.load(Ordering::Relaxed) < sent.at;
        if !is_silent || !state.has_answered.load(Ordering::Relaxed) {
            return false;
        }
        poison(&sent.connection);
        let mut answered = self.0.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.retain(|id, (other, connection)| {
            let is_believed = *id != state.id && other.heard.load(Ordering::Relaxed) >= sent.at;
            if !is_believed {
                poison(connection);
            }
            is_believed
        });
        true
    }
}

/// The client does not use it for another request. Those that are running go on.
fn poison(connection: &CaptureConnection) {
    if let Some(connected) = connection.connection_metadata().as_ref() {
        connected.poison();
    }
}

impl Sent {
    /// The connection, and whether it speaks HTTP/2; or `None` if there was none yet.
    fn state(&self) -> Option<(Arc<ConnectionState>, bool)> {
        let connected = self.connection.connection_metadata();
        let connected = connected.as_ref()?;
        let mut extras = Extensions::new();
        connected.get_extras(&mut extras);
        Some((extras.get::<Arc<ConnectionState>>()?.clone(), connected.is_negotiated_h2()))
    }
}

/// A connection whose last sign of life is noted.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    state: Arc<ConnectionState>,
    connections: Connections,
}

impl<S> Drop for Watched<S> {
    fn drop(&mut self) {
        self.state.is_closed.store(true, Ordering::Relaxed);
    }
}

impl<S: Connection> Connection for Watched<S> {
    fn connected(&self) -> Connected {
        self.stream.connected().extra(self.state.clone())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            let now = self.connections.0.moment.load(Ordering::Relaxed);
            self.state.heard.store(now, Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
