//! What becomes of a message when its endpoint misbehaves: the rows of `deploy/endpoint.md`.

use std::collections::BTreeMap;

use rehop_testing::{Port, eventually};

use super::endpoint::{Arrived, Endpoint, class, status};
use super::hostile::{Connection, Hostile, OK};
use super::monitoring::get;
use super::process::{Tool, variables};
use crate::support::{Fixture, Log, SOON, failures, millis};

const PAGE: &str = include_str!("../../deploy/endpoint.md");

/// A row of the page, for each of its cases.
pub(crate) const NO_CONNECTION: &str =
    "a connection is refused, its TLS fails, or the name does not resolve: an attempt is used up";

#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    Waits,
    Closes,
}

/// What an endpoint does, what it sends, and what it does with the connection then.
type Row = (&'static str, Vec<u8>, Then);

/// A 200 with these headers.
fn ok_with(headers: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{headers}content-length: 0\r\n\r\n").into_bytes()
}

fn handled() -> Vec<Row> {
    let many: String = (0..1000).map(|number| format!("x-{number}: y\r\n")).collect();
    let chunked =
        |body: &str| format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{body}");
    vec![
        (
            "ends lines with LF alone",
            b"HTTP/1.1 200 OK\nx: y\ncontent-length: 0\n\n".to_vec(),
            Then::Waits,
        ),
        ("folds a header, as HTTP once allowed", ok_with("x: y\r\n  z\r\n"), Then::Waits),
        (
            "has a Latin-1 reason phrase, or none",
            b"HTTP/1.1 200 Cr\xe9\xe9\r\ncontent-length: 0\r\n\r\n".to_vec(),
            Then::Waits,
        ),
        (
            "has a Latin-1 reason phrase, or none",
            b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n".to_vec(),
            Then::Waits,
        ),
        ("sends 1000 headers", ok_with(&many), Then::Waits),
        (
            "sends lines that are no headers, and spaces before colons",
            ok_with("no header\r\n: x\r\na b: c\r\nd\u{e9}: e\r\nx : y\r\n"),
            Then::Waits,
        ),
        (
            "speaks HTTP/1.0 and ends its answer by closing",
            b"HTTP/1.0 200 OK\r\n\r\nbody".to_vec(),
            Then::Closes,
        ),
        (
            "sends 100 and 103 before its answer",
            [
                b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n",
                OK.as_bytes(),
            ]
            .concat(),
            Then::Waits,
        ),
        ("sends trailers", chunked("1\r\nx\r\n0\r\nx: y\r\n\r\n").into_bytes(), Then::Waits),
        ("sends chunks that are none", chunked("nonsense\r\n").into_bytes(), Then::Waits),
        (
            "sends a body that is shorter than it said",
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx".to_vec(),
            Then::Closes,
        ),
        (
            "sends a huge or endless body",
            [b"HTTP/1.1 200 OK\r\n\r\n", vec![b'x'; 1 << 20].as_slice()].concat(),
            Then::Waits,
        ),
        (
            "sends a status and then no body for long",
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n".to_vec(),
            Then::Waits,
        ),
    ]
}

/// With the class of the failure.
fn tried_again() -> Vec<(Row, &'static str)> {
    let huge = ok_with(&format!("x: {}\r\n", "y".repeat(1 << 19)));
    let too_many =
        |headers| format!("HTTP/1.1 429 x\r\n{headers}content-length: 0\r\n\r\n").into_bytes();
    let fraction = b"HTTP/1.1 503 x\r\nretry-after: 1.5\r\ncontent-length: 0\r\n\r\n".to_vec();
    let huge_failure = [b"HTTP/1.1 500 x\r\n\r\n", vec![b'x'; 1 << 20].as_slice()].concat();
    let slow_failure = b"HTTP/1.1 500 x\r\ncontent-length: 9\r\n\r\n".to_vec();
    let unavailable = b"HTTP/1.1 503 x\r\ncontent-length: 0\r\n\r\n".to_vec();
    vec![
        (
            (
                "sends two lengths",
                b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\ncontent-length: 1\r\n\r\n".to_vec(),
                Then::Waits,
            ),
            "http_unreadable",
        ),
        (
            (
                "sends a length that is no number",
                b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n".to_vec(),
                Then::Waits,
            ),
            "http_unreadable",
        ),
        (("sends headers of half a megabyte", huge, Then::Waits), "http_unreadable"),
        (
            ("does not speak HTTP", b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), Then::Waits),
            "http_unreadable",
        ),
        (("closes the connection without an answer", Vec::new(), Then::Closes), "http_connection"),
        (
            (
                "closes the connection within its headers",
                b"HTTP/1.1 200 OK\r\nx".to_vec(),
                Then::Closes,
            ),
            "http_connection",
        ),
        (("answers 500 with a huge or endless body", huge_failure, Then::Waits), "http_500"),
        (("answers 500 and then sends no body for long", slow_failure, Then::Waits), "http_500"),
        (("answers 503 without Retry-After", unavailable, Then::Waits), "http_503"),
        (("answers 429 without Retry-After", too_many(""), Then::Waits), "http_429"),
        (
            ("sends a `Retry-After` of nonsense, or a fraction: ignored", fraction, Then::Waits),
            "http_503",
        ),
        (
            (
                "sends a `Retry-After` of less than zero: ignored",
                too_many("retry-after: -1\r\n"),
                Then::Waits,
            ),
            "http_429",
        ),
    ]
}

