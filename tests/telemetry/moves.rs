//! What operators move is counted where the move is confirmed.

use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;

use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use rehop_operator::parked::{
    DiscardRequest, EditRequest, Filter, ImportRequest, Parked, Place, RampSettings, ReplayRequest,
    RestoreRequest,
};
use rehop_testing::Publish;

use super::collector::attribute;
use super::metrics::newest;
use crate::support::Fixture;

/// How many of the fixture's messages were moved: by operation, the queue in which they rested or
/// came to rest, and their work queue.
async fn moved(fixture: &Fixture) -> BTreeMap<(String, String, Option<String>), i64> {
    let metrics = newest().await;
    let counters = metrics
        .iter()
        .filter(|metric| metric.name == "rehop.parked.moved")
        .map(|metric| &metric.data);
    let points = counters.flat_map(|data| match data {
        Some(Data::Sum(sum)) if sum.is_monotonic => &sum.data_points[..],
        other => panic!("{other:?}"),
    });
    let counts = points.map(|point| {
        let of = |key| attribute(&point.attributes, key);
        let Some(Value::AsInt(count)) = point.value else { panic!("{point:?}") };
        let (operation, resting) =
            (of("rehop.operation").unwrap(), of("rehop.parked_queue").unwrap());
        ((operation, resting, of("messaging.destination.template")), count)
    });
    counts.filter(|((_, resting, _), _)| resting.contains(fixture.namespace.name())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_operators_move_is_counted_by_operation_and_queue_and_looks_are_not() {
    crate::set_up();
    let fixture = Fixture::new("moves").await;
    fixture.declare().await;
    let message =
        |n: u32| Publish::to_queue(fixture.parked()).message_id(n.to_string()).body(n.to_string());
    fixture.client.publish_many((0..5).map(message)).await.unwrap();
    fixture.has_depth(&fixture.parked(), 5).await;
    let operator = Parked::open(&fixture.settings, Place::queue(&fixture.queue)).unwrap();
    let bin = Parked::open(&fixture.settings, Place::Discarded).unwrap();
    let mut exported = Vec::new();
    let sink = |message| {
        exported.push(message);
        true
    };
    operator.export(&Filter::default(), None, sink).await.unwrap();
    assert_eq!(moved(&fixture).await, BTreeMap::new());

    let mut discard = DiscardRequest::default();
    discard.filter.limit = Some(2);
    let discarded = operator.discard(&discard, |_| {}, pending()).await.unwrap();
    let mut restore = RestoreRequest::default();
    restore.filter = Filter::run(discarded.run);
    bin.restore(&restore, |_| {}, pending()).await.unwrap();
    fixture.has_depth(&fixture.parked(), 5).await;
    let mut replay = ReplayRequest::default();
    replay.filter.chains = ["2", "3", "4"].map(str::to_owned).to_vec();
    (replay.ramp, replay.follow) = (RampSettings::none(), Duration::ZERO);
    operator.replay(&replay, |_| {}, pending()).await.unwrap();
    let mut edit = EditRequest::new("0", "mended");
    edit.follow = Duration::ZERO;
    operator.edit(&edit).await.unwrap();
    operator
        .import(&ImportRequest::default(), exported.into_iter().map(Ok), pending())
        .await
        .unwrap();

    let parked = |operation: &str, count| {
        ((operation.to_owned(), fixture.parked(), Some(fixture.queue.clone())), count)
    };
    // The discarded messages belong to any queue, so it is not said to which.
    let restored = ("restore".to_owned(), fixture.parked(), None);
    let expected = [
        parked("discard", 2),
        parked("replay", 3),
        parked("edit", 1),
        parked("import", 4),
        (restored, 2),
    ];
    assert_eq!(moved(&fixture).await, BTreeMap::from(expected));
    fixture.has_depth(&fixture.parked(), 5).await;
}
