//! A minimal AMQP client that sends and returns properties and routing keys as raw bytes; client
//! libraries decode them.

use lapin::uri::AMQPUri;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection with one channel.
pub(crate) struct RawClient {
    stream: TcpStream,
}

/// A message as it is on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawMessage {
    pub(crate) routing_key: Vec<u8>,
    /// The property flags, then the encoded properties.
    pub(crate) properties: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl RawClient {
    pub(crate) async fn connect(amqp_url: &str) -> Self {
        let uri: AMQPUri = amqp_url.parse().unwrap();
        let user = &uri.authority.userinfo;
        let stream =
            TcpStream::connect((uri.authority.host.as_str(), uri.authority.port)).await.unwrap();
        let mut client = Self { stream };
        client.stream.write_all(b"AMQP\0\0\x09\x01").await.unwrap();
        client.receive(START).await;
        let login = format!("\0{}\0{}", user.username, user.password);
        // Without client properties.
        client
            .send(
                0,
                START_OK,
                &[&[0; 4][..], &short(b"PLAIN"), &long(login.as_bytes()), &short(b"en_US")]
                    .concat(),
            )
            .await;
        let mut limits = client.receive(TUNE).await;
        // No heartbeats.
        limits[6..8].fill(0);
        client.send(0, TUNE_OK, &limits).await;
        client.send(0, OPEN, &[&short(uri.vhost.as_bytes())[..], &[0, 0]].concat()).await;
        client.receive(OPEN_OK).await;
        client.send(1, CHANNEL_OPEN, &[0]).await;
        client.receive(CHANNEL_OPEN_OK).await;
        // Publisher confirms.
        client.send(1, CONFIRM, &[0]).await;
        client.receive(CONFIRM_OK).await;
        client
    }

    /// Publishes a message, and waits for its confirm.
    pub(crate) async fn publish(&mut self, exchange: &str, message: &RawMessage) {
        let address =
            [&[0, 0][..], &short(exchange.as_bytes()), &short(&message.routing_key), &[0]].concat();
        self.send(1, PUBLISH, &address).await;
        let size = u64::try_from(message.body.len()).unwrap().to_be_bytes();
        self.frame(HEADER, 1, &[&[0, 60, 0, 0][..], &size, &message.properties].concat()).await;
        self.frame(BODY, 1, &message.body).await;
        self.receive(ACK).await;
    }

    /// Removes the message at the head of the queue. There has to be one.
    pub(crate) async fn get(&mut self, queue: &str) -> RawMessage {
        self.fetch(queue, NO_ACK).await
    }

    /// The message at the head of the queue, which the broker then takes back. There has to be one.
    pub(crate) async fn look(mut self, queue: &str) -> RawMessage {
        let message = self.fetch(queue, 0).await;
        self.close().await;
        message
    }

    /// Has the broker dead-letter the message at the head of the queue. There has to be one.
    pub(crate) async fn reject(mut self, queue: &str) {
        self.fetch(queue, 0).await;
        // The channel's first delivery, which is not requeued.
        self.send(1, REJECT, &[0, 0, 0, 0, 0, 0, 0, 1, 0]).await;
        self.close().await;
    }

    /// Closes the channel. The broker has then received all that was sent on it.
    async fn close(&mut self) {
        self.send(1, CHANNEL_CLOSE, &[0, 200, 0, 0, 0, 0, 0]).await;
        self.receive(CHANNEL_CLOSE_OK).await;
    }

    async fn fetch(&mut self, queue: &str, no_ack: u8) -> RawMessage {
        self.send(1, GET, &[&[0, 0][..], &short(queue.as_bytes()), &[no_ack]].concat()).await;
        let address = self.receive(GET_OK).await;
        // After the delivery tag (8 bytes), the redelivered flag (1) and the exchange.
        let after_exchange = &address[10 + usize::from(address[9])..];
        let routing_key = after_exchange[1..=usize::from(after_exchange[0])].to_vec();
        let header = self.payload().await;
        // The size of the body follows the class and the weight.
        let (size, properties) = header[4..].split_first_chunk().unwrap();
        let (size, mut body) = (u64::from_be_bytes(*size) as usize, Vec::new());
        while body.len() < size {
            body.extend(self.payload().await);
        }
        RawMessage { routing_key, properties: properties.to_vec(), body }
    }

    async fn frame(&mut self, kind: u8, channel: u16, payload: &[u8]) {
        let frame = [&[kind][..], &channel.to_be_bytes(), &long(payload), &[0xCE]].concat();
        self.stream.write_all(&frame).await.unwrap();
    }

    async fn send(&mut self, channel: u16, [class, method]: Method, arguments: &[u8]) {
        self.frame(METHOD, channel, &[&[0, class, 0, method][..], arguments].concat()).await;
    }

    /// The arguments of this method, which the broker sends next.
    async fn receive(&mut self, method: Method) -> Vec<u8> {
        let mut payload = self.payload().await;
        assert_eq!([payload[1], payload[3]], method, "{}", String::from_utf8_lossy(&payload));
        payload.split_off(4)
    }

    /// The payload of the next frame.
    async fn payload(&mut self) -> Vec<u8> {
        let mut head = [0; 7];
        self.stream.read_exact(&mut head).await.unwrap();
        let [_, _, _, a, b, c, d] = head;
        let mut payload = vec![0; u32::from_be_bytes([a, b, c, d]) as usize + 1];
        self.stream.read_exact(&mut payload).await.unwrap();
        payload.pop();
        payload
    }
}

/// The flag of a `get` whose message is gone once it is sent.
const NO_ACK: u8 = 1;

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;

/// A method: its class, and its number in there.
type Method = [u8; 2];

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
const GET: Method = [60, 70];
const GET_OK: Method = [60, 71];
const ACK: Method = [60, 80];
const REJECT: Method = [60, 90];
const CONFIRM: Method = [85, 10];
const CONFIRM_OK: Method = [85, 11];

/// A short string.
pub(crate) fn short(text: &[u8]) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()][..], text].concat()
}

/// A long string, or a table's content.
pub(crate) fn long(text: &[u8]) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text].concat()
}
