//! The endpoint's answer decides where a message ends.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use rehop::settings::TopologyMode;
use rehop_testing::{Port, Publish};
use serde_json::json;
use tokio::io::AsyncReadExt;

use super::endpoint::{Endpoint, class, status, with};
use super::process::{Tool, variables};
use super::relay_answers::{NO_CONNECTION, is_on_the_page};
use crate::support::{Fixture, millis};

/// The other failures are counted each minute, and once more at the end.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_has_one_log_line_for_its_first_failure_and_one_for_each_parked_message() {
    let mut fixture = Fixture::new("outage-log").await;
    fixture.settings.retry.delays = millis([100]);
    let endpoint = Endpoint::start(|_| async { status(503) }).await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    let messages = 10;
    fixture.client.publish_many((0..messages).map(|_| fixture.to_queue())).await.unwrap();
    fixture.drain_parked(messages).await;
    let stopped = relay.stop().await;
    let lines =
        |text: &str| stopped.err.lines().filter(|line| line.contains(text)).collect::<Vec<_>>();
    let first = lines("attempt failed");
    assert_eq!(first.len(), 1, "{}", stopped.err);
    assert!(first[0].contains("INFO") && first[0].contains("http_503"), "{}", first[0]);
    let counted = lines("more attempts failed");
    assert_eq!(counted.len(), 1, "{}", stopped.err);
    assert!(counted[0].contains("failures=9") && counted[0].contains("http_503"), "{}", counted[0]);
    assert_eq!(lines("message parked").len(), messages, "{}", stopped.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_status_ends_where_it_should_and_redirects_are_not_followed() {
    let mut fixture = Fixture::new("status").await;
    fixture.settings.retry.immediate = Some(1);
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
        .publish_many(all.iter().map(|status| fixture.to_queue().body(status.to_string())))
        .await
        .unwrap();
    let parked = fixture.drain_parked(tried_again.len() + never.len()).await;
    let ends: BTreeMap<u16, _> = parked
        .iter()
        .map(|parked| {
            let reason = parked.headers["rehop-reason"].as_str().unwrap().to_owned();
            (parked.text().parse().unwrap(), (reason, class(parked)))
        })
        .collect();
    let expected = |reason: &'static str| {
        move |status: &u16| (*status, (reason.to_owned(), format!("http_{status}")))
    };
    let expected = tried_again
        .iter()
        .map(expected("exhausted"))
        .chain(never.iter().map(expected("permanent")));
    assert_eq!(ends, expected.collect());
    let mut attempts: BTreeMap<u16, usize> = BTreeMap::new();
    for arrived in endpoint.arrived() {
        assert_eq!(arrived.path, "/orders");
        *attempts.entry(arrived.text().parse().unwrap()).or_default() += 1;
    }
    let expected =
        all.iter().map(|status| (*status, if tried_again.contains(status) { 6 } else { 1 }));
    assert_eq!(attempts, expected.collect());
    let stopped = relay.stop().await;
    assert!(
        stopped.out.starts_with("stopped cleanly: handled 4, requeued 24, waited 16, parked 18"),
        "{}",
        stopped.out
    );
    assert!(
        stopped.err.contains("at most 6 attempts per message by policy, and 33 deliveries"),
        "{}",
        stopped.err
    );
}

