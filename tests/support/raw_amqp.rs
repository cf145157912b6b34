//! AMQP byte by byte: for messages that no client library writes, and for what other libraries do not tell about a message.

use lapin::uri::AMQPUri;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Publishes a message to a queue whose message id is not UTF-8. RabbitMQ does not look at it.
pub(crate) async fn publish_unreadable(amqp_url: &str, queue: &str) {
    let mut peer = Peer::open(amqp_url).await;
    peer.send(1, PUBLISH, &[&[0, 0, 0][..], &short(queue.as_bytes()), &[0]].concat()).await;
    let body = b"unreadable";
    let size = u64::try_from(body.len()).unwrap().to_be_bytes();
    // Class 60, and the only property: the message id.
    peer.frame(HEADER, 1, &[&[0, 60, 0, 0][..], &size, &[0x00, 0x80], &short(&[0xFF, 0xFE])].concat()).await;
    peer.frame(BODY, 1, body).await;
    peer.close().await;
}

/// A method: its class, and its number in there.
pub(crate) type Method = [u8; 2];

/// The kinds of frames.
const METHOD: u8 = 1;
pub(crate) const HEADER: u8 = 2;
pub(crate) const BODY: u8 = 3;

const START: Method = [10, 10];
const START_OK: Method = [10, 11];
const TUNE: Method = [10, 30];
const TUNE_OK: Method = [10, 31];
const OPEN: Method = [10, 40];
const OPEN_OK: Method = [10, 41];
const CHANNEL_OPEN: Method = [20, 10];
const CHANNEL_OPEN_OK: Method = [20, 11];
const CHANNEL_CLOSE: Method = [20, 40];
const CHANNEL_CLOSE_OK: Method = [20, 41];
const PUBLISH: Method = [60, 40];

/// A connection with one channel.
pub(crate) struct Peer {
    stream: TcpStream,
}

impl Peer {
    pub(crate) async fn open(amqp_url: &str) -> Self {
        let uri: AMQPUri = amqp_url.parse().unwrap();
        let user = &uri.authority.userinfo;
        let stream = TcpStream::connect((uri.authority.host.as_str(), uri.authority.port)).await.unwrap();
        let mut peer = Self { stream };
        peer.stream.write_all(b"AMQP\0\0\x09\x01").await.unwrap();
        peer.receive(START).await;
        let login = format!("\0{}\0{}", user.username, user.password);
        let login = [&u32::try_from(login.len()).unwrap().to_be_bytes()[..], login.as_bytes()].concat();
        // Without client properties.
        peer.send(0, START_OK, &[&[0; 4][..], &short(b"PLAIN"), &login, &short(b"en_US")].concat()).await;
        let mut limits = peer.receive(TUNE).await;
        // No heartbeats.
        limits[6..8].fill(0);
        peer.send(0, TUNE_OK, &limits).await;
        peer.send(0, OPEN, &[&short(uri.vhost.as_bytes())[..], &[0, 0]].concat()).await;
        peer.receive(OPEN_OK).await;
        peer.send(1, CHANNEL_OPEN, &[0]).await;
        peer.receive(CHANNEL_OPEN_OK).await;
        peer
    }

    /// Closes the channel. The broker has then received all that was sent on it, and takes back what was not acked.
    pub(crate) async fn close(mut self) {
        self.send(1, CHANNEL_CLOSE, &[0, 200, 0, 0, 0, 0, 0]).await;
        self.receive(CHANNEL_CLOSE_OK).await;
    }

    async fn frame(&mut self, kind: u8, channel: u16, payload: &[u8]) {
        let size = u32::try_from(payload.len()).unwrap();
        let frame = [&[kind][..], &channel.to_be_bytes(), &size.to_be_bytes(), payload, &[0xCE]].concat();
        self.stream.write_all(&frame).await.unwrap();
    }

    pub(crate) async fn send(&mut self, channel: u16, [class, method]: Method, arguments: &[u8]) {
        self.frame(METHOD, channel, &[&[0, class, 0, method][..], arguments].concat()).await;
    }

    /// The arguments of this method, which the broker sends next.
    pub(crate) async fn receive(&mut self, method: Method) -> Vec<u8> {
        let mut payload = self.receive_frame(METHOD).await;
        assert_eq!([payload[1], payload[3]], method, "{}", String::from_utf8_lossy(&payload));
        payload.split_off(4)
    }

    /// What is in the frame that the broker sends next, which is of this kind.
    pub(crate) async fn receive_frame(&mut self, kind: u8) -> Vec<u8> {
        let mut head = [0; 7];
        self.stream.read_exact(&mut head).await.unwrap();
        let [received, _, _, a, b, c, d] = head;
        let mut payload = vec![0; u32::from_be_bytes([a, b, c, d]) as usize + 1];
        self.stream.read_exact(&mut payload).await.unwrap();
        assert_eq!(received, kind, "{}", String::from_utf8_lossy(&payload));
        payload.pop();
        payload
    }
}

pub(crate) fn short(text: &[u8]) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()][..], text].concat()
}
