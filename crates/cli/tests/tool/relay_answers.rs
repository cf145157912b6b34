//! What becomes of a message when its endpoint misbehaves.

use super::hostile::Hostile;
use crate::support::{Fixture, millis};

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
