//! What lapin reads from and writes to: a connection on which each message can be read.
//!
//! AMQP's short strings (message ids and other properties, names of headers, routing keys) may hold any bytes, and RabbitMQ passes them on
//! (3.10, 4.0 and 4.3). lapin takes them for UTF-8 and gives up the connection with all that it holds if they are not (4.12). It parses
//! nested tables by recursion, too, without a bound. So on the way in such a text is replaced by a [stand-in](stand_in), and the header
//! [`BYTES`](crate::wire::names::BYTES) keeps what it stands for. On the way out the bytes take its place again. All other frames pass as
//! they are.

mod address;
mod content;
mod frames;
mod inward;
mod kept;
mod outward;
mod stand_in;
mod values;

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

use frames::Frames;
use inward::Inward;
use outward::Outward;

type TcpStream = <Tokio as Reactor>::TcpStream;

/// The runtime of the current task, for connections of this kind.
pub(super) fn runtime() -> Runtime<RuntimeParts<Tokio, Transports>> {
    Runtime::new(RuntimeParts::new(tokio(), Transports(tokio())))
}

/// What connects to the broker.
pub(super) fn tokio() -> Tokio {
    Tokio::current()
}

/// A connection to the broker, with TLS or without.
pub(super) struct Transport {
    stream: AsyncTcpStream<TcpStream>,
    inward: Frames<Inward>,
    outward: Frames<Outward>,
    /// What the broker has sent, as read.
    read: Box<[u8]>,
    /// What of it lapin has not taken yet.
    arrived: Buffer,
    /// What lapin has written and the socket has not taken yet.
    leaving: Buffer,
}

impl Transport {
    pub(super) fn new(stream: AsyncTcpStream<TcpStream>) -> Self {
        Self {
            stream,
            inward: Frames::default(),
            outward: Frames::after_protocol_header(),
            read: vec![0; READ_AT_ONCE].into(),
            arrived: Buffer::default(),
            leaving: Buffer::default(),
        }
    }

    /// Writes what is leaving to the socket.
    fn poll_leave(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.leaving.rest().is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(context, self.leaving.rest()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.leaving.take(written),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // A part of a frame that has to be seen whole gives nothing to read yet.
        while this.arrived.rest().is_empty() && !into.is_empty() {
            let read = ready!(Pin::new(&mut this.stream).poll_read(context, &mut this.read))?;
            if read == 0 {
                return Poll::Ready(Ok(0));
            }
            this.inward.pass(&this.read[..read], &mut this.arrived.bytes);
        }
        let rest = this.arrived.rest();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        this.arrived.take(count);
        Poll::Ready(Ok(count))
    }
}

impl AsyncWrite for Transport {
    /// Takes nothing while the socket takes nothing, so no more than one call's bytes are leaving.
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_leave(context))?;
        let bytes = &bytes[..bytes.len().min(WRITTEN_AT_ONCE)];
        this.outward.pass(bytes, &mut this.leaving.bytes);
        // If the socket is full, the next call or a flush goes on.
        match this.poll_leave(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(bytes.len())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_leave(context))?;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_leave(context))?;
        Pin::new(&mut this.stream).poll_close(context)
    }
}

const READ_AT_ONCE: usize = 64 * 1024;
const WRITTEN_AT_ONCE: usize = 256 * 1024;

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

/// tokio's reactor, whose streams are [`Transport`]s.
#[derive(Clone, Debug)]
pub(super) struct Transports(Tokio);

impl Reactor for Transports {
    type TcpStream = Transport;
    type Sleep = <Tokio as Reactor>::Sleep;

    /// lapin connects by [`tcp_connect_addr`](Self::tcp_connect_addr) alone (4.12).
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

    fn tcp_connect_addr(&self, address: SocketAddr) -> impl Future<Output = io::Result<Transport>> + Send + 'static {
        let connecting = self.0.tcp_connect_addr(address);
        async { Ok(Transport::new(AsyncTcpStream::Plain(connecting.await?))) }
    }
}

#[cfg(test)]
mod tests;
