//! What becomes of a message when its endpoint misbehaves.

use super::hostile::{Hostile, OK};
use crate::support::{Fixture, millis};

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
    let stopped = relay.stop().await;
    assert!(stopped.out.starts_with("stopped cleanly: handled 2, requeued 0"), "{}", stopped.out);
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
    r#"{"title": "Out of stock", "detail": "item 7 is sold out", "card": "4111"}"#;

/// The text of a parked message's error and the log, after an answer with this body.
async fn error_after(content_type: &str, body: &str, options: &[&str]) -> String {
    let fixture = Fixture::new("problem").await;
    let endpoint = Hostile::answering(format!(
        "HTTP/1.1 422 x\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))
    .await;
    let relay = fixture.relay(&endpoint.url, options).await;
    fixture.publish("").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    let stopped = relay.stop().await;
    let errors = crate::support::failures(&parked);
    let error = errors[0]["message"].as_str().unwrap().to_owned();
    assert!(stopped.err.contains("answered 422"), "{}", stopped.err);
    assert!(!stopped.err.contains("4111"), "{}", stopped.err);
    error
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
    assert!(said.contains("***") && said.contains("sold out") && !said.contains("4111"), "{said}");
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

/// Slack and Telegram keep tokens in the path.
#[tokio::test(flavor = "multi_thread")]
async fn of_the_url_only_scheme_host_and_port_are_ever_said() {
    let mut fixture = Fixture::new("secret").await;
    fixture.settings.retry.delays = millis([]);
    let closing = Hostile::start(|mut connection| async move {
        connection.asked().await;
    })
    .await;
    let to = closing.url.replace("http://", "http://hunter1:hunter2@") + "hunter3?hunter4";
    let relay = fixture.relay(&to, &["-vv"]).await;
    fixture.publish("").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    let stopped = relay.stop().await;
    let said = format!("{}{}{:?}", stopped.out, stopped.err, parked.headers);
    assert!(said.contains(&format!(" to {}***", closing.url)), "{said}");
    assert!(!said.contains("hunter"), "{said}");
}
