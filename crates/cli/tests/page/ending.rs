//! How `rehop ui` ends: what its pages hold goes back, and what they did is exported.

use rehop_testing::{Proxy, Publish, eventually};

use super::http::{ask, encode, submit};
use super::stock;
use super::tool::enter;
use crate::endpoint::{Arrived, Endpoint, with};
use crate::process::Tool;
use crate::support::{Fixture, SOON, is_before_4_3};

/// Messages of a kilobyte. Looking at more than 257 of them takes several subscriptions.
const COUNT: u32 = 2_000;
/// So many bytes a second that nobody has seen all messages when the signal comes.
const SLOWLY: u64 = 100_000;
/// What the page says when it waits no longer.
const GAVE_UP: &str = "not everything that was begun from the page has ended within 8s";

/// Parked messages behind a slow connection.
async fn slow_stock(test: &str) -> (Fixture, Proxy) {
    let (fixture, proxy) = Fixture::behind_proxy(test).await;
    let parked = fixture.parked();
    let message =
        |n: u32| Publish::to_queue(&parked).body("x".repeat(1_024)).message_id(n.to_string());
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

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_the_looks_of_pages_and_each_message_is_in_its_place_before_the_process_ends()
{
    for (more, left) in [("", COUNT - 1_000), ("&all=1", 0)] {
        let mut tries = 0;
        while !everything_is_back_in_time(more, left).await {
            tries += 1;
            assert!(tries < 3, "the broker took 8 s each time");
        }
    }
}

/// False if the page gave up: it waits for 8 s, which a busy broker may need for itself.
async fn everything_is_back_in_time(more: &str, left: u32) -> bool {
    let (fixture, proxy) = slow_stock("ui-end").await;
    let tool = looking(&fixture, &proxy, more, left).await;
    tool.signal("INT");
    tool.logs("a second signal stops immediately").await;
    proxy.rate(0);
    let ended = tool.finished().await;
    assert_eq!(ended.code(), 0, "{}", ended.err);
    if ended.err.contains(GAVE_UP) {
        return false;
    }
    assert_eq!(
        fixture.client.depth(&fixture.parked()).await.unwrap(),
        COUNT,
        "they are there when it has ended"
    );
    let messages = fixture.client.get_all(&fixture.parked()).await.unwrap();
    let ids = messages.iter().map(|message| message.properties.message_id.clone().unwrap());
    assert!(ids.eq((0..COUNT).map(|n| n.to_string())), "in their order, after {more:?}");
    // Before 4.3, each return counts.
    if !is_before_4_3().await {
        let counted = messages.iter().filter_map(|it| it.headers.get("x-delivery-count")?.as_u64());
        assert_eq!(counted.max().unwrap_or(0), 0, "nothing was counted");
    }
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_does_not_answer_keeps_the_page_from_ending_for_a_few_seconds_only() {
    let (fixture, proxy) = slow_stock("ui-end-stuck").await;
    let tool = looking(&fixture, &proxy, "&all=1", 0).await;
    proxy.pause();
    tool.signal("TERM");
    let ended = tool.finished().await;
    assert_eq!(ended.code(), 0, "{}", ended.err);
    assert!(ended.err.contains(GAVE_UP), "{}", ended.err);
    proxy.cut();
    fixture.has_depth(&fixture.parked(), COUNT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_moved_from_a_page_is_exported_before_the_process_ends() {
    let fixture = Fixture::new("ui-end-counted").await;
    fixture.declare().await;
    stock::park_bytes(&fixture, b"x".to_vec(), "one").await;
    fixture.has_depth(&fixture.parked(), 1).await;
    let collector =
        Endpoint::start(|_| async { with(200, "content-type", "application/x-protobuf") }).await;
    let arguments =
        ["ui", "--queue", &fixture.queue, "--listen", "127.0.0.1:0", "--allow", "discard"];
    let tool = Tool::start(&arguments, collector.as_metrics_collector(&fixture.settings));
    let (authority, cookie) = enter(&tool).await;
    let path = format!("/plan/discard?queue={}", encode(&fixture.queue));
    let planned = async || match ask(&authority, &path, &cookie).await {
        plan if plan.body.contains("Still reading") => Err(plan.body),
        _ => Ok(true),
    };
    eventually(SOON, "the plan is there", planned).await.unwrap();
    let plan = ask(&authority, &path, &cookie).await;
    let form = plan.field("form");
    let fields =
        [("form", form.as_str()), ("expect", "1"), ("queue", &fixture.queue), ("why", "a test")];
    let begun = submit(&authority, "/plan/discard", &cookie, &fields).await;
    assert_eq!(begun.status, 303, "{begun:?}");
    fixture.has_depth(&format!("{}.discarded", fixture.namespace.name()), 1).await;
    tool.stop().await;
    // Texts are written as they are, between numbers.
    let exported: Vec<_> = collector.arrived().iter().map(Arrived::text).collect();
    let parts = ["rehop.parked.moved", "discard", &fixture.parked(), "rehop ui"];
    assert!(
        exported.iter().any(|text| parts.iter().all(|part| text.contains(part))),
        "{parts:?} are in {exported:?}"
    );
}
