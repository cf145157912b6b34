//! Queues with names that are hard to address: each is one finding, and hides nothing else.

use serde_json::{Value, json};

use super::broker_api::BrokerApi;
use crate::support::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_of_a_queue_with_an_odd_name_is_found_and_hides_nothing_else() {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("odd-names").await;
    fixture.declare().await;
    let namespace = fixture.namespace.name();
    let [returning, park] = ["return", "park"].map(|name| format!("{namespace}.{name}"));
    let odd = ["x[2", "a|b", "a^b", "c%5Bd", "e f/?#ü"].map(|name| fixture.namespace.queue(name));
    // No address of the API has these names, so they cannot have a prefix of this test's.
    let names: Vec<_> = odd.into_iter().chain([".", ".."].map(str::to_owned)).collect();
    for name in &names {
        fixture.client.declare_queue(name, json!({})).await.unwrap();
        let arguments = json!({ "x-match": "any", "rehop-return-to": fixture.queue });
        fixture.client.bind(name, &returning, "", arguments).await.unwrap();
    }
    let objects: Vec<_> = names.iter().map(|name| format!("queue {name:?} to exchange")).collect();
    let expected: Vec<_> =
        objects.iter().map(|object| ("foreign-binding", object.as_str())).collect();
    let look = ["--management", api.url()];
    fixture.is_found(&look, &expected).await;
    let report: Value = serde_json::from_str(&fixture.doctor(&look).await.out).unwrap();
    let unseen: Vec<_> =
        report["unseen"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    let of_names = unseen.iter().filter(|unseen| unseen.contains("no address"));
    assert_eq!(of_names.count(), 2, "{unseen:?}");

    fixture.client.unbind(&fixture.parked(), &park, &fixture.queue, json!({})).await.unwrap();
    let plan = fixture.topology("plan", &look).await;
    let binding = format!("create   binding of queue {:?}", fixture.parked());
    assert!(plan.code() == 3 && plan.out.contains(&binding), "{}{}", plan.out, plan.err);
    for name in &names {
        fixture.client.delete_queue(name).await.unwrap();
    }
}
