//! Each message ends where the endpoint's answer sends it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use rehop::testing::Publish;
use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::support::{Endpoint, Fixture, class, status, with};

#[tokio::test(flavor = "multi_thread")]
async fn each_status_ends_where_it_should_and_redirects_are_not_followed() {
    let fixture = Fixture::new("status").await.with("REHOP_RETRY__IMMEDIATE", "1");
    let endpoint = Endpoint::start(|arrived| async move {
        match arrived.text().parse().unwrap() {
            redirect @ 300..=399 => with(redirect, "location", "/elsewhere"),
            other => status(other),
        }
    })
    .await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    let handled = [200, 201, 202, 204];
    // Two attempts at first and two after each of the two waits.
    let tried_again = [408, 409, 423, 425, 429, 500, 503, 599];
    let never = [301, 302, 307, 308, 400, 401, 404, 410, 413, 422];
    let all: Vec<u16> = [&handled[..], &tried_again, &never].concat();
    fixture
        .client
        .publish_many(all.iter().map(|status| Publish::to_queue(&fixture.queue).body(status.to_string())))
        .await
        .unwrap();
    let parked = fixture.parked(tried_again.len() + never.len()).await;
    let ends: BTreeMap<u16, _> = parked
        .iter()
        .map(|parked| {
            let reason = parked.headers["rehop-reason"].as_str().unwrap().to_owned();
            (parked.text().parse().unwrap(), (reason, class(parked)))
        })
        .collect();
    let expected = |reason: &'static str| move |status: &u16| (*status, (reason.to_owned(), format!("http_{status}")));
    let expected = tried_again.iter().map(expected("exhausted")).chain(never.iter().map(expected("permanent")));
    assert_eq!(ends, expected.collect());
    let mut attempts: BTreeMap<u16, usize> = BTreeMap::new();
    for arrived in endpoint.arrived() {
        assert_eq!(arrived.path, "/orders");
        *attempts.entry(arrived.text().parse().unwrap()).or_default() += 1;
    }
    let expected = all.iter().map(|status| (*status, if tried_again.contains(status) { 6 } else { 1 }));
    assert_eq!(attempts, expected.collect());
    let stopped = relay.stop().await;
    assert!(
        stopped.out.starts_with("stopped in order: handled 4, requeued 24, waited 16, parked 18"),
        "{}",
        stopped.out
    );
    assert!(stopped.err.contains("at most 6 attempts per message by policy, and 33 deliveries"), "{}", stopped.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_is_honoured_and_never_early() {
    let fixture = Fixture::new("retry-after").await;
    let endpoint = Endpoint::start(|arrived| async move {
        let first = arrived.header("rehop-attempt") == Some("1");
        match arrived.text().as_str() {
            _ if !first => status(200),
            "seconds" => with(503, "retry-after", "1"),
            _ => with(429, "retry-after", &httpdate::fmt_http_date(arrived.date + Duration::from_secs(2))),
        }
    })
    .await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    for body in ["seconds", "date"] {
        fixture.publish(Publish::to_queue(&fixture.queue).body(body)).await;
    }
    let arrived = endpoint.receives(4).await;
    let of = |body: &str| arrived.iter().filter(|arrived| arrived.text() == body).collect::<Vec<_>>();
    let (seconds, date) = (of("seconds"), of("date"));
    assert_eq!((seconds.len(), date.len()), (2, 2));
    assert!(seconds[1].at - seconds[0].at >= Duration::from_secs(1), "{:?}", seconds[1].at - seconds[0].at);
    // A date has whole seconds, so the one that was given lies up to a second earlier.
    let whole = |date: SystemTime| httpdate::parse_http_date(&httpdate::fmt_http_date(date)).unwrap();
    assert!(date[1].date >= whole(date[0].date + Duration::from_secs(2)));
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_hangs_is_a_timeout_and_the_message_is_kept() {
    let fixture = Fixture::new("hangs").await;
    let endpoint = Endpoint::start(|_| std::future::pending()).await;
    let relay = fixture.relay(&endpoint.url, &["--timeout", "150ms"]).await;
    fixture.publish(Publish::to_queue(&fixture.queue).body("kept")).await;
    let parked = fixture.parked(1).await;
    assert_eq!((class(&parked[0]).as_str(), parked[0].text().as_str()), ("http_timeout", "kept"));
    assert_eq!(endpoint.arrived().len(), 3);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_refuses_connections_gets_the_message_when_it_is_back() {
    let fixture = Fixture::new("refuses").await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let to = format!("http://user:hunter2@127.0.0.1:{port}/orders?token=hunter3");
    let fixture = fixture.with("RELAY_TO", to);
    let relay = fixture.tool(&["relay", "--queue", &fixture.queue]);
    relay.logs("consuming queue=").await;
    fixture.publish(Publish::to_queue(&fixture.queue).body("hunter4")).await;
    let parked = fixture.parked(1).await;
    assert_eq!(class(&parked[0]), "http_connect");
    let stopped = relay.stop().await;
    assert!(stopped.err.contains(&format!("to http://***@127.0.0.1:{port}/orders?***")), "{}", stopped.err);
    let said = format!("{}{}{}", stopped.out, stopped.err, parked[0].headers["rehop-errors"]);
    assert!(said.contains("Connection refused") && !said.contains("hunter"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_ends_before_the_answer_is_tried_again() {
    let fixture = Fixture::new("reset").await.with("REHOP_RETRY__DELAYS", "[100ms]");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let _ = connection.read(&mut [0; 1024]).await;
        }
    });
    let relay = fixture.relay(&to, &[]).await;
    fixture.publish(Publish::to_queue(&fixture.queue).body("kept")).await;
    let parked = fixture.parked(1).await;
    assert_eq!((class(&parked[0]).as_str(), parked[0].text().as_str()), ("http_connection", "kept"));
    relay.stop().await;
    server.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_does_not_speak_tls_is_no_connection() {
    let fixture = Fixture::new("tls").await.with("REHOP_RETRY__DELAYS", "[]");
    let endpoint = Endpoint::start(|_| async { status(200) }).await;
    let relay = fixture.relay(&endpoint.url.replace("http://", "https://"), &[]).await;
    fixture.publish(Publish::to_queue(&fixture.queue)).await;
    assert_eq!(class(&fixture.parked(1).await[0]), "http_connect");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_endpoint_gets_what_is_known_of_the_message() {
    let exchange_of = |fixture: &Fixture| fixture.namespace.exchange("shop 100%");
    let fixture = Fixture::new("headers").await;
    let endpoint = Endpoint::start(|_| async { status(200) }).await;
    let to = endpoint.url.replace("http://", "http://user:pass@") + "?tenant=1";
    let relay = fixture.relay(&to, &[]).await;
    let (exchange, key) = (exchange_of(&fixture), "créé.a b\n%41");
    fixture.client.declare_exchange(&exchange, "direct", json!({})).await.unwrap();
    fixture.client.bind(&fixture.queue, &exchange, key, json!({})).await.unwrap();
    let message = Publish::to(&exchange, key).message_id("m-1").body("{}");
    let message = message
        .header("rehop-expires-at", 4_102_444_800_000_i64)
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let message = message.properties(|it| {
        it.content_type = Some("application/json; charset=utf-8".to_owned());
        it.content_encoding = Some("gz\nip".to_owned());
    });
    fixture.publish(message).await;
    let arrived = endpoint.receives(1).await.remove(0);
    for (name, value) in [
        ("rehop-queue", fixture.queue.as_str()),
        ("rehop-exchange", &exchange.replace('%', "%25").replace(' ', "%20")),
        ("rehop-routing-key", "cr%C3%A9%C3%A9.a%20b%0A%2541"),
        ("rehop-message-id", "m-1"),
        ("rehop-attempt", "1"),
        ("rehop-deadline", "4102444800000"),
        ("content-type", "application/json; charset=utf-8"),
        ("content-encoding", "gz%0Aip"),
        ("authorization", "Basic dXNlcjpwYXNz"),
        ("content-length", "2"),
    ] {
        assert_eq!(arrived.header(name), Some(value), "{name}");
    }
    assert!(arrived.header("traceparent").unwrap().starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
    assert_eq!(arrived.path, "/orders?tenant=1");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_arrive_byte_for_byte_also_after_a_wait() {
    let fixture = Fixture::new("bodies").await;
    let endpoint = Endpoint::start(|arrived| async move {
        status(if arrived.header("rehop-attempt") == Some("1") { 503 } else { 200 })
    })
    .await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    let large: Vec<u8> =
        (0..16 * 1024 * 1024_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let bodies = [Vec::new(), (0..=255).collect(), large];
    for body in &bodies {
        fixture.publish(Publish::to_queue(&fixture.queue).body(body.clone())).await;
    }
    let arrived = endpoint.receives(6).await;
    for body in &bodies {
        let same = arrived.iter().filter(|arrived| arrived.body == body.as_slice()).collect::<Vec<_>>();
        assert_eq!(same.len(), 2, "a body of {} bytes", body.len());
        assert_eq!(same[0].header("content-type"), None);
        assert_eq!(same[0].header("rehop-message-id"), None);
        assert_eq!(same[0].header("rehop-exchange"), Some(""));
    }
    let stopped = relay.stop().await;
    assert!(stopped.out.contains("handled 3, requeued 0, waited 3, parked 0"), "{}", stopped.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_answer_does_not_hold_a_message_back() {
    let fixture = Fixture::new("endless").await;
    let endpoint = Endpoint::start(|_| async {
        let endless = futures_util::stream::repeat(vec![b'x'; 8192]).map(Ok::<_, std::io::Error>);
        axum::response::Response::new(axum::body::Body::from_stream(endless))
    })
    .await;
    let relay = fixture.relay(&endpoint.url, &["--concurrency", "1"]).await;
    for _ in 0..3 {
        fixture.publish(Publish::to_queue(&fixture.queue)).await;
    }
    endpoint.receives(3).await;
    let stopped = relay.stop().await;
    assert!(stopped.out.contains("handled 3"), "{}", stopped.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_topology_declare_a_relay_that_only_checks_works() {
    let fixture = Fixture::new("check").await.with("REHOP_TOPOLOGY", "check");
    let endpoint = Endpoint::start(|_| async { status(200) }).await;
    let too_early =
        fixture.tool(&["relay", "--queue", &fixture.queue, "--to", &endpoint.url]).finished().await.error(1);
    assert!(too_early.contains("does not exist") && too_early.contains("rehop topology declare"), "{too_early}");
    let declared = fixture.tool(&["topology", "declare", "--queue", &fixture.queue]).finished().await;
    assert_eq!(declared.code(), 0, "{}", declared.err);
    let ready = format!("namespace {} is ready: 4 exchanges, 5 queues, 5 bindings", fixture.namespace.name());
    assert!(declared.out.contains(&ready), "{}", declared.out);
    let relay = fixture.relay(&endpoint.url, &[]).await;
    fixture.publish(Publish::to_queue(&fixture.queue)).await;
    endpoint.receives(1).await;
    relay.stop().await;
}
