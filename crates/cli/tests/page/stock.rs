//! Parked messages for the tests of the page.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rehop::Failure;
use rehop_testing::Publish;
use serde_json::json;

use crate::support::{Fixture, Running};

/// What would run if a page took any part of a message as markup.
pub(crate) const HOSTILE: &str = "\"><script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">{{7*7}}\u{1b}[31m\u{202e}";

/// Parks this many messages with errors that differ only in a number.
pub(crate) async fn park(fixture: &Fixture, count: usize) {
    let refusing = fixture
        .serve(|message| async move {
            let order: serde_json::Value =
                serde_json::from_slice(&message.body).unwrap_or_default();
            Err(Failure::transient(format!("no customer for order {}", order["id"]))
                .with_class("no_customer"))
        })
        .await;
    for number in 0..count {
        let body = json!({"id": number, "customer": {"name": "Ada", "password": "hunter2"}, "items": [1, 2]});
        let message = fixture
            .to_queue()
            .json(&body)
            .header("authorization", "Bearer hunter3")
            .message_id(format!("m-{number}"));
        fixture.client.publish(message).await.unwrap();
    }
    fixture.has_depth(&fixture.parked(), u32::try_from(count).unwrap()).await;
    refusing.stop().await;
}

/// Parks one message whose body, header, id, class and error are hostile, after two waits.
pub(crate) async fn park_hostile(fixture: &Fixture) {
    let failing =
        fixture.serve_always(Err(Failure::transient(HOSTILE).with_class("<b>class</b>"))).await;
    let message = fixture.to_queue().body(HOSTILE).header("x<i>y", HOSTILE).message_id(HOSTILE);
    fixture.client.publish(message).await.unwrap();
    fixture.has_depth(&fixture.parked(), 1).await;
    failing.stop().await;
}

/// A body directly in the parked queue, as if nobody knew anything of it.
pub(crate) async fn park_bytes(fixture: &Fixture, body: Vec<u8>, id: &str) {
    fixture
        .client
        .publish(Publish::to_queue(fixture.parked()).body(body).message_id(id))
        .await
        .unwrap();
}

/// A service that handles what is replayed, or parks it again, as the switch says.
pub(crate) async fn mended(fixture: &Fixture) -> (Running, Arc<AtomicBool>) {
    let works = Arc::new(AtomicBool::new(true));
    let switch = works.clone();
    let running = fixture.serve(move |_| {
        let works = switch.load(Ordering::SeqCst);
        async move { if works { Ok(()) } else { Err(Failure::permanent("still no customer")) } }
    });
    (running.await, works)
}
