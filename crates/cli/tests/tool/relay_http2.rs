//! Endpoints that fail in the ways of HTTP/2, frame by frame: the rows of `deploy/endpoint.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::server::TlsStream;

use super::endpoint::class;
use super::hostile;
use super::relay_answers::is_on_the_page;
use super::relay_tls::{Https, relay, tls};
use crate::support::{Fixture, Log, millis};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;
const HTTP_1_1_REQUIRED: u32 = 13;

/// `:status: 200` in HPACK.
const STATUS_200: u8 = 0x88;

/// A request that was read.
#[derive(Debug, Clone, PartialEq)]
struct Asked {
    connection: usize,
    stream: u32,
    body: String,
}

/// On which connection each request came, and its body.
fn where_asked(asked: &[Asked]) -> Vec<(usize, &str)> {
    asked.iter().map(|it| (it.connection, it.body.as_str())).collect()
}

struct Server {
    url: String,
    authority: String,
    asked: Log<Asked>,
}

impl Server {
    async fn start<F, R>(serve: F) -> Self
    where
        F: Fn(Frames) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let (tls, authority) = tls(&["h2"], 2100);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
        let asked = Log::default();
        let log = asked.clone();
        tokio::spawn(async move {
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                // A client may give up.
                let Ok(stream) = tls.accept(stream).await else { continue };
                let frames = Frames { number, stream, asked: log.clone() };
                tokio::spawn(serve(frames.started().await));
            }
        });
        Self { url, authority, asked }
    }
}

/// The server's side of one connection. It is closed when this is dropped.
struct Frames {
    number: usize,
    stream: TlsStream<TcpStream>,
    asked: Log<Asked>,
}

impl Frames {
    async fn started(mut self) -> Self {
        self.stream.read_exact(&mut [0; b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()]).await.unwrap();
        self.say(SETTINGS, 0, 0, &[]).await;
        self
    }

    /// The kind, the flags, the stream and the content of the next frame; `None` at the end.
    async fn frame(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let [_, length @ .., kind, flags, s1, s2, s3, s4] = head;
        let mut content = vec![0; u16::from_be_bytes(length).into()];
        self.stream.read_exact(&mut content).await.ok()?;
        Some((kind, flags, u32::from_be_bytes([s1, s2, s3, s4]), content))
    }

    /// Reads frames until a request is complete. Only bodies of one frame are understood.
    async fn asked(&mut self) -> Option<Asked> {
        loop {
            let (kind, flags, stream, content) = self.frame().await?;
            match kind {
                SETTINGS if flags & ACK == 0 => self.say(SETTINGS, ACK, 0, &[]).await,
                PING if flags & ACK == 0 => self.say(PING, ACK, 0, &content).await,
                DATA if flags & END_STREAM != 0 => {
                    let body = String::from_utf8(content).unwrap();
                    let asked = Asked { connection: self.number, stream, body };
                    self.asked.push(asked.clone());
                    return Some(asked);
                }
                _ => {}
            }
        }
    }

