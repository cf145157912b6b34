//! How `rehop ui` ends while pages look at messages.

use rehop::testing::{Broker, Proxy, Publish};

use super::http::{ask, encode};
use super::tool::enter;
use crate::process::Tool;
use crate::support::Fixture;

/// Messages of a kilobyte. Looking at more than 257 of them takes several subscriptions.
const COUNT: u32 = 2_000;
/// So many bytes a second that nobody has seen all messages when the signal comes.
const SLOWLY: u64 = 200_000;

/// Parked messages behind a slow connection.
async fn stock(test: &str) -> (Fixture, Proxy) {
    let (fixture, proxy) = Fixture::behind_proxy(test).await;
    let parked = fixture.parked();
    let message = |n: u32| Publish::to_queue(&parked).body("x".repeat(1_024)).message_id(n.to_string());
    fixture.declare().await;
    fixture.client.publish_many((0..COUNT).map(message)).await.unwrap();
    fixture.has_depth(&parked, COUNT).await;
    (fixture, proxy)
}

/// A page that is looking at messages and has left so many of them in the queue.
async fn looking(fixture: &Fixture, proxy: &Proxy, more: &str, left: u32) -> Tool {
    let tool = fixture.tool(&["ui", "--queue", &fixture.queue, "--listen", "127.0.0.1:0"]);
    let (authority, cookie) = enter(&tool).await;
    proxy.rate(SLOWLY);
    let path = format!("/messages?queue={}{more}", encode(&fixture.queue));
    tokio::spawn(async move { ask(&authority, &path, &cookie).await });
    fixture.has_depth(&fixture.parked(), left).await;
    tool
}

/// Whether the broker counts each return.
async fn counts_returns() -> bool {
    let version = Broker::shared().await.version();
    ["3.", "4.0.", "4.1.", "4.2."].iter().any(|old| version.starts_with(old))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_the_looks_of_pages_and_each_message_is_in_its_place_before_the_process_ends() {
    for (more, left) in [("", COUNT - 1_000), ("&all=1", 0)] {
        let (fixture, proxy) = stock("ui-end").await;
        let tool = looking(&fixture, &proxy, more, left).await;
        tool.signal("INT");
        tool.logs("a second signal stops immediately").await;
        proxy.rate(0);
        let ended = tool.finished().await;
        assert_eq!(ended.code(), 0, "{}", ended.err);
        assert_eq!(fixture.client.depth(&fixture.parked()).await.unwrap(), COUNT, "they are there when it has ended");
        let messages = fixture.client.get_all(&fixture.parked()).await.unwrap();
        let ids = messages.iter().map(|message| message.properties.message_id.clone().unwrap());
        assert!(ids.eq((0..COUNT).map(|n| n.to_string())), "in their order, after {more:?}");
        if !counts_returns().await {
            let counted = messages.iter().filter_map(|it| it.headers.get("x-delivery-count")?.as_u64());
            assert_eq!(counted.max().unwrap_or(0), 0, "nothing was counted");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_does_not_answer_keeps_the_page_from_ending_for_a_few_seconds_only() {
    let (fixture, proxy) = stock("ui-end-stuck").await;
    let tool = looking(&fixture, &proxy, "&all=1", 0).await;
    proxy.pause();
    tool.signal("TERM");
    let ended = tool.finished().await;
    assert_eq!(ended.code(), 0, "{}", ended.err);
    assert!(ended.err.contains("not everything that was begun from the page has ended within 8s"), "{}", ended.err);
    proxy.cut();
    fixture.has_depth(&fixture.parked(), COUNT).await;
}
