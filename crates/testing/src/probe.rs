//! Finds out whether a RabbitMQ is ready, and its version. It sends the first bytes of AMQP,
//! because a forwarded port of a container accepts TCP before the broker listens, and because the
//! greeting contains the version.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{error::BrokerError, eventually::eventually};

/// Waits until the broker at this address sends its greeting, and returns its version.
pub(super) async fn amqp(address: &str, within: Duration) -> Result<String, BrokerError> {
    eventually(within, "an AMQP greeting", async || version_at(address).await.map(Some))
        .await
        .map_err(|late| BrokerError::Silent {
            address: address.to_owned(),
            within,
            reason: late.to_string(),
        })
}

/// Waits until an HTTP server answers at this address.
pub(super) async fn http(address: &str, within: Duration) -> Result<(), BrokerError> {
    eventually(within, "an HTTP answer", async || {
        let answer = exchange(address, b"GET / HTTP/1.0\r\n\r\n", 5).await?;
        Ok::<_, io::Error>(answer.starts_with(b"HTTP/"))
    })
    .await
    .map_err(|late| BrokerError::Silent {
        address: address.to_owned(),
        within,
        reason: late.to_string(),
    })
}

async fn version_at(address: &str) -> io::Result<String> {
    // A frame's type, channel and size take 7 bytes.
    let head = exchange(address, b"AMQP\0\0\x09\x01", 7).await?;
    let size =
        head.get(3..7).and_then(|size| size.try_into().ok()).map_or(0, u32::from_be_bytes) as usize;
    if head.first() != Some(&1) {
        return Err(io::Error::other("the answer is not AMQP 0-9-1"));
    }
    let greeting = exchange(address, b"AMQP\0\0\x09\x01", 7 + size).await?;
    Ok(version_in(&greeting).unwrap_or_else(|| "unknown".to_owned()))
}

/// The long string behind the key `version` in the server properties.
fn version_in(greeting: &[u8]) -> Option<String> {
    const KEY: &[u8] = b"\x07versionS";
    let at = greeting.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let length = u32::from_be_bytes(greeting.get(at..at + 4)?.try_into().ok()?) as usize;
    String::from_utf8(greeting.get(at + 4..at + 4 + length)?.to_vec()).ok()
}

/// Sends a request and returns the first bytes of the answer.
async fn exchange(address: &str, request: &[u8], answer: usize) -> io::Result<Vec<u8>> {
    timeout(Duration::from_secs(5), async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request).await?;
        let mut bytes = vec![0; answer];
        stream.read_exact(&mut bytes).await?;
        Ok(bytes)
    })
    .await
    .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer within 5 s")))
}
