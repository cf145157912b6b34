//! How messages end: parked with their history, discarded, or handled after all.

use std::time::Duration;

use bytes::Bytes;
use rehop::{Consumer, Decode, DecodeError, Encoded, Failure, Message, Raw};
use serde_json::json;

use crate::support::{Fixture, Log, Running, failures, millis};

#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_message_is_parked_with_its_reason_and_error_history() {
    let mut fixture = Fixture::new("exhausted").await;
    fixture.retry().delays = millis([100, 100]);
    let log = Log::default();
    let run = fixture
        .serve(move |_| {
            let count = log.push(());
            async move {
                Err(Failure::transient(format!("failure {count}"))
                    .with_class(format!("class-{count}")))
            }
        })
        .await;
    fixture.client.publish(fixture.to_queue().body("x").message_id("id-9")).await.unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    let summary = run.stop().await;
    assert_eq!(parked.headers["rehop-reason"], "exhausted");
    assert_eq!(parked.properties.message_id.as_deref(), Some("id-9"));
    let errors = failures(&parked);
    let texts: Vec<_> =
        errors.iter().map(|e| (&e["attempt"], &e["class"], &e["message"])).collect();
    let (one, two, three) = (json!(1), json!(2), json!(3));
    let expected = [
        (&one, &json!("class-1"), &json!("failure 1")),
        (&two, &json!("class-2"), &json!("failure 2")),
        (&three, &json!("class-3"), &json!("failure 3")),
    ];
    assert_eq!(texts, expected);
    let times: Vec<_> = errors.iter().map(|e| e["at"].as_i64().unwrap()).collect();
    assert!(times[1] - times[0] >= 100 && times[2] - times[1] >= 100, "{times:?}");
    assert_eq!(parked.headers["rehop-first-failed-at"], times[0]);
    assert!(parked.headers["rehop-first-seen-at"].as_i64().unwrap() <= times[0]);
    assert_eq!(summary.parked.values().sum::<u64>(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permanent_failure_is_parked_at_once_and_a_discarded_one_is_kept_nowhere() {
    let fixture = Fixture::new("permanent").await;
    let started = Log::default();
    let log = started.clone();
    let run = fixture
        .serve(move |message| {
            log.push(());
            std::future::ready(match message.raw_body().as_ref() {
                b"permanent" => Err(Failure::permanent("no such customer")),
                _ => Err(Failure::discard("a test order")),
            })
        })
        .await;
    fixture.publish("discard").await;
    fixture.publish("permanent").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    // The stop would hand back what no handler has seen.
    started.reaches(2).await;
    let summary = run.stop().await;
    assert_eq!(parked.text(), "permanent");
    assert_eq!(parked.headers["rehop-reason"], "permanent");
    assert_eq!(failures(&parked)[0]["message"], "no such customer");
    assert_eq!((summary.waited, summary.requeued), (0, 0));
    assert_eq!(summary.discarded.values().sum::<u64>(), 1);
    assert_eq!(fixture.client.depth(&fixture.queue).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_fails_its_own_message_alone() {
    let mut fixture = Fixture::new("panic").await;
    fixture.retry().delays = millis([100]);
    let handled = Log::default();
    let log = handled.clone();
    let run = fixture
        .serve(move |message| {
            let log = log.clone();
            // One body causes a panic before the future exists, another while it runs.
            assert_ne!(message.raw_body().as_ref(), b"early", "no future");
            async move {
                assert_ne!(message.raw_body().as_ref(), b"late", "in the future");
                log.push(());
                Ok(())
            }
        })
        .await;
    for body in ["early", "fine", "late", "fine"] {
        fixture.publish(body).await;
    }
    let parked = fixture.drain_parked(2).await;
    handled.reaches(2).await;
    let summary = run.stop().await;
    assert_eq!((summary.handled, summary.waited), (2, 2));
    for message in parked {
        let error = &failures(&message)[0];
        assert_eq!(error["class"], "panic");
        assert!(error["message"].as_str().unwrap().contains("future"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_exceeds_its_time_limit_fails_transiently() {
    let mut fixture = Fixture::new("timeout").await;
    fixture.retry().delays = millis([100]);
    fixture.consume().handler_timeout = Some(Duration::from_millis(100));
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |_| {
            let count = log.push(());
            async move {
                if count == 1 {
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
        })
        .await;
    fixture.publish("x").await;
    seen.reaches(2).await;
    let summary = run.stop().await;
    assert_eq!((summary.waited, summary.handled), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_decode_is_parked_at_once_with_its_bytes_untouched() {
    let fixture = Fixture::new("undecodable").await;
    let run = Running::start(
        fixture
            .service()
            .consumer(fixture.queue.clone(), |_: Message<Vec<u32>>| async { Ok::<_, Failure>(()) }),
    );
    fixture.is_declared(&fixture.queue).await;
    let bodies: [&[u8]; 3] = [b"", b"\xff\0secret-body", b"{\"secret\": 1}"];
    for body in bodies {
        fixture.client.publish(fixture.to_queue().body(body)).await.unwrap();
    }
    let parked = fixture.drain_parked(3).await;
    let summary = run.stop().await;
    assert_eq!(summary.parked[&rehop::Reason::Undecodable], 3);
    let mut seen: Vec<_> = parked.iter().map(|message| message.body.as_slice()).collect();
    seen.sort_unstable();
    assert_eq!(seen, [bodies[0], bodies[2], bodies[1]]);
    for message in &parked {
        assert_eq!(message.headers["rehop-reason"], "undecodable");
        assert!(
            !message.headers["rehop-errors"].to_string().contains("secret"),
            "{:?}",
            message.headers
        );
    }
}

/// A user's decoder, which panics for one body and checks the content type.
struct Shouting;

impl Decode<String> for Shouting {
    fn decode(&self, encoded: &Encoded<'_>) -> Result<String, DecodeError> {
        assert_ne!(encoded.body().as_ref(), b"panic");
        if encoded.content_type() != Some("text/plain") {
            return Err(DecodeError::new("only text is taken"));
        }
        let text = String::from_utf8(encoded.body().to_vec())
            .map_err(|error| DecodeError::new(error.utf8_error()))?;
        Ok(text.to_uppercase())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_users_decoder_is_used_and_if_it_panics_the_body_is_undecodable() {
    let fixture = Fixture::new("codec").await;
    let seen = Log::default();
    let log = seen.clone();
    let run = Running::start(
        fixture.service().with_consumer(
            Consumer::new(fixture.queue.clone(), move |message: Message<String>| {
                log.push(message.body);
                async { Ok::<_, Failure>(()) }
            })
            .decode(Shouting),
        ),
    );
    fixture.is_declared(&fixture.queue).await;
    for (body, content_type) in
        [("panic", "text/plain"), ("wrong", "image/png"), ("hello", "text/plain")]
    {
        let message = fixture
            .to_queue()
            .body(body)
            .properties(|it| it.content_type = Some(content_type.to_owned()));
        fixture.client.publish(message).await.unwrap();
    }
    let parked = fixture.drain_parked(2).await;
    assert_eq!(seen.reaches(1).await, ["HELLO"]);
    run.stop().await;
    let mut texts: Vec<_> = parked.iter().map(|it| failures(it)[0]["message"].clone()).collect();
    texts.sort_by_key(ToString::to_string);
    assert_eq!(texts, ["only text is taken", "the decoder panicked"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_body_goes_through_a_hop() {
    let fixture = Fixture::new("empty").await;
    let seen = Log::default();
    let log = seen.clone();
    let run = Running::start(
        fixture.service().with_consumer(
            Consumer::new(fixture.queue.clone(), move |message: Message<Bytes>| {
                let count = log.push(message.raw_body().len());
                async move { if count == 1 { Err(Failure::transient("again")) } else { Ok(()) } }
            })
            .decode(Raw),
        ),
    );
    fixture.is_declared(&fixture.queue).await;
    fixture.publish("").await;
    assert_eq!(seen.reaches(2).await, [0, 0]);
    assert_eq!(run.stop().await.handled, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_text_of_a_megabyte_is_truncated_and_does_no_harm() {
    let mut fixture = Fixture::new("long-error").await;
    fixture.retry().delays = millis(vec![100; 12]);
    let run = fixture.serve_always(Err(Failure::transient("é".repeat(500_000)))).await;
    fixture.publish("x").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    let errors = failures(&parked);
    assert!((1..=10).contains(&errors.len()));
    assert_eq!(errors.last().unwrap()["attempt"], 13);
    assert!(parked.headers["rehop-errors"].to_string().len() < 10_000);
}
