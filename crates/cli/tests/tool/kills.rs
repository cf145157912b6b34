//! SIGKILL: no signal handler, no flush, no closing of connections.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rehop_testing::eventually;

use super::endpoint::{Endpoint, status};
use crate::support::{Fixture, SOON};

const KILLS: usize = 5;
const MESSAGES: usize = 60 * KILLS;
/// Long enough for the kills to interrupt it.
const WORK: Duration = Duration::from_millis(100);

/// One third is handled at the first attempt, one third after a wait, one third is parked.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_killed_again_and_again_loses_nothing() {
    let mut fixture = Fixture::new("kills").await;
    // Above the number of kills, so that they park no message.
    fixture.settings.retry.delivery_limit = Some(2 * KILLS as u32);
    let handled = Arc::new(Mutex::new(BTreeSet::new()));
    let log = handled.clone();
    let endpoint = Endpoint::start(move |arrived| {
        let log = log.clone();
        async move {
            // The request of a killed client ends here.
            tokio::time::sleep(WORK).await;
            let id: usize = arrived.text().parse().unwrap();
            match (id % 3, arrived.header("rehop-attempt")) {
                (1, Some("1")) => status(503),
                (2, _) => status(422),
                _ => {
                    log.lock().unwrap().insert(id);
                    status(200)
                }
            }
        }
    })
    .await;
    let expected: BTreeSet<_> = (0..MESSAGES).filter(|id| id % 3 != 2).collect();
    let mut relay = fixture.relay(&endpoint.url, &["--concurrency", "4"]).await;
    let messages = (0..MESSAGES).map(|id| fixture.to_queue().body(id.to_string()));
    fixture.client.publish_many(messages).await.unwrap();
    for kill in 1..=KILLS {
        endpoint.receives(endpoint.arrived().len() + 5).await;
        relay.signal("KILL");
        assert!(
            relay.finished().await.status.code().is_none(),
            "kill {kill} met a relay that had ended"
        );
        assert!(
            *handled.lock().unwrap() != expected,
            "kill {kill} met a relay with nothing left to do"
        );
        relay = fixture.relay(&endpoint.url, &["--concurrency", "4"]).await;
    }
    eventually(SOON, "everything is handled", async || {
        let missing: Vec<_> = expected.difference(&handled.lock().unwrap()).copied().collect();
        if missing.is_empty() { Ok(true) } else { Err(format!("missing: {missing:?}")) }
    })
    .await
    .unwrap();
    let mut parked = BTreeSet::new();
    while parked.len() < MESSAGES / 3 {
        let one = fixture.drain_parked(1).await.remove(0);
        assert_eq!(one.headers["rehop-reason"], "permanent", "{}", one.text());
        parked.insert(one.text().parse::<usize>().unwrap());
    }
    assert!(parked.iter().all(|id| id % 3 == 2), "{parked:?}");
    relay.stop().await;
}
