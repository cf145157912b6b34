//! The metrics that the dashboard and the alerts use, as they arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Metric, NumberDataPoint};
use rehop::{Failure, Message, Publish, Publisher};
use rehop_operator::parked::{DiscardRequest, Parked, Place};
use rehop_testing::eventually;
use serde_json::json;

use super::collector::attribute;
use crate::support::{Fixture, Log, SOON};
use crate::{collector, flush};

const TEMPLATE: &str = "messaging.destination.template";
const ALLOWED: [&str; 10] = [
    "messaging.system",
    "messaging.operation.name",
    TEMPLATE,
    "error.type",
    "rehop.outcome",
    "rehop.defer",
    "rehop.reason",
    "rehop.namespace",
    "rehop.parked_queue",
    "rehop.operation",
];

/// One point's attributes.
type Attributes = BTreeMap<String, String>;

fn points(metric: &Metric) -> Vec<Attributes> {
    let plain = |attributes: &[KeyValue]| {
        attributes
            .iter()
            .map(|it| (it.key.clone(), attribute(attributes, &it.key).unwrap()))
            .collect()
    };
    let cumulative = AggregationTemporality::Cumulative;
    match metric.data.as_ref().unwrap() {
        Data::Gauge(gauge) => {
            gauge.data_points.iter().map(|point| plain(&point.attributes)).collect()
        }
        Data::Sum(sum) => {
            assert_eq!(sum.aggregation_temporality(), cumulative, "{}", metric.name);
            sum.data_points.iter().map(|point| plain(&point.attributes)).collect()
        }
        Data::Histogram(histogram) => {
            assert_eq!(histogram.aggregation_temporality(), cumulative, "{}", metric.name);
            histogram.data_points.iter().map(|point| plain(&point.attributes)).collect()
        }
        other => panic!("{}: {other:?}", metric.name),
    }
}

/// The name that Prometheus gives to a metric that it receives over OTLP.
fn prometheus_names(metric: &Metric) -> Vec<String> {
    let unit = match metric.unit.as_str() {
        "s" => "_seconds",
        unit if unit.starts_with('{') => "",
        unit => panic!("{} has the unit {unit:?}", metric.name),
    };
    let name = metric.name.replace('.', "_") + unit;
    match metric.data.as_ref().unwrap() {
        Data::Histogram(_) => {
            ["_bucket", "_count", "_sum"].map(|suffix| name.clone() + suffix).to_vec()
        }
        Data::Sum(sum) if sum.is_monotonic => vec![name + "_total"],
        _ => vec![name],
    }
}