fn parked() -> Vec<(Row, &'static str)> {
    let status = |line: &str| format!("HTTP/1.1 {line}\r\ncontent-length: 0\r\n\r\n").into_bytes();
    vec![
        (
            (
                "switches protocols",
                b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"
                    .to_vec(),
                Then::Waits,
            ),
            "http_101",
        ),
        (
            (
                "redirects with 307: not followed",
                status("307 x\r\nlocation: /elsewhere"),
                Then::Waits,
            ),
            "http_307",
        ),
        (
            (
                "redirects with 303, or another 3xx: not followed",
                status("303 x\r\nlocation: /elsewhere"),
                Then::Waits,
            ),
            "http_303",
        ),
        (("answers with an unknown status", status("999 x"), Then::Waits), "http_999"),
    ]
}

/// Each message says which of the rows answers it.
async fn serve(mut connection: Connection, rows: Vec<Row>) {
    while let Some(asked) = connection.asked().await {
        let (_, answer, then) = &rows[asked.body.parse::<usize>().unwrap()];
        connection.say(answer).await;
        if *then == Then::Closes {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_says_what_becomes_of_a_message_for_each_answer() {
    let mut fixture = Fixture::new("answers").await;
    fixture.settings.retry.delays = millis([]);
    let (handled, tried_again, parked) = (handled(), tried_again(), parked());
    let not_handled = tried_again.iter().chain(&parked).map(|(row, _)| row);
    let rows: Vec<Row> = handled.iter().chain(not_handled).cloned().collect();
    let served = rows.clone();
    let endpoint = Hostile::start(move |connection| serve(connection, served.clone())).await;
    let relay = fixture.relay(&endpoint.url, &["--timeout", "2m"]).await;
    fixture
        .client
        .publish_many((0..rows.len()).map(|row| fixture.to_queue().body(row.to_string())))
        .await
        .unwrap();
    let came = fixture.drain_parked(tried_again.len() + parked.len()).await;
    let stopped = relay.stop().await;
    let count = format!("stopped cleanly: handled {},", handled.len());
    assert!(stopped.out.starts_with(&count), "{}", stopped.out);
    let came: BTreeMap<usize, _> = came
        .iter()
        .map(|it| {
            let reason = it.headers["rehop-reason"].as_str().unwrap().to_owned();
            (it.text().parse().unwrap(), (class(it), reason))
        })
        .collect();
    let expect = |rows: &[(Row, &str)], reason: &str| {
        rows.iter().map(|(_, class)| ((*class).to_owned(), reason.to_owned())).collect::<Vec<_>>()
    };
    let expected = [expect(&tried_again, "exhausted"), expect(&parked, "permanent")].concat();
    assert_eq!(came, (handled.len()..).zip(expected).collect());
    for (what, ..) in &handled {
        is_on_the_page(what, "handled", "");
    }
    for (becomes, rows) in [("tried again", &tried_again), ("parked", &parked)] {
        rows.iter().for_each(|((what, ..), class)| is_on_the_page(what, becomes, class));
    }
}

#[track_caller]
pub(crate) fn is_on_the_page(what: &str, becomes: &str, class: &str) {
    let class = if class.is_empty() { String::new() } else { format!("`{class}` ") };
    let row = format!("| {what} | {becomes} | {class}|");
    assert!(PAGE.contains(&row), "the page lacks {row}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_after_that_is_too_long_parks_the_message() {
    let fixture = Fixture::new("long").await;
    let answer = "HTTP/1.1 503 x\r\nretry-after: 99999999999\r\ncontent-length: 0\r\n\r\n";
    let endpoint = Hostile::answering(answer).await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    fixture.publish("").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    assert_eq!(class(&parked), "http_503");
    assert_eq!(parked.headers["rehop-reason"], "delay_too_long");
    is_on_the_page("sends a `Retry-After` that is too long for `[retry]`", "parked", "http_503");
    relay.stop().await;
}

/// The endpoint answers at once, and reads the body only then.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_before_the_body_is_read_counts() {
    let fixture = Fixture::new("early").await;
    let endpoint = Hostile::start(|mut connection| async move {
        if connection.head().await.is_some() {
            connection
                .say("HTTP/1.1 413 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                .await;
            connection.reads_all().await;
        }
    })
    .await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    fixture.client.publish(fixture.to_queue().body(vec![b'x'; 8 << 20])).await.unwrap();
    assert_eq!(class(&fixture.drain_parked(1).await[0]), "http_413");
    is_on_the_page("answers 413 before it has read the body", "parked", "http_413");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_put_into_the_trace_context_does_not_fail_a_message() {
    let fixture = Fixture::new("baggage").await;
    let endpoint = Hostile::start(|mut connection| async move {
        while let Some(asked) = connection.asked().await {
            let is_large = asked.header("baggage").is_some_and(|baggage| baggage.len() > 4096);
            let answer = "HTTP/1.1 431 x\r\ncontent-length: 0\r\n\r\n";
            connection.say(if is_large { answer } else { OK }).await;
        }
    })
    .await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    let many: Vec<_> = (0..100).map(|member| format!("k{}=%20/{member}", member % 90)).collect();
    let (many, large) = (many.join(","), format!("k={}", "x.-/".repeat(2000)));
    for baggage in [many.as_str(), large.as_str()] {
        fixture.client.publish(fixture.to_queue().header("baggage", baggage)).await.unwrap();
        endpoint.is_asked(1).await;
    }
    let asked = endpoint.is_asked(3).await;
    let mut seen: Vec<_> = asked
        .iter()
        .map(|it| (it.header("rehop-attempt").unwrap(), it.header("baggage")))
        .collect();
    seen.sort_by_key(|(_, baggage)| baggage.map_or(0, str::len));
    assert_eq!(seen, [("1", None), ("1", Some(many.as_str())), ("1", Some(large.as_str()))]);
    let what = "answers 431: sent once more without baggage, in the same attempt";
    is_on_the_page(what, "handled", "");
    let stopped = relay.stop().await;
    assert!(stopped.out.starts_with("stopped cleanly: handled 2, requeued 0"), "{}", stopped.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trace_state_of_others_reaches_the_endpoint_byte_for_byte() {
    let fixture = Fixture::new("tracestate").await;
    let endpoint = Hostile::answering(OK).await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    let printable = (b'!'..=b'~').map(char::from).filter(|it| !",=".contains(*it));
    let state = format!("a/b_c-d*@e={},t0@x=a b%20%,z=", printable.collect::<String>());
    let message = fixture
        .to_queue()
        .header("tracestate", state.as_str())
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    fixture.client.publish(message).await.unwrap();
    let asked = endpoint.is_asked(1).await.remove(0);
    assert_eq!(asked.header("tracestate"), Some(state.as_str()));
    let parent = asked.header("traceparent").unwrap();
    assert!(parent.starts_with("00-0af7651916cd43dd8448eb211c80319c-"), "{parent}");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_endless_body_of_a_failure_only_the_beginning_is_read() {
    let mut fixture = Fixture::new("endless").await;
    fixture.settings.retry.delays = millis([]);
    let said = Log::default();
    let log = said.clone();
    let endpoint = Hostile::start(move |mut connection| {
        let log = log.clone();
        async move {
            connection.asked().await;
            connection.say("HTTP/1.1 500 x\r\n\r\n").await;
            log.push(connection.say_endlessly(&[b'x'; 1 << 14]).await);
        }
    })
    .await;
    let relay = fixture.relay(&endpoint.url, &["--error-body", "60", "--timeout", "2m"]).await;
    fixture.publish("").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    assert_eq!(class(&parked), "http_500");
    let error = failures(&parked)[0]["message"].as_str().unwrap().to_owned();
    let read = format!("the endpoint answered 500 Internal Server Error: {}…", "x".repeat(60));
    assert_eq!(error, read);
    // Most of it is in the buffers of both sockets.
    const BUFFERS: usize = 32 << 20;
    let said = said.reaches(1).await[0];
    assert!(said < BUFFERS, "{said}");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_answer_says_why() {
    let mut fixture = Fixture::new("unreadable").await;
    fixture.settings.retry.delays = millis([]);
    let endpoint = Hostile::answering("HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n").await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    fixture.publish("").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    let errors = parked.headers["rehop-errors"].as_str().unwrap();
    let said = "the endpoint's answer cannot be read: invalid content-length parsed";
    assert!(errors.contains(said), "{errors}");
    relay.stop().await;
}

const PROBLEM: &str =
    r#"{"title": "Out of stock", "detail": "item 7 is sold out", "card": "hunter4111"}"#;
/// What of it nobody asks for. Times and ports in a log may be any digits.
const SECRET: &str = "hunter";

/// The text of a parked message's error, after an answer with this body. Nothing that the relay
/// outputs has the secret.
async fn error_after(content_type: &str, body: &str, options: &[&str]) -> String {
    let fixture = Fixture::new("problem").await;
    let endpoint = Hostile::answering(format!(
        "HTTP/1.1 422 x\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))
    .await;
    let collector = Endpoint::start(|_| async { status(200) }).await;
    let mut environment = variables(&fixture.settings);
    environment.push(("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), collector.url.clone()));
    let port = Port::claim().unwrap();
    let address = port.address().to_string();
    let to = ["--to", &endpoint.url, "-vv", "--listen", &address];
    let arguments = [&["relay", "--queue", &fixture.queue][..], &to, options].concat();
    let relay = Tool::start(&arguments, environment);
    relay.consumes().await;
    fixture.publish("").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    let exported = async || match &collector.arrived()[..] {
        all if all.iter().any(is_of_the_attempt) => Ok(true),
        all => Err(format!("{:?}", all.iter().map(|it| &it.path).collect::<Vec<_>>())),
    };
    eventually(SOON, "the attempt's span is exported", exported).await.unwrap();
    let (answered, metrics) = get(&address, "/metrics").await.unwrap();
    assert_eq!(answered, 200, "{metrics}");
    let stopped = relay.stop().await;
    let errors = failures(&parked);
    let error = errors[0]["message"].as_str().unwrap().to_owned();
    assert!(stopped.err.contains("answered 422"), "{}", stopped.err);
    let mut said = format!("{}{}{:?}{metrics}", stopped.out, stopped.err, parked.headers);
    said.extend(collector.arrived().iter().map(Arrived::text));
    assert!(!said.contains(SECRET), "{options:?}: {said}");
    error
}

/// Whether it has the span of an attempt that the endpoint refused. OTLP carries texts as they are.
fn is_of_the_attempt(sent: &Arrived) -> bool {
    sent.path.ends_with("/v1/traces") && sent.text().contains("http_422")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_says_what_the_problem_was_and_no_more_than_was_asked_for() {
    let status = "the endpoint answered 422 Unprocessable Entity";
    let problem = format!("{status}: Out of stock: item 7 is sold out");
    assert_eq!(error_after("application/problem+json", PROBLEM, &[]).await, problem);
    assert_eq!(error_after("application/json", PROBLEM, &[]).await, status);
    let options = ["--error-body", "60", "--set", r#"mask.json=["**.card"]"#];
    let said = error_after("application/json", PROBLEM, &options).await;
    assert!(said.starts_with(&format!("{status}: ")), "{said}");
    assert!(said.contains("***") && said.contains("sold out") && !said.contains(SECRET), "{said}");
    assert!(said.len() <= status.len() + ": ".len() + 60 + "…".len(), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn properties_and_chosen_headers_reach_the_endpoint() {
    let fixture = Fixture::new("properties").await;
    let endpoint = Hostile::answering(OK).await;
    let relay = fixture.relay(&endpoint.url, &["--header", "tenant,shop-*"]).await;
    let message = fixture.to_queue().header("Tenant", "a b").header("shop-id", 7);
    let message = message.header("other", "x").properties(|it| {
        it.reply_to = Some("answers".to_owned());
        it.kind = Some("order.placed".to_owned());
        it.correlation_id = Some("c 1".to_owned());
        it.app_id = Some("shop".to_owned());
        it.user_id = Some("guest".to_owned());
    });
    fixture.client.publish(message).await.unwrap();
    let asked = endpoint.is_asked(1).await.remove(0);
    for (name, value) in [
        ("rehop-reply-to", Some("answers")),
        ("rehop-type", Some("order.placed")),
        ("rehop-correlation-id", Some("c%201")),
        ("rehop-app-id", Some("shop")),
        ("rehop-user-id", Some("guest")),
        ("rehop-header-tenant", Some("a%20b")),
        ("rehop-header-shop-id", Some("7")),
        ("rehop-header-other", None),
    ] {
        assert_eq!(asked.header(name), value, "{name}");
    }
    relay.stop().await;
}
