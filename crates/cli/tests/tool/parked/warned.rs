//! A policy may make looking harmful, which only the management API shows.

use rehop_testing::{Publish, eventually};
use serde_json::json;

use super::message;
use crate::broker_api::BrokerApi;
use crate::examined::COUNTED;
use crate::support::Fixture;

impl Fixture {
    /// The lines in which a look at the parked messages warns.
    async fn warnings(&self, command: &[&str], management: &str) -> Vec<String> {
        let set = format!("broker.management_url={management}");
        let finished =
            self.tool(&[&["parked"], command, &["--set", &set]].concat()).finished().await;
        assert_eq!(finished.code(), 0, "{}", finished.err);
        finished
            .err
            .lines()
            .filter(|line| {
                ["delivery limit", "delivery-limit", "harmful"]
                    .iter()
                    .any(|part| line.contains(part))
            })
            .map(str::to_owned)
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_under_a_policy_with_a_lower_limit_warns_first_and_says_what_to_do() {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("warned").await;
    fixture.park_directly([message("seven")]).await;
    let (name, queue) = (fixture.namespace.name().to_owned(), fixture.queue.clone());
    let list: &[&str] = &["list", "--queue", &queue];
    api.has_counted(&[&fixture.parked(), &fixture.stray()]).await;
    assert_eq!(fixture.warnings(list, api.url()).await, [""; 0]);
    api.set_policy(&name, &format!("^{name}.*parked$"), json!({ "delivery-limit": 1000 })).await;
    // Not seen by looking: 3.10 and 4.0 count each look, and the tool warns of that too.
    eventually(COUNTED, "the policy is in effect", async || {
        Ok::<_, String>(api.policy_of(&fixture.parked()).await == name.as_str())
    })
    .await
    .unwrap();
    let show: &[&str] = &["show", "--queue", &queue, "seven"];
    let export: &[&str] = &["export", "--queue", &queue];
    for command in
        [list, show, export, &["replay", "--queue", &queue], &["discard", "--queue", &queue]]
    {
        let warnings = fixture.warnings(command, api.url()).await;
        let [warning] = &warnings[..] else { panic!("{command:?}: {warnings:?}") };
        let policy = format!("policy \"{name}\"");
        for part in [
            &fixture.parked(),
            &format!("{policy} sets delivery-limit 1000"),
            &format!("exclude the queue from {policy}"),
        ] {
            assert!(warning.contains(part.as_str()), "{part:?} is missing: {warning}");
        }
    }
    // The stray queue has no policy.
    assert_eq!(fixture.warnings(&["list", "--stray"], api.url()).await, [""; 0]);
    api.delete_policy(&name).await;
    // A management API that cannot be asked is no reason not to look.
    let [warning] = &fixture.warnings(list, "http://guest:hunter2@127.0.0.1:1").await[..] else {
        panic!("no warning")
    };
    assert!(warning.contains("127.0.0.1:1") && !warning.contains("hunter2"), "{warning}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_a_queue_with_a_low_limit_of_its_own_warns() {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("warned-own").await;
    let arguments = json!({ "x-queue-type": "quorum", "x-delivery-limit": 5 });
    fixture.client.declare_queue(&fixture.parked(), arguments).await.unwrap();
    fixture.client.publish(Publish::to_queue(fixture.parked()).body("a")).await.unwrap();
    let set = format!("broker.management_url={}", api.url());
    // Where looks count, it is refused after the warning.
    let listed = fixture
        .tool(&["parked", "list", "--queue", &fixture.queue, "--set", &set])
        .finished()
        .await;
    let warned = |line: &str| {
        line.contains(&fixture.parked()) && line.contains("the argument x-delivery-limit is 5,")
    };
    assert!(listed.err.lines().any(warned), "{}", listed.err);
}