/// rehop's own metrics in the collector's last export.
pub(crate) async fn newest() -> Vec<Metric> {
    flush().await.unwrap();
    let newest = collector().arrived().metrics.last().cloned().unwrap_or_default();
    newest
        .into_iter()
        .filter(|it| it.name.starts_with("rehop.") || it.name.starts_with("messaging."))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_that_is_used_arrives_and_no_attribute_is_unbounded() {
    crate::set_up();
    let (fixture, proxy) = Fixture::behind_proxy("metrics").await;
    let attempts = Log::default();
    let counter = attempts.clone();
    let handler = move |message: Message<Bytes>| {
        counter.push(());
        async move {
            match message.raw_body().as_ref() {
                b"permanent" => Err(Failure::permanent("never")),
                _ if message.attempt() == 1 => Err(Failure::transient("not yet")),
                _ => Ok(()),
            }
        }
    };
    let running = fixture.serve(handler).await;
    for body in ["permanent", "transient"] {
        fixture.publish(body).await;
    }
    // The queue is consumed only when it is bound to the return exchange. Before that, its messages
    // would be strays.
    attempts.reaches(2).await;
    // As `rehop parked replay` sends it.
    let replayed =
        rehop_testing::Publish::to(format!("{}.return", fixture.namespace.name()), "order.created")
            .header("rehop-return-to", fixture.queue.as_str())
            .header("rehop-replay-run", "run")
            .header("rehop-replays", 1)
            .body("permanent");
    fixture.client.publish(replayed).await.unwrap();
    let of = |metrics: &[Metric], name: &str| -> Vec<Attributes> {
        let mut found: Vec<_> =
            metrics.iter().filter(|it| it.name == name).flat_map(points).collect();
        found.retain(|it| it.values().any(|value| value.contains(fixture.namespace.name())));
        found
    };
    eventually(
        SOON,
        "one handled, one parked, one parked again, and the depths read",
        async || {
            let metrics = newest().await;
            let settled = of(&metrics, "rehop.settled");
            let depths = ["rehop.stray", "rehop.parked.depth"];
            let replayed = of(&metrics, "rehop.replayed");
            depths.iter().all(|name| !of(&metrics, name).is_empty())
                && replayed.iter().any(|it| it["rehop.outcome"] == "park")
                && ["ack", "park"]
                    .iter()
                    .all(|outcome| settled.iter().any(|it| it["rehop.outcome"] == *outcome))
        },
    )
    .await
    .unwrap();
    // A copy that is in flight when the connection breaks has to be sent again.
    proxy.delay(Duration::from_millis(300));
    let mut known = attempts.all().len();
    eventually(SOON, "a copy was sent again", async || {
        fixture.publish("transient").await;
        if std::mem::replace(&mut known, attempts.all().len()) < known {
            // The first connection consumes; the later ones publish, one at a time.
            proxy.connections().iter().skip(1).for_each(rehop_testing::ProxyConnection::cut);
        }
        !of(&newest().await, "rehop.publish.retries").is_empty()
    })
    .await
    .unwrap();
    proxy.delay(Duration::ZERO);
    running.stop().await;
    let operator = Parked::open(&fixture.settings, Place::queue(&fixture.queue)).unwrap();
    let discarded =
        operator.discard(&DiscardRequest::default(), |_| {}, std::future::pending()).await.unwrap();
    assert!(discarded.tally.moved > 0, "{discarded:?}");

    let metrics = newest().await;
    let queue = Some(&fixture.queue);
    for metric in &metrics {
        for attributes in points(metric) {
            let unknown: Vec<_> =
                attributes.keys().filter(|key| !ALLOWED.contains(&key.as_str())).collect();
            assert!(unknown.is_empty(), "{} has {unknown:?}", metric.name);
        }
        let about_copies = [
            "messaging.client.sent.messages",
            "messaging.client.operation.duration",
            "rehop.publish.retries",
        ];
        for attributes in of(&metrics, &metric.name) {
            if metric.name == "rehop.stray" {
                assert_eq!(attributes["rehop.namespace"], fixture.namespace.name());
            } else if ["rehop.parked.depth", "rehop.parked.moved"].contains(&metric.name.as_str()) {
                assert_eq!(
                    (attributes.get(TEMPLATE), &attributes["rehop.parked_queue"]),
                    (queue, &fixture.parked())
                );
            } else if !about_copies.contains(&metric.name.as_str()) {
                assert_eq!(
                    attributes.get(TEMPLATE),
                    queue,
                    "{} is about the work queue",
                    metric.name
                );
            }
        }
    }
    let sent: BTreeSet<_> = of(&metrics, "messaging.client.sent.messages")
        .iter()
        .map(|it| it[TEMPLATE].clone())
        .collect();
    assert_eq!(
        sent,
        BTreeSet::from([format!("{}.wait.100", fixture.namespace.name()), fixture.parked()])
    );
    let classes: BTreeSet<_> = of(&metrics, "messaging.process.duration")
        .iter()
        .map(|it| it.get("error.type").cloned())
        .collect();
    let expected = [None, Some("permanent".to_owned()), Some("transient".to_owned())];
    assert_eq!(classes, BTreeSet::from(expected), "success has no error.type");

    let emitted: BTreeSet<_> = metrics.iter().flat_map(prometheus_names).collect();
    let missing: Vec<_> = asked_for().into_iter().filter(|name| !emitted.contains(name)).collect();
    assert!(
        missing.is_empty(),
        "the dashboard or the alerts ask for {missing:?}; there is {emitted:?}"
    );
}

/// Messages that a service publishes, beside the copies of its consumers.
#[tokio::test(flavor = "multi_thread")]
async fn published_messages_are_counted_by_destination_with_their_errors_and_not_by_routing_key() {
    crate::set_up();
    let fixture = Fixture::new("published-metrics").await;
    fixture.declare().await;
    let publisher = Publisher::connect(&fixture.settings).await.unwrap();
    let exchange = fixture.namespace.exchange("events");
    fixture.client.declare_exchange(&exchange, "topic", json!({})).await.unwrap();
    for _ in 0..2 {
        publisher.publish(Publish::to_queue(&fixture.queue)).await.unwrap();
    }
    publisher.publish(Publish::to(&exchange, "order.7")).await.unwrap_err();
    // Its caller does not wait for the confirm.
    assert!(publisher.publish(Publish::to_queue(&fixture.queue)).now_or_never().is_none());
    let metrics = newest().await;
    let is_published = |it: &Attributes| it["messaging.operation.name"] == "publish";
    for name in ["messaging.client.sent.messages", "messaging.client.operation.duration"] {
        let mut found: Vec<_> =
            metrics.iter().filter(|it| it.name == name).flat_map(points).collect();
        found.retain(|it| is_published(it) && it[TEMPLATE].contains(fixture.namespace.name()));
        let told: BTreeSet<_> =
            found.iter().map(|it| (it[TEMPLATE].clone(), it.get("error.type").cloned())).collect();
        let expected = [
            (fixture.queue.clone(), None),
            (fixture.queue.clone(), Some("cancelled".to_owned())),
            (exchange.clone(), Some("unroutable".to_owned())),
        ];
        assert_eq!(told, BTreeSet::from(expected), "{name}");
        assert!(found.iter().all(
            |it| it["messaging.system"] == "rabbitmq" && !format!("{it:?}").contains("order.7")
        ));
    }
    let sent = metrics.iter().find(|it| it.name == "messaging.client.sent.messages").unwrap();
    let Some(Data::Sum(sum)) = &sent.data else { panic!("{sent:?}") };
    let to_queue = |point: &&NumberDataPoint| {
        attribute(&point.attributes, TEMPLATE).as_ref() == Some(&fixture.queue)
            && attribute(&point.attributes, "messaging.operation.name").as_deref()
                == Some("publish")
            && attribute(&point.attributes, "error.type").is_none()
    };
    assert_eq!(sum.data_points.iter().find(to_queue).unwrap().value, Some(Value::AsInt(2)));
}

/// rehop's metrics among those that the dashboard and the alert rules name.
fn asked_for() -> Vec<String> {
    let check = concat!(env!("CARGO_MANIFEST_DIR"), "/../observability/check");
    let output = std::process::Command::new(check).arg("--metrics").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).unwrap();
    let ours: Vec<_> = names
        .lines()
        .filter(|it| it.starts_with("rehop_") || it.starts_with("messaging_"))
        .map(str::to_owned)
        .collect();
    assert!(ours.len() > 5, "{ours:?}");
    ours
}