    /// The client may be gone already.
    async fn say(&mut self, kind: u8, flags: u8, stream: u32, content: &[u8]) {
        let length = u32::try_from(content.len()).unwrap().to_be_bytes();
        let frame = [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat();
        let _ = self.stream.write_all(&frame).await;
        let _ = self.stream.flush().await;
    }

    async fn ok(&mut self, stream: u32) {
        self.say(HEADERS, END_HEADERS | END_STREAM, stream, &[STATUS_200]).await;
    }

    async fn reset(&mut self, stream: u32, code: u32) {
        self.say(RST_STREAM, 0, stream, &code.to_be_bytes()).await;
    }

    /// Requests of later streams than `last` have not been processed.
    async fn go_away(&mut self, last: u32, code: u32) {
        self.say(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat()).await;
    }

    /// A 200 with one header, of this many bytes.
    async fn ok_with(&mut self, stream: u32, bytes: usize) {
        const FRAME: usize = 1 << 14;
        const LITERAL: u8 = 0;
        // HPACK writes what a prefix of 7 bits cannot hold in bytes of 7 bits, the lowest first.
        let mut block = vec![STATUS_200, LITERAL, 1, b'x', 0x7f];
        let mut rest = bytes - 0x7f;
        while rest >= 0x80 {
            block.push(u8::try_from(rest % 0x80).unwrap() | 0x80);
            rest /= 0x80;
        }
        block.push(u8::try_from(rest).unwrap());
        block.resize(block.len() + bytes, b'y');
        let (mut kind, mut flags) = (HEADERS, END_STREAM);
        let mut parts = block.chunks(FRAME).peekable();
        while let Some(part) = parts.next() {
            flags |= if parts.peek().is_none() { END_HEADERS } else { 0 };
            self.say(kind, flags, stream, part).await;
            (kind, flags) = (CONTINUATION, 0);
        }
    }
}

/// The URL of an endpoint that resets each request, and the authority of its certificate.
pub(crate) async fn resetting() -> (String, String) {
    let server = Server::start(|mut frames| async move {
        while let Some((_, flags, stream, _)) = frames.frame().await {
            if stream > 0 && flags & END_STREAM != 0 {
                frames.reset(stream, INTERNAL_ERROR).await;
            }
        }
    })
    .await;
    (server.url, server.authority)
}

/// A frame of a stream: its kind, its flags and what it says.
type Frame = (u8, u8, &'static [u8]);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Reply {
    Says(&'static [Frame]),
    Reset(u32),
    GoAway(u32),
    HugeHeaders,
    Closes,
}

/// What an endpoint does, how it replies to the first requests with a message before it answers
/// 200, what becomes of the message, and the class of the failure, if it fails.
type Row = (&'static str, &'static [Reply], &'static str, &'static str);

const HANDLED: &str = "handled";
const SENT_ONCE_MORE: &str = "sent once more: no attempt is used up";
const TRIED_AGAIN: &str = "tried again";

/// What the other tables of the page say.
const AS_OVER_HTTP_1: [Row; 4] = {
    use Reply::{HugeHeaders, Says};
    const BOTH: u8 = END_HEADERS | END_STREAM;
    const STATUS_103: &[u8] = &[8, 3, b'1', b'0', b'3'];
    const STATUS_100: &[u8] = &[8, 3, b'1', b'0', b'0'];
    const EARLY: [Frame; 3] = [
        (HEADERS, END_HEADERS, STATUS_100),
        (HEADERS, END_HEADERS, STATUS_103),
        (HEADERS, BOTH, &[STATUS_200]),
    ];
    const TRAILERS: [Frame; 3] = [
        (HEADERS, END_HEADERS, &[STATUS_200]),
        (DATA, 0, b"x"),
        (HEADERS, BOTH, &[0, 1, b'x', 1, b'y']),
    ];
    const SHORT: [Frame; 2] =
        [(HEADERS, END_HEADERS, &[STATUS_200, 0x0f, 0x0d, 1, b'9']), (DATA, END_STREAM, b"x")];
    [
        ("sends 100 and 103 before its answer", &[Says(&EARLY)], HANDLED, ""),
        ("sends trailers", &[Says(&TRAILERS)], HANDLED, ""),
        ("sends a body that is shorter than it said", &[Says(&SHORT)], HANDLED, ""),
        ("sends headers of half a megabyte", &[HugeHeaders], TRIED_AGAIN, "http_unreadable"),
    ]
};

const OF_HTTP_2: [Row; 15] = {
    use Reply::{GoAway, Reset, Says};
    const UNPROCESSED: &str = "says with GOAWAY that it has not processed the request";
    const REFUSED: &str = "refuses the request with REFUSED_STREAM";
    const TWICE: &str = "does any of these again when the request is sent once more";
    const RESET: &str = "resets the request with any other code, such as INTERNAL_ERROR or CANCEL";
    const NO_HEADER: &str = "sends a header that HTTP/2 forbids, such as `connection`, or one with capitals in its name";
    const CONNECTION: &str = "http_connection";
    const UNREADABLE: &str = "http_unreadable";
    const BOTH: u8 = END_HEADERS | END_STREAM;
    const GARBAGE: Frame = (HEADERS, BOTH, &[0xff; 20]);
    const FORBIDDEN: Frame = (HEADERS, BOTH, b"\x88\0\x0aconnection\x05close");
    const CAPITAL: Frame = (HEADERS, BOTH, b"\x88\0\x01X\x01y");
    const NO_BODY: Frame = (HEADERS, BOTH, &[STATUS_200, 0x0f, 0x0d, 1, b'9']);
    [
        (UNPROCESSED, &[GoAway(NO_ERROR)], SENT_ONCE_MORE, ""),
        (UNPROCESSED, &[GoAway(ENHANCE_YOUR_CALM)], SENT_ONCE_MORE, ""),
        (REFUSED, &[Reset(REFUSED_STREAM)], SENT_ONCE_MORE, ""),
        (TWICE, &[Reset(REFUSED_STREAM), Reset(REFUSED_STREAM)], TRIED_AGAIN, CONNECTION),
        (TWICE, &[GoAway(NO_ERROR), Reset(REFUSED_STREAM)], TRIED_AGAIN, CONNECTION),
        (TWICE, &[GoAway(NO_ERROR), GoAway(NO_ERROR)], TRIED_AGAIN, CONNECTION),
        (RESET, &[Reset(INTERNAL_ERROR)], TRIED_AGAIN, CONNECTION),
        (RESET, &[Reset(CANCEL)], TRIED_AGAIN, CONNECTION),
        (RESET, &[Reset(NO_ERROR)], TRIED_AGAIN, CONNECTION),
        (RESET, &[Reset(ENHANCE_YOUR_CALM)], TRIED_AGAIN, CONNECTION),
        (RESET, &[Reset(HTTP_1_1_REQUIRED)], TRIED_AGAIN, CONNECTION),
        ("sends headers that cannot be decoded", &[Says(&[GARBAGE])], TRIED_AGAIN, UNREADABLE),
        (NO_HEADER, &[Says(&[FORBIDDEN])], TRIED_AGAIN, UNREADABLE),
        (NO_HEADER, &[Says(&[CAPITAL])], TRIED_AGAIN, UNREADABLE),
        (
            "sends a content-length above 0, and ends the answer without a body",
            &[Says(&[NO_BODY])],
            TRIED_AGAIN,
            UNREADABLE,
        ),
    ]
};

/// Each message says which of the rows answers it.
async fn serve(mut frames: Frames, rows: Vec<Row>) {
    while let Some(asked) = frames.asked().await {
        let seen = frames.asked.all().iter().filter(|it| it.body == asked.body).count();
        let (_, replies, ..) = rows[asked.body.parse::<usize>().unwrap()];
        match replies.get(seen - 1) {
            None => frames.ok(asked.stream).await,
            Some(Reply::Reset(code)) => frames.reset(asked.stream, *code).await,
            Some(Reply::GoAway(code)) => {
                frames.go_away(asked.stream.saturating_sub(2), *code).await;
            }
            Some(Reply::HugeHeaders) => frames.ok_with(asked.stream, 1 << 19).await,
            Some(Reply::Says(all)) => {
                for (kind, flags, content) in *all {
                    frames.say(*kind, *flags, asked.stream, content).await;
                }
            }
            Some(Reply::Closes) => return,
        }
    }
}

/// Tries these rows one after the other, with a policy of one attempt.
async fn tries(rows: &[Row], options: &[&str]) {
    let mut fixture = Fixture::new("http2").await;
    fixture.settings.retry.delays = millis([]);
    let served = rows.to_vec();
    let server = Server::start(move |frames| serve(frames, served.clone())).await;
    let options = [&["--concurrency", "1", "--timeout", "2m"], options].concat();
    let relay = relay(&fixture, &server.url, &server.authority, &options).await;
    let messages = (0..rows.len()).map(|row| fixture.to_queue().body(row.to_string()));
    fixture.client.publish_many(messages).await.unwrap();
    let expected: BTreeMap<_, _> = (0..)
        .zip(rows)
        .filter(|(_, (.., becomes, _))| *becomes == TRIED_AGAIN)
        .map(|(row, (.., class))| (row, (*class).to_owned()))
        .collect();
    let parked = fixture.drain_parked(expected.len()).await;
    let came: BTreeMap<usize, _> =
        parked.iter().map(|it| (it.text().parse().unwrap(), class(it))).collect();
    assert_eq!(came, expected);
    let stopped = relay.stop().await;
    let count = format!("stopped cleanly: handled {},", rows.len() - expected.len());
    assert!(stopped.out.starts_with(&count), "{}", stopped.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_says_what_becomes_of_a_message_for_each_failure_of_http_2() {
    let rows = [&AS_OVER_HTTP_1[..], &OF_HTTP_2].concat();
    for (what, _, becomes, class) in &rows {
        is_on_the_page(what, becomes, class);
    }
    // A connection that has answered, and then only new ones.
    let answers: Row = ("answers", &[], HANDLED, "");
    let reused: Row = ("closes a reused connection", &[Reply::Closes], SENT_ONCE_MORE, "");
    // Each of the two reasons has its own second request.
    const REFUSED: [Reply; 2] = [Reply::Closes, Reply::Reset(REFUSED_STREAM)];
    const UNPROCESSED: [Reply; 2] = [Reply::Closes, Reply::GoAway(NO_ERROR)];
    let both: [Row; 2] = [
        ("closes a reused connection, and then refuses", &REFUSED, SENT_ONCE_MORE, ""),
        ("closes a reused connection, and then sends GOAWAY", &UNPROCESSED, SENT_ONCE_MORE, ""),
    ];
    tries(&[&[answers, reused], &both[..], &rows[..]].concat(), &[]).await;
    let new: Row = ("closes a new connection", &[Reply::Closes], TRIED_AGAIN, "http_connection");
    tries(&[&[new], &rows[..]].concat(), &["--idle-timeout", "0s"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_a_goaway_does_not_cover_is_sent_on_a_new_connection_and_the_other_is_answered()
 {
    let mut fixture = Fixture::new("goaway").await;
    fixture.settings.retry.delays = millis([]);
    let server = Server::start(|mut frames| async move {
        while let Some(first) = frames.asked().await {
            if frames.number == 0 {
                let second = frames.asked().await.unwrap();
                assert!(second.stream > first.stream);
                frames.go_away(first.stream, NO_ERROR).await;
            }
            frames.ok(first.stream).await;
        }
    })
    .await;
    let options = ["--concurrency", "2"];
    let relay = relay(&fixture, &server.url, &server.authority, &options).await;
    fixture.publish("a").await;
    server.asked.reaches(1).await;
    fixture.publish("b").await;
    let asked = server.asked.reaches(3).await;
    assert_eq!(where_asked(&asked), [(0, "a"), (0, "b"), (1, "b")]);
    let stopped = relay.stop().await;
    assert!(stopped.out.contains("handled 2, requeued 0, waited 0, parked 0"), "{}", stopped.out);
}

/// The client keeps a request to itself while its connection has as many streams as the endpoint
/// allows.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_for_a_stream_when_a_goaway_comes_uses_up_no_attempt() {
    const ONE_STREAM: [u8; 6] = [0, 3, 0, 0, 0, 1];
    let what = "sends GOAWAY while the request waits for a stream, of which it allows few";
    is_on_the_page(what, SENT_ONCE_MORE, "");
    let mut fixture = Fixture::new("no-stream").await;
    fixture.settings.retry.delays = millis([]);
    let is_waiting = Arc::new(Notify::new());
    let waits = is_waiting.clone();
    let server = Server::start(move |mut frames| {
        let waits = waits.clone();
        async move {
            if frames.number == 0 {
                frames.say(SETTINGS, 0, 0, &ONE_STREAM).await;
            }
            while let Some(asked) = frames.asked().await {
                if frames.number == 0 {
                    // The client answers this after it has read the settings.
                    frames.say(PING, 0, 0, &[0; 8]).await;
                    while !matches!(frames.frame().await.unwrap(), (PING, ACK, ..)) {}
                    waits.notified().await;
                    frames.go_away(asked.stream, NO_ERROR).await;
                    // A connection that has answered before would be a reason of its own.
                    waits.notified().await;
                }
                frames.ok(asked.stream).await;
            }
        }
    })
    .await;
    let options = ["--concurrency", "2"];
    let relay = relay(&fixture, &server.url, &server.authority, &options).await;
    fixture.publish("a").await;
    server.asked.reaches(1).await;
    fixture.publish("b").await;
    // It has been delivered, and may wait for a stream. If it does not yet, it is not sent either.
    fixture.has_depth(&fixture.queue, 0).await;
    is_waiting.notify_one();
    let asked = server.asked.reaches(2).await;
    assert_eq!(where_asked(&asked), [(0, "a"), (1, "b")]);
    is_waiting.notify_one();
    let stopped = relay.stop().await;
    assert!(stopped.out.contains("handled 2, requeued 0, waited 0, parked 0"), "{}", stopped.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_on_which_a_request_was_reset_is_used_again() {
    for code in [REFUSED_STREAM, INTERNAL_ERROR] {
        let mut fixture = Fixture::new("stream").await;
        fixture.settings.retry.delays = millis([100]);
        let server = Server::start(move |mut frames| async move {
            frames.asked().await;
            frames.ok(1).await;
            frames.asked().await;
            frames.reset(3, code).await;
            while let Some(asked) = frames.asked().await {
                frames.ok(asked.stream).await;
            }
        })
        .await;
        let options = ["--idle-timeout", "10m"];
        let relay = relay(&fixture, &server.url, &server.authority, &options).await;
        fixture.publish("a").await;
        server.asked.reaches(1).await;
        fixture.publish("b").await;
        let asked = server.asked.reaches(3).await;
        assert_eq!(asked.iter().map(|it| it.connection).collect::<Vec<_>>(), [0; 3], "{code}");
        relay.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_request_that_was_acknowledged_and_not_answered_the_next_one_has_a_new_connection()
{
    let mut fixture = Fixture::new("silent-http2").await;
    fixture.settings.retry.delays = millis([100; 9]);
    let server = Server::start(|mut frames| async move {
        while let Some(asked) = frames.asked().await {
            if frames.number > 0 || asked.body == "a" {
                frames.ok(asked.stream).await;
            }
        }
    })
    .await;
    let options = ["--idle-timeout", "10m", "--timeout", "10s"];
    let relay = relay(&fixture, &server.url, &server.authority, &options).await;
    fixture.publish("a").await;
    server.asked.reaches(1).await;
    fixture.publish("b").await;
    let asked = server.asked.reaches(3).await;
    assert_eq!(where_asked(&asked), [(0, "a"), (0, "b"), (1, "b")]);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_are_longer_than_an_endpoint_takes_over_http_2_are_sent_without_baggage() {
    let mut fixture = Fixture::new("long-headers").await;
    fixture.settings.retry.delays = millis([]);
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http2().max_header_list_size(4096);
    let server = Https::start_as(server, &["h2"], 2100).await;
    let options = ["--header", "long"];
    let relay = relay(&fixture, &server.url, &server.authority, &options).await;
    let long = "x".repeat(6000);
    let baggage = fixture.to_queue().header("baggage", format!("k={long}")).body("baggage");
    fixture.client.publish(baggage).await.unwrap();
    server.asked.reaches(1).await;
    let own = fixture.to_queue().header("long", long).body("own");
    fixture.client.publish(own).await.unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    assert_eq!((parked.text().as_str(), class(&parked).as_str()), ("own", "http_431"));
    let what = "answers 431: sent once more without baggage, in the same attempt";
    is_on_the_page(what, "handled", "");
    let stopped = relay.stop().await;
    assert!(stopped.out.contains("handled 1, requeued 0, waited 0, parked 1"), "{}", stopped.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_over_http_2_that_comes_before_the_body_is_read_counts() {
    let fixture = Fixture::new("early-http2").await;
    let server = Server::start(|mut frames| async move {
        while let Some((kind, _, stream, _)) = frames.frame().await {
            if kind == HEADERS {
                let status_413 = [8, 3, b'4', b'1', b'3'];
                frames.say(HEADERS, END_HEADERS | END_STREAM, stream, &status_413).await;
                frames.reset(stream, NO_ERROR).await;
            }
        }
    })
    .await;
    let relay = relay(&fixture, &server.url, &server.authority, &[]).await;
    fixture.client.publish(fixture.to_queue().body(vec![b'x'; 8 << 20])).await.unwrap();
    assert_eq!(class(&fixture.drain_parked(1).await[0]), "http_413");
    is_on_the_page("answers 413 before it has read the body", "parked", "http_413");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_over_http_2_that_a_firewall_forgot_costs_no_attempt() {
    let mut fixture = Fixture::new("forgotten").await;
    fixture.settings.retry.delays = millis([]);
    let forgotten = Log::default();
    let log = forgotten.clone();
    let server = Server::start(move |mut frames| {
        let log = log.clone();
        async move {
            while let Some(asked) = frames.asked().await {
                frames.ok(asked.stream).await;
                if frames.number == 0 {
                    hostile::forget(frames.stream.get_ref().0);
                    log.push(());
                }
            }
        }
    })
    .await;
    let options = ["--idle-timeout", "10m", "--timeout", "20s"];
    let relay = relay(&fixture, &server.url, &server.authority, &options).await;
    fixture.publish("a").await;
    forgotten.reaches(1).await;
    fixture.publish("b").await;
    let asked = server.asked.reaches(2).await;
    assert_eq!((asked[1].connection, asked[1].body.as_str()), (1, "b"));
    let stopped = relay.stop().await;
    assert!(stopped.out.contains("handled 2, requeued 0, waited 0, parked 0"), "{}", stopped.out);
}
