//! A relay that holds a frame back.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::SOON;

/// Which frame is held back. Frames are counted over all connections.
pub(crate) enum Held {
    /// The first `basic.reject` that a client sends.
    Reject,
    /// This `basic.consume-ok` of the broker, counted from 1: its answer to a subscription.
    ConsumeOk(usize),
}

/// A relay between clients and a proxy. It holds a frame back, and what the same side sends after
/// it on the same connection, until [`release`](Self::release). What is still held back when the
/// connection ends is lost. All else passes, in both directions.
///
/// A proxy alone would have to be paused before the frame, and could not tell when it was sent.
pub(crate) struct FrameHold {
    address: String,
    hold: Arc<Hold>,
}

struct Hold {
    held: Held,
    /// How many frames of this method were sent.
    seen: AtomicUsize,
    is_reached: watch::Sender<bool>,
    is_released: watch::Sender<bool>,
}

impl FrameHold {
    /// A relay in front of this address.
    pub(crate) async fn start(proxy: String, held: Held) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (is_reached, is_released) = (watch::Sender::new(false), watch::Sender::new(false));
        let hold = Arc::new(Hold { held, seen: AtomicUsize::new(0), is_reached, is_released });
        tokio::spawn(accept(listener, proxy, hold.clone()));
        Self { address, hold }
    }

    /// Where it listens: `127.0.0.1:port`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Waits until the frame was sent.
    pub(crate) async fn is_reached(&self) {
        let reached = is_set(&self.hold.is_reached);
        tokio::time::timeout(SOON, reached)
            .await
            .expect("the frame that is to be held back is sent in time");
    }

    /// Lets through what is held back.
    pub(crate) fn release(&self) {
        self.hold.is_released.send_replace(true);
    }
}

impl Hold {
    /// Returns when the frame may pass.
    async fn pass(&self, frame: &[u8]) {
        if self.holds(frame) {
            self.is_reached.send_replace(true);
            is_set(&self.is_released).await;
        }
    }

    fn holds(&self, frame: &[u8]) -> bool {
        let (class, method, number) = match self.held {
            Held::Reject => (60, 90, 1),
            Held::ConsumeOk(number) => (60, 21, number),
        };
        is_method(frame, class, method) && self.seen.fetch_add(1, Ordering::Relaxed) + 1 == number
    }
}

async fn is_set(flag: &watch::Sender<bool>) {
    drop(flag.subscribe().wait_for(|is_set| *is_set).await.unwrap());
}

async fn accept(listener: TcpListener, proxy: String, hold: Arc<Hold>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(relay(client, proxy.clone(), hold.clone()));
    }
}

/// Passes bytes until one side ends.
async fn relay(client: TcpStream, proxy: String, hold: Arc<Hold>) -> io::Result<()> {
    let broker = TcpStream::connect(&proxy).await?;
    let (from_client, to_client) = client.into_split();
    let (from_broker, to_broker) = broker.into_split();
    let ((checked, to), (mut copied, mut back)) = match hold.held {
        Held::Reject => ((from_client, to_broker), (from_broker, to_client)),
        Held::ConsumeOk(_) => ((from_broker, to_client), (from_client, to_broker)),
    };
    tokio::select! {
        passed = tokio::io::copy(&mut copied, &mut back) => passed.map(drop),
        passed = pass_frames(checked, to, &hold) => passed,
    }
}

async fn pass_frames(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    hold: &Hold,
) -> io::Result<()> {
    let mut bytes: Vec<u8> = Vec::with_capacity(16 * 1024);
    while from.read_buf(&mut bytes).await? > 0 {
        while let Some(length) = first_frame(&bytes) {
            hold.pass(&bytes[..length]).await;
            to.write_all(&bytes[..length]).await?;
            bytes.drain(..length);
        }
    }
    Ok(())
}

/// The length of the first frame, or of the protocol header that comes before all frames. `None`
/// while a part of it is missing.
fn first_frame(bytes: &[u8]) -> Option<usize> {
    let length = match bytes {
        [b'A', b'M', b'Q', b'P', ..] => 8,
        // Type, channel and size of the payload; after the payload comes one more byte.
        [_, _, _, a, b, c, d, ..] => u32::from_be_bytes([*a, *b, *c, *d]) as usize + 8,
        _ => return None,
    };
    (bytes.len() >= length).then_some(length)
}

/// Whether the frame is this method.
fn is_method(frame: &[u8], class: u8, method: u8) -> bool {
    matches!(frame, [1, _, _, _, _, _, _, 0, c, 0, m, ..] if (*c, *m) == (class, method))
}
