//! SIGKILL: no handler, no flush, no farewell to the broker.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rehop::testing::{Publish, eventually};

use crate::support::{Endpoint, Fixture, SOON, status};

const KILLS: usize = 5;
const MESSAGES: usize = 40 * KILLS;
/// Work enough for the kills to meet it.
const WORK: Duration = Duration::from_millis(20);

/// One third is handled at the first attempt, one third after a wait, one third is parked.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_killed_again_and_again_loses_nothing() {
    // Above the number of kills, so that they park no message.
    let limit = (2 * KILLS).to_string();
    let fixture = Fixture::new("kills").await.with("REHOP_RETRY__DELIVERY_LIMIT", limit);
    let handled = Arc::new(Mutex::new(BTreeSet::new()));
    let log = handled.clone();
    let endpoint = Endpoint::start(move |arrived| {
        let log = log.clone();
        async move {
            // A request whose client is gone ends here.
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
    let messages = (0..MESSAGES).map(|id| Publish::to_queue(&fixture.queue).body(id.to_string()));
    fixture.client.publish_many(messages).await.unwrap();
    for kill in 1..=KILLS {
        endpoint.receives(endpoint.arrived().len() + 5).await;
        relay.signal("KILL");
        assert!(relay.finished().await.status.code().is_none(), "kill {kill} met a relay that had ended");
        assert!(*handled.lock().unwrap() != expected, "kill {kill} met a relay with nothing left to do");
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
        let one = fixture.parked(1).await.remove(0);
        assert_eq!(one.headers["rehop-reason"], "permanent", "{}", one.text());
        parked.insert(one.text().parse::<usize>().unwrap());
    }
    assert!(parked.iter().all(|id| id % 3 == 2), "{parked:?}");
    relay.stop().await;
}
