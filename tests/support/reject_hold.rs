//! A relay that holds a reject back.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::SOON;

/// A relay between clients and a proxy. It holds back the first `basic.reject` that a client sends, and what that client sends after it,
/// until the proxy cuts their connection; then they are lost. All else passes, in both directions.
///
/// A proxy alone would have to be paused before the reject, and could not tell when the client has sent it.
pub(crate) struct RejectHold {
    address: String,
    is_reached: watch::Receiver<bool>,
}

impl RejectHold {
    /// A relay in front of this address.
    pub(crate) async fn start(proxy: String) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (reached, is_reached) = watch::channel(false);
        tokio::spawn(accept(listener, proxy, Arc::new(reached)));
        Self { address, is_reached }
    }

    /// Where it listens: `127.0.0.1:port`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Waits until a client has sent a reject.
    pub(crate) async fn is_reached(&mut self) {
        let reached = self.is_reached.wait_for(|is_reached| *is_reached);
        drop(tokio::time::timeout(SOON, reached).await.expect("a client rejects a message in time").unwrap());
    }
}

async fn accept(listener: TcpListener, proxy: String, reached: Arc<watch::Sender<bool>>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(relay(client, proxy.clone(), reached.clone()));
    }
}

/// Passes bytes until one side ends.
async fn relay(client: TcpStream, proxy: String, reached: Arc<watch::Sender<bool>>) -> io::Result<()> {
    let broker = TcpStream::connect(&proxy).await?;
    let (from_client, mut to_client) = client.into_split();
    let (mut from_broker, to_broker) = broker.into_split();
    tokio::select! {
        passed = tokio::io::copy(&mut from_broker, &mut to_client) => passed.map(drop),
        passed = pass_frames(from_client, to_broker, &reached) => passed,
    }
}

async fn pass_frames(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, reached: &watch::Sender<bool>) -> io::Result<()> {
    let mut bytes: Vec<u8> = Vec::with_capacity(16 * 1024);
    while from.read_buf(&mut bytes).await? > 0 {
        while let Some(length) = first_frame(&bytes) {
            if is_reject(&bytes) && !reached.send_replace(true) {
                return std::future::pending().await;
            }
            to.write_all(&bytes[..length]).await?;
            bytes.drain(..length);
        }
    }
    Ok(())
}

/// The length of the first frame, or of the protocol header that comes before all frames. `None` while a part of it is missing.
fn first_frame(bytes: &[u8]) -> Option<usize> {
    let length = match bytes {
        [b'A', b'M', b'Q', b'P', ..] => 8,
        // Type, channel and size of the payload; after the payload comes one more byte.
        [_, _, _, a, b, c, d, ..] => u32::from_be_bytes([*a, *b, *c, *d]) as usize + 8,
        _ => return None,
    };
    (bytes.len() >= length).then_some(length)
}

/// Whether the first frame is method 90 of class 60.
fn is_reject(bytes: &[u8]) -> bool {
    matches!(bytes, [1, _, _, _, _, _, _, 0, 60, 0, 90, ..])
}
