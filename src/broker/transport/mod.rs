//! The stream between lapin and the socket, on which lapin can read every message.
//!
//! RabbitMQ does not check that short strings (message ids and other properties, header names,
//! routing keys) are UTF-8 (3.10, 4.0 and 4.3). lapin ends the connection over one that is not, and
//! parses nested tables by recursion without a limit (4.12). So in inbound frames a
//! [stand-in](crate::wire::stand_in) replaces each such property and routing key, headers that
//! lapin cannot read are taken out, and the header [`BYTES`](crate::wire::names::BYTES) has the
//! [originals]. Outbound frames get the originals back. Other frames pass unchanged.

mod addressed_method;
mod closed_channels;
mod content_header;
mod frames;
mod inbound;
mod originals;
mod outbound;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures_util::Stream;
use futures_util::io::{AsyncRead, AsyncWrite};
use lapin::tcp::AsyncTcpStream;
use tokio::sync::oneshot;

pub(super) use closed_channels::ClosedChannels;
use frames::FrameRewriter;
use inbound::Inbound;
use outbound::Outbound;

/// The current Tokio runtime, with [`Transport`] as its stream type. Panics outside a runtime.
pub(super) fn runtime() -> Runtime<RuntimeParts<Tokio, TransportReactor>> {
    Runtime::new(RuntimeParts::new(Tokio::current(), TransportReactor(Tokio::current())))
}

/// Tokio's reactor, with [`Transport`] as its stream type. lapin only sleeps by it: `open` hands it
/// a stream that is already connected.
#[derive(Clone, Debug)]
pub(super) struct TransportReactor(Tokio);

impl Reactor for TransportReactor {
    type TcpStream = Transport;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: Read + Write + Send + 'static>(
        &self,
        _: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        Err::<Transport, _>(io::ErrorKind::Unsupported.into())
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        self.0.sleep(duration)
    }

    fn interval(&self, period: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(period)
    }

    fn tcp_connect_addr(
        &self,
        _: SocketAddr,
    ) -> impl Future<Output = io::Result<Transport>> + Send + 'static {
        std::future::ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

/// A connection to the broker, with TLS or without.
pub(super) struct Transport {
    stream: AsyncTcpStream<<Tokio as Reactor>::TcpStream>,
    inbound: FrameRewriter<Inbound>,
    outbound: FrameRewriter<Outbound>,
    /// The buffer for one read from the socket.
    chunk: Box<[u8]>,
    /// Rewritten bytes that lapin has not read yet.
    to_lapin: Buffer,
    /// Rewritten bytes that the socket has not accepted yet.
    to_socket: Buffer,
    /// Dropped once nothing more comes from the socket.
    open: Option<oneshot::Sender<()>>,
}

impl Transport {
    /// Notes in `closed` why the broker closes channels, and drops `open` once nothing more comes
    /// from the socket.
    pub(super) fn new(
        stream: AsyncTcpStream<<Tokio as Reactor>::TcpStream>,
        closed: ClosedChannels,
        open: oneshot::Sender<()>,
    ) -> Self {
        Self {
            stream,
            inbound: FrameRewriter::of(Inbound::noting(closed)),
            outbound: FrameRewriter::after_protocol_header(),
            chunk: vec![0; READ_BYTES].into(),
            to_lapin: Buffer::default(),
            to_socket: Buffer::default(),
            open: Some(open),
        }
    }

    /// Writes all buffered bytes to the socket.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.to_socket.rest().is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(context, self.to_socket.rest()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.to_socket.take(written),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // An incomplete method or header frame yields no bytes, so read on.
        while this.to_lapin.rest().is_empty() && !into.is_empty() {
            let read = ready!(Pin::new(&mut this.stream).poll_read(context, &mut this.chunk));
            let read = read.inspect_err(|_| this.open = None)?;
            if read == 0 {
                this.open = None;
                return Poll::Ready(Ok(0));
            }
            this.inbound.pass(&this.chunk[..read], &mut this.to_lapin.bytes);
        }
        let rest = this.to_lapin.rest();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        this.to_lapin.take(count);
        Poll::Ready(Ok(count))
    }
}

impl AsyncWrite for Transport {
    /// Accepts bytes only once the earlier ones are written, so at most one call's bytes are
    /// buffered.
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_drain(context))?;
        let bytes = &bytes[..bytes.len().min(MAX_WRITE_BYTES)];
        this.outbound.pass(bytes, &mut this.to_socket.bytes);
        // These bytes are accepted. If the socket is full, or fails, the next write or flush
        // continues or says so.
        let _ = this.poll_drain(context);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(context))?;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // lapin closes what has ended. A peer that reads nothing any more must not keep its thread
        // waiting.
        let _ = this.poll_drain(context);
        Pin::new(&mut this.stream).poll_close(context)
    }
}

const READ_BYTES: usize = 64 * 1024;
/// Twice the usual frame, and little to keep for each connection.
const MAX_WRITE_BYTES: usize = 256 * 1024;

/// Bytes that are taken from the front.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    taken: usize,
}

impl Buffer {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    fn take(&mut self, count: usize) {
        self.taken += count;
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        }
    }
}
