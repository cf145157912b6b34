//! A message that the broker takes seconds to deliver, because its headers are nested thousands of
//! tables deep: it hides nothing behind it.

use std::time::Duration;

use super::message;
use crate::support::raw_amqp::{RawClient, RawMessage, long, short};
use crate::support::{Fixture, SOON};

/// As deep as a frame allows.
const DEPTH: usize = 18_500;

/// A table in a table in a table.
fn nested() -> RawMessage {
    let field = |inside: Vec<u8>| [&b"F"[..], &long(&[short(b"a"), inside].concat())].concat();
    let value = (0..DEPTH).fold(b"V".to_vec(), |inside, _| field(inside));
    let headers = long(&[short(b"deep"), value].concat());
    let only_headers = 0x2000_u16.to_be_bytes();
    let properties = [&only_headers[..], &headers].concat();
    RawMessage { routing_key: Vec::new(), properties, body: b"deep".to_vec() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_takes_long_to_deliver_hides_nothing_behind_it() {
    let fixture = Fixture::new("nested").await;
    fixture.declare().await;
    let mut raw = RawClient::connect(fixture.settings.broker.url.expose()).await;
    let deep = RawMessage { routing_key: fixture.parked().into_bytes(), ..nested() };
    raw.publish("", &deep).await;
    fixture.has_depth(&fixture.parked(), 1).await;

    // Each look gets it once, and a busy broker takes many times as long.
    let run = async |command: &str, more: &[&str]| {
        let of_queue = ["parked", command, "--queue", &fixture.queue];
        let tool = fixture.tool(&[&of_queue[..], more].concat());
        tool.finished_within(Duration::from_secs(900)).await
    };
    // While it is alone, nothing is ready, and only the channel shows that it is on its way.
    let alone = run("list", &["--json"]).await;
    assert_eq!(alone.code(), 0, "{}{}", alone.out, alone.err);
    assert!(alone.out.contains("\"looked_at\": 1,"), "{}{}", alone.out, alone.err);
    fixture.park_directly((0..5).map(|number| message(format!("order-{number}")))).await;
    let shown = run("show", &["order-3"]).await;
    assert_eq!(shown.code(), 0, "{}{}", shown.out, shown.err);
    assert!(shown.out.contains("\nposition     5\n"), "{}", shown.out);
    let exported = run("export", &["--chain", "order-3"]).await;
    assert_eq!(exported.code(), 0, "{}{}", exported.out, exported.err);
    assert!(exported.out.lines().count() == 1 && exported.out.contains("order-3"));
    // Nobody consumes the queue, so their fates are unknown.
    let edit = ["order-2", "--body", "/dev/null", "--apply", "--why", "empty", "--follow", "0s"];
    let edited = run("edit", &edit).await;
    assert_eq!(edited.code(), 4, "{}{}", edited.out, edited.err);
    let replayed = run("replay", &["--chain", "order-1", "--apply", "--why", "again"]).await;
    assert!(replayed.out.contains(": 1 sent"), "{}{}", replayed.out, replayed.err);
    let sent = fixture.client.drain(&fixture.queue, 2, SOON).await.unwrap();
    let bodies: Vec<_> = sent.iter().map(|message| message.body.as_slice()).collect();
    assert_eq!(bodies, [&b""[..], b"order-1"]);
    let discarded = run("discard", &["--chain", "order-3", "--apply"]).await;
    assert!(
        discarded.code() == 0 && discarded.out.starts_with("1 discarded"),
        "{}{}",
        discarded.out,
        discarded.err
    );
    fixture.has_depth(&fixture.parked(), 3).await;
}
