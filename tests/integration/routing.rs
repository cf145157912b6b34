//! Copies go where they belong, or to the stray queue if that does not exist.

use rehop::{Consumer, Failure, Message, Raw};
use rehop_testing::Publish;
use serde_json::json;

use crate::support::{Fixture, Log, Running, SOON, failures};

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_wait_queue_is_gone_ends_in_the_stray_queue() {
    let fixture = Fixture::new("stray-wait").await;
    let run = fixture.serve_always(Err(Failure::transient("no"))).await;
    fixture.publish("first").await;
    fixture.drain_parked(1).await;
    fixture.client.delete_queue(&format!("{}.wait.100", fixture.namespace.name())).await.unwrap();
    fixture.client.publish(fixture.to_queue().body("stray").message_id("id")).await.unwrap();
    let stray = fixture.client.drain(&fixture.stray(), 1, SOON).await.unwrap().remove(0);
    run.stop().await;
    assert_eq!(
        (stray.text(), stray.properties.message_id.as_deref()),
        ("stray".to_owned(), Some("id"))
    );
    assert_eq!(stray.headers["rehop-return-to"], json!(fixture.queue));
    assert_eq!(failures(&stray)[0]["message"], "no");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_has_no_way_back_to_its_queue_ends_in_the_stray_queue() {
    let fixture = Fixture::new("stray-home").await;
    let run = fixture.serve_always(Err(Failure::transient("no"))).await;
    fixture.publish("first").await;
    fixture.drain_parked(1).await;
    let home = json!({ "x-match": "all", "rehop-return-to": fixture.queue });
    let return_exchange = format!("{}.return", fixture.namespace.name());
    fixture.client.unbind(&fixture.queue, &return_exchange, "", home).await.unwrap();
    fixture.publish("stray").await;
    let stray = fixture.client.drain(&fixture.stray(), 1, SOON).await.unwrap().remove(0);
    run.stop().await;
    assert_eq!(stray.text(), "stray");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_copy_without_its_queue_ends_in_the_stray_queue() {
    let fixture = Fixture::new("stray-parked").await;
    let run = fixture.serve_always(Err(Failure::permanent("no"))).await;
    fixture.publish("first").await;
    fixture.drain_parked(1).await;
    fixture.client.delete_queue(&fixture.parked()).await.unwrap();
    fixture.publish("stray").await;
    let stray = fixture.client.drain(&fixture.stray(), 1, SOON).await.unwrap().remove(0);
    run.stop().await;
    assert_eq!(stray.headers["rehop-reason"], "permanent");
}

/// Without an alternate exchange the broker confirms a copy that is in no queue. Such a confirm is
/// not trusted. The service continues once the exchange is restored.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_routed_nowhere_is_not_acked() {
    let fixture = Fixture::new("returned").await;
    let run = fixture.serve_always(Err(Failure::permanent("no"))).await;
    fixture.publish("first").await;
    fixture.drain_parked(1).await;
    let park = format!("{}.park", fixture.namespace.name());
    // The alternate exchange and all its bindings are gone.
    fixture.client.delete_exchange(&fixture.stray()).await.unwrap();
    fixture.client.unbind(&fixture.parked(), &park, &fixture.queue, json!({})).await.unwrap();
    fixture.publish("kept").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    assert_eq!(parked.text(), "kept");
    let summary = run.stop().await;
    assert_eq!(summary.parked.values().sum::<u64>(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_namespaces_do_not_touch() {
    let one = Fixture::new("ns-one").await;
    let mut two = Fixture::new("ns-two").await;
    two.settings.namespace = two.namespace.name().to_owned();
    let (seen_one, seen_two) = (Log::default(), Log::default());
    let (log_one, log_two) = (seen_one.clone(), seen_two.clone());
    let run_one = one
        .serve(move |_| {
            log_one.push(());
            async { Err(Failure::transient("no")) }
        })
        .await;
    let run_two = two
        .serve(move |_| {
            log_two.push(());
            async { Ok::<_, Failure>(()) }
        })
        .await;
    one.publish("x").await;
    let parked = one.drain_parked(1).await;
    two.publish("x").await;
    seen_two.reaches(1).await;
    let (one_summary, two_summary) = (run_one.stop().await, run_two.stop().await);
    assert_eq!(parked.len(), 1);
    assert_eq!((seen_one.all().len(), seen_two.all().len()), (3, 1));
    assert_eq!((one_summary.waited, two_summary.waited), (2, 0));
    for queue in [two.parked(), two.stray(), one.stray()] {
        assert_eq!(two.client.depth(&queue).await.unwrap(), 0, "{queue}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_queues_in_one_process_keep_apart_and_each_handlers_state_is_dropped_after_the_run()
{
    let fixture = Fixture::new("several").await;
    let states: Vec<_> = (0..3).map(|_| Log::default()).collect();
    let queues: Vec<_> =
        (0..3).map(|number| fixture.namespace.queue(&format!("q{number}"))).collect();
    let mut rehop = fixture.service();
    for (queue, state) in queues.iter().zip(&states) {
        let state = state.clone();
        rehop = rehop.with_consumer(
            Consumer::new(queue.clone(), move |message: Message<bytes::Bytes>| {
                let count = state.push(String::from_utf8(message.raw_body().to_vec()).unwrap());
                async move { if count == 1 { Err(Failure::transient("once")) } else { Ok(()) } }
            })
            .decode(Raw),
        );
    }
    let run = Running::start(rehop);
    for queue in &queues {
        fixture.is_declared(queue).await;
        fixture.client.publish(Publish::to_queue(queue).body(queue.as_bytes())).await.unwrap();
    }
    for (queue, state) in queues.iter().zip(&states) {
        assert_eq!(state.reaches(2).await, [queue.clone(), queue.clone()], "{queue}");
    }
    let summary = run.stop().await;
    assert_eq!((summary.handled, summary.waited), (3, 3));
    for state in states {
        assert_eq!(state.owners(), 1, "a handler's state outlives the run");
    }
}