/// HTTP's three forms of a date: its own, that of RFC 850, and that of C's `asctime`.
fn dates(at: SystemTime) -> [String; 3] {
    let own = httpdate::fmt_http_date(at);
    let [short, day, month, year, time, _] = own.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{own}")
    };
    let short = short.trim_end_matches(',');
    let names = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    let name = names.into_iter().find(|name| name.starts_with(short)).unwrap();
    let of_850 = format!("{name}, {day}-{month}-{} {time} GMT", &year[2..]);
    let padded = day.trim_start_matches('0');
    let of_c = format!("{short} {month} {padded:>2} {time} {year}");
    [own, of_850, of_c]
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_is_honoured_and_never_early() {
    let what = "sends a `Retry-After` in seconds, or a date in any of HTTP's three forms";
    is_on_the_page(what, "tried again, not earlier", "http_503");
    let mut fixture = Fixture::new("retry-after").await;
    // An endpoint may ask for eight times the longest delay, and this one asks for up to two
    // seconds.
    fixture.settings.retry.delays = millis([100, 500]);
    let endpoint = Endpoint::start(|arrived| async move {
        let first = arrived.header("rehop-attempt") == Some("1");
        let dates = dates(arrived.date + Duration::from_secs(2));
        match arrived.text().parse::<usize>() {
            _ if !first => status(200),
            Ok(form) => with(503, "retry-after", &dates[form]),
            Err(_) => with(503, "retry-after", "1"),
        }
    })
    .await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    let bodies = ["seconds", "0", "1", "2"];
    for body in bodies {
        fixture.publish(body).await;
    }
    let arrived = endpoint.receives(2 * bodies.len()).await;
    // A date has whole seconds, so the one in the answer is up to a second earlier.
    let whole =
        |date: SystemTime| httpdate::parse_http_date(&httpdate::fmt_http_date(date)).unwrap();
    for body in bodies {
        let of: Vec<_> = arrived.iter().filter(|arrived| arrived.text() == body).collect();
        let [first, second] = of[..] else { panic!("{body}: {}", of.len()) };
        if body == "seconds" {
            let waited = second.at - first.at;
            assert!(waited >= Duration::from_secs(1), "{waited:?}");
        } else {
            assert!(second.date >= whole(first.date + Duration::from_secs(2)), "{body}");
        }
    }
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_is_deferred_waits_as_long_as_retry_after_says_and_uses_up_no_attempt() {
    let mut fixture = Fixture::new("deferred").await;
    fixture.settings.retry.delays = millis([500]);
    let endpoint = Endpoint::start(|_| async { with(429, "retry-after", "1") }).await;
    let set = ["--set", "retry.errors={http_429=defer}", "--set", "retry.max_defers=2"];
    let relay = fixture.relay(&endpoint.url, &set).await;
    fixture.publish("x").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    relay.stop().await;
    let arrived = endpoint.arrived();
    assert_eq!(
        arrived.iter().map(|arrived| arrived.header("rehop-attempt")).collect::<Vec<_>>(),
        [Some("1"); 3]
    );
    for step in arrived.windows(2) {
        assert!(step[1].at - step[0].at >= Duration::from_secs(1), "{arrived:?}");
    }
    assert_eq!(
        (class(&parked).as_str(), &parked.headers["rehop-reason"]),
        ("http_429", &json!("deferred_too_often"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_hangs_is_a_timeout_and_the_message_is_kept() {
    let fixture = Fixture::new("hangs").await;
    let endpoint = Endpoint::start(|_| std::future::pending()).await;
    let relay = fixture.relay(&endpoint.url, &["--timeout", "4s"]).await;
    fixture.publish("kept").await;
    let parked = fixture.drain_parked(1).await;
    assert_eq!((class(&parked[0]).as_str(), parked[0].text().as_str()), ("http_timeout", "kept"));
    is_on_the_page("does not answer within `--timeout`", "tried again", "http_timeout");
    // On a busy machine an attempt may time out before the endpoint has read its request, so these
    // are not counted.
    assert_eq!(parked[0].headers["rehop-attempt"], 3);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_refuses_connections_gets_the_message_when_it_is_back() {
    let fixture = Fixture::new("refuses").await;
    let claimed = Port::claim().unwrap();
    let port = claimed.number();
    let to = format!("http://user:hunter2@127.0.0.1:{port}/orders?token=hunter3");
    let environment = [variables(&fixture.settings), vec![("RELAY_TO".to_owned(), to)]].concat();
    let relay = Tool::start(&["relay", "--queue", &fixture.queue], environment);
    relay.consumes().await;
    fixture.publish("hunter4").await;
    let parked = fixture.drain_parked(1).await;
    assert_eq!(class(&parked[0]), "http_connect");
    is_on_the_page(NO_CONNECTION, "tried again", "http_connect");
    let stopped = relay.stop().await;
    assert!(stopped.err.contains(&format!("to http://127.0.0.1:{port}/***")), "{}", stopped.err);
    let said = format!("{}{}{}", stopped.out, stopped.err, parked[0].headers["rehop-errors"]);
    assert!(said.contains("Connection refused") && !said.contains("hunter"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_connection_that_ends_before_the_answer_the_request_is_retried() {
    let mut fixture = Fixture::new("reset").await;
    fixture.settings.retry.delays = millis([100]);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let _ = connection.read(&mut [0; 1024]).await;
        }
    });
    let relay = fixture.relay(&to, &[]).await;
    fixture.publish("kept").await;
    let parked = fixture.drain_parked(1).await;
    assert_eq!(
        (class(&parked[0]).as_str(), parked[0].text().as_str()),
        ("http_connection", "kept")
    );
    relay.stop().await;
    server.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_without_tls_is_a_failed_connection() {
    let mut fixture = Fixture::new("tls").await;
    fixture.settings.retry.delays = millis([]);
    let endpoint = Endpoint::start(|_| async { status(200) }).await;
    let relay = fixture.relay(&endpoint.url.replace("http://", "https://"), &[]).await;
    fixture.publish("").await;
    assert_eq!(class(&fixture.drain_parked(1).await[0]), "http_connect");
    is_on_the_page(NO_CONNECTION, "tried again", "http_connect");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_endpoint_gets_everything_that_is_known_about_the_message() {
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
        it.content_encoding = Some("gzip".to_owned());
    });
    fixture.client.publish(message).await.unwrap();
    let arrived = endpoint.receives(1).await.remove(0);
    for (name, value) in [
        ("rehop-queue", fixture.queue.as_str()),
        ("rehop-exchange", &exchange.replace('%', "%25").replace(' ', "%20")),
        ("rehop-routing-key", "cr%C3%A9%C3%A9.a%20b%0A%2541"),
        ("rehop-message-id", "m-1"),
        ("rehop-attempt", "1"),
        ("rehop-deadline", "4102444800000"),
        ("content-type", "application/json; charset=utf-8"),
        ("content-encoding", "gzip"),
        ("authorization", "Basic dXNlcjpwYXNz"),
        ("content-length", "2"),
    ] {
        assert_eq!(arrived.header(name), Some(value), "{name}");
    }
    assert!(
        arrived.header("traceparent").unwrap().starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-")
    );
    assert_eq!(arrived.path, "/orders?tenant=1");
    relay.stop().await;
}

/// Such a message has no deadline, so its producer has to be told apart from others.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_names_each_producer_of_an_unreadable_deadline_once() {
    let fixture = Fixture::new("unreadable-deadline").await;
    let endpoint = Endpoint::start(|_| async { status(200) }).await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    for producer in ["shop", "till", "shop", "till", "shop"] {
        let message = fixture.to_queue().header("rehop-expires-at", "after the weekend");
        let message = message.properties(|it| it.app_id = Some(producer.to_owned()));
        fixture.client.publish(message).await.unwrap();
    }
    let arrived = endpoint.receives(5).await;
    assert!(arrived.iter().all(|arrived| arrived.header("rehop-deadline").is_none()));
    let stopped = relay.stop().await;
    assert!(!stopped.err.contains("weekend"), "{}", stopped.err);
    let told: Vec<_> =
        stopped.err.lines().filter(|line| line.contains("a header is malformed")).collect();
    for producer in ["shop", "till"] {
        let of = |line: &&&str| {
            line.contains("rehop-expires-at") && line.contains(&format!("app_id=\"{producer}\""))
        };
        assert_eq!(told.iter().filter(of).count(), 1, "{producer}: {told:?}");
    }
    assert_eq!(told.len(), 2, "{told:?}");
}

/// Both put a charset into `content_encoding`, and a server answers 415 to a `Content-Encoding`
/// that it does not know.
#[tokio::test(flavor = "multi_thread")]
async fn what_celery_and_spring_send_is_no_unknown_content_encoding() {
    let fixture = Fixture::new("charset").await;
    let endpoint = Endpoint::start(|arrived| async move {
        status(if arrived.header("content-encoding").is_some() { 415 } else { 200 })
    })
    .await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    let celery = fixture
        .to_queue()
        .header("lang", "py")
        .header("task", "shop.tasks.charge")
        .header("id", "3f0c3f6e-5d0b-4f0e-9b7e-6a8f1f1f7f11")
        .header("root_id", "3f0c3f6e-5d0b-4f0e-9b7e-6a8f1f1f7f11")
        .header("retries", 0)
        .header("argsrepr", "(7,)")
        .header("ignore_result", false)
        .body(r#"[[7], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]"#)
        .properties(|it| {
            it.content_type = Some("application/json".to_owned());
            it.content_encoding = Some("utf-8".to_owned());
        });
    let spring = fixture
        .to_queue()
        .header("__TypeId__", "com.example.shop.Charge")
        .body(r#"{"order":7}"#)
        .properties(|it| {
            it.content_type = Some("application/json".to_owned());
            it.content_encoding = Some("UTF-8".to_owned());
        });
    for (before, (message, charset)) in
        [(celery, "utf-8"), (spring, "UTF-8")].into_iter().enumerate()
    {
        fixture.client.publish(message).await.unwrap();
        let arrived = endpoint.receives(before + 1).await.remove(before);
        assert_eq!(
            arrived.header("content-type"),
            Some(format!("application/json; charset={charset}").as_str())
        );
        assert_eq!(arrived.header("rehop-content-encoding"), Some(charset));
    }
    let stopped = relay.stop().await;
    assert!(stopped.out.contains("handled 2, requeued 0, waited 0, parked 0"), "{}", stopped.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_springs_compression_sends_arrives_as_compressed() {
    let fixture = Fixture::new("spring").await;
    let endpoint = Endpoint::start(|_| async { status(200) }).await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    for (before, encoding) in ["gzip, UTF-8", "gzip:UTF-8"].into_iter().enumerate() {
        let message = fixture.to_queue().body(b"\x1f\x8b".to_vec()).properties(|it| {
            it.content_type = Some("application/json".to_owned());
            it.content_encoding = Some(encoding.to_owned());
        });
        fixture.client.publish(message).await.unwrap();
        let arrived = endpoint.receives(before + 1).await.remove(before);
        assert_eq!(arrived.header("content-encoding"), Some("gzip"));
        assert_eq!(arrived.header("content-type"), Some("application/json; charset=UTF-8"));
    }
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_arrive_byte_for_byte_even_after_a_wait() {
    let fixture = Fixture::new("bodies").await;
    let endpoint = Endpoint::start(|arrived| async move {
        status(if arrived.header("rehop-attempt") == Some("1") { 503 } else { 200 })
    })
    .await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    let large: Vec<u8> = (0..16 * 1024 * 1024_u32)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let bodies = [Vec::new(), (0..=255).collect(), large];
    for body in &bodies {
        fixture.client.publish(fixture.to_queue().body(body.clone())).await.unwrap();
    }
    let arrived = endpoint.receives(6).await;
    for body in &bodies {
        let same =
            arrived.iter().filter(|arrived| arrived.body == body.as_slice()).collect::<Vec<_>>();
        assert_eq!(same.len(), 2, "a body of {} bytes", body.len());
        assert_eq!(same[0].header("content-type"), None);
        assert_eq!(same[0].header("rehop-message-id"), None);
        assert_eq!(same[0].header("rehop-exchange"), Some(""));
    }
    let stopped = relay.stop().await;
    assert!(stopped.out.contains("handled 3, requeued 0, waited 3, parked 0"), "{}", stopped.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_answer_does_not_hold_up_a_message() {
    let fixture = Fixture::new("endless").await;
    let endpoint = Endpoint::start(|_| async {
        let endless = futures_util::stream::repeat(vec![b'x'; 8192]).map(Ok::<_, std::io::Error>);
        axum::response::Response::new(axum::body::Body::from_stream(endless))
    })
    .await;
    let relay = fixture.relay(&endpoint.url, &["--concurrency", "1"]).await;
    for _ in 0..3 {
        fixture.publish("").await;
    }
    endpoint.receives(3).await;
    let stopped = relay.stop().await;
    assert!(stopped.out.contains("handled 3"), "{}", stopped.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_topology_declare_a_relay_that_only_checks_works() {
    let mut fixture = Fixture::new("check").await;
    fixture.settings.topology = TopologyMode::Check;
    let endpoint = Endpoint::start(|_| async { status(200) }).await;
    let too_early = fixture
        .tool(&["relay", "--queue", &fixture.queue, "--to", &endpoint.url])
        .finished()
        .await
        .error(1);
    assert!(
        too_early.contains("does not exist") && too_early.contains("rehop topology declare"),
        "{too_early}"
    );
    let declared =
        fixture.tool(&["topology", "declare", "--queue", &fixture.queue]).finished().await;
    assert_eq!(declared.code(), 0, "{}", declared.err);
    let ready = format!(
        "namespace {} is ready: 4 exchanges, 5 queues, 5 bindings",
        fixture.namespace.name()
    );
    assert!(declared.out.contains(&ready), "{}", declared.out);
    let relay = fixture.relay(&endpoint.url, &[]).await;
    fixture.publish("").await;
    endpoint.receives(1).await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settings_decide_how_a_class_of_answers_is_treated() {
    let fixture = Fixture::new("classes").await;
    let endpoint =
        Endpoint::start(|arrived| async move { status(arrived.text().parse().unwrap()) }).await;
    let errors =
        "retry.errors={http_404=transient, http_500=permanent, http_410=discard, http_4O4=discard}";
    let relay = fixture.relay(&endpoint.url, &["--set", errors]).await;
    for status in ["404", "500", "410", "400"] {
        fixture.publish(status).await;
    }
    let parked = fixture.drain_parked(3).await;
    let reasons: BTreeMap<_, _> = parked
        .iter()
        .map(|parked| (parked.text(), parked.headers["rehop-reason"].as_str().unwrap()))
        .collect();
    let expected = [("400", "permanent"), ("404", "exhausted"), ("500", "permanent")];
    assert_eq!(
        reasons,
        expected.map(|(status, reason)| (status.to_owned(), reason)).into_iter().collect()
    );
    let stopped = relay.stop().await;
    assert!(stopped.out.contains("discarded 1"), "{}", stopped.out);
    assert!(
        stopped.err.contains("http_4O4") && !stopped.err.contains("class \"http_404\""),
        "{}",
        stopped.err
    );
}
