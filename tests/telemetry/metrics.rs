//! The metrics that the dashboard and the alerts ask for, as they arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Metric};
use rehop::testing::{Broker, Proxy, Publish, eventually};
use rehop::{Failure, Message, Raw};

use crate::collector::attribute;
use crate::support::{Fixture, Log, Running, SOON};
use crate::{collector, flush};

const TEMPLATE: &str = "messaging.destination.template";
const ALLOWED: [&str; 7] = [
    "messaging.system",
    "messaging.operation.name",
    TEMPLATE,
    "error.type",
    "rehop.outcome",
    "rehop.reason",
    "rehop.namespace",
];

/// One point's attributes.
type Attributes = BTreeMap<String, String>;

fn points(metric: &Metric) -> Vec<Attributes> {
    let plain = |attributes: &[KeyValue]| {
        attributes.iter().map(|it| (it.key.clone(), attribute(attributes, &it.key).unwrap())).collect()
    };
    let cumulative = AggregationTemporality::Cumulative;
    match metric.data.as_ref().unwrap() {
        Data::Gauge(gauge) => gauge.data_points.iter().map(|point| plain(&point.attributes)).collect(),
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

/// As Prometheus names them when it takes OTLP in.
fn prometheus_names(metric: &Metric) -> Vec<String> {
    let unit = match metric.unit.as_str() {
        "s" => "_seconds",
        unit if unit.starts_with('{') => "",
        unit => panic!("{} has the unit {unit:?}", metric.name),
    };
    let name = metric.name.replace('.', "_") + unit;
    match metric.data.as_ref().unwrap() {
        Data::Histogram(_) => ["_bucket", "_count", "_sum"].map(|suffix| name.clone() + suffix).to_vec(),
        Data::Sum(sum) if sum.is_monotonic => vec![name + "_total"],
        _ => vec![name],
    }
}

/// What the collector got last of our own metrics.
async fn newest() -> Vec<Metric> {
    flush().await;
    let newest = collector().arrived().metrics.last().cloned().unwrap_or_default();
    newest.into_iter().filter(|it| it.name.starts_with("rehop.") || it.name.starts_with("messaging.")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_that_is_asked_for_arrives_and_no_attribute_is_unbounded() {
    crate::set_up();
    let broker = Broker::shared().await;
    let proxy = Proxy::start(broker.amqp_url()).await.unwrap();
    let mut fixture = Fixture::new("metrics").await;
    fixture.declare().await;
    fixture.settings.broker.url = proxy.url_for(broker.amqp_url()).unwrap().into();
    let attempts = Log::default();
    let counter = attempts.clone();
    let running = Running::start(fixture.connect().await.consumer_with(
        fixture.queue.clone(),
        Raw,
        move |message: Message<bytes::Bytes>| {
            counter.push(());
            async move {
                match message.raw_body().as_ref() {
                    b"permanent" => Err(Failure::permanent("never")),
                    _ if message.attempt() == 1 => Err(Failure::transient("not yet")),
                    _ => Ok(()),
                }
            }
        },
    ));
    for body in ["permanent", "transient"] {
        fixture.client.publish(Publish::to_queue(&fixture.queue).body(body)).await.unwrap();
    }
    let of = |metrics: &[Metric], name: &str| -> Vec<Attributes> {
        let mut found: Vec<_> = metrics.iter().filter(|it| it.name == name).flat_map(points).collect();
        found.retain(|it| it.values().any(|value| value.contains(fixture.namespace.name())));
        found
    };
    eventually(SOON, "one handled, one parked, and the stray queue read", async || {
        let metrics = newest().await;
        let settled = of(&metrics, "rehop.settled");
        !of(&metrics, "rehop.stray").is_empty()
            && ["ack", "park"].iter().all(|outcome| settled.iter().any(|it| it["rehop.outcome"] == *outcome))
    })
    .await
    .unwrap();
    // A copy that is on its way when the connection breaks has to be sent again.
    proxy.delay(Duration::from_millis(300));
    let mut known = attempts.all().len();
    eventually(SOON, "a copy was sent again", async || {
        fixture.client.publish(Publish::to_queue(&fixture.queue).body("transient")).await.unwrap();
        if std::mem::replace(&mut known, attempts.all().len()) < known {
            // The first connection consumes; the others publish, one after the other.
            proxy.connections().iter().skip(1).for_each(rehop::testing::ProxyConnection::cut);
        }
        !of(&newest().await, "rehop.publish.retries").is_empty()
    })
    .await
    .unwrap();
    proxy.delay(Duration::ZERO);
    running.stop().await;

    let metrics = newest().await;
    let queue = Some(&fixture.queue);
    for metric in &metrics {
        for attributes in points(metric) {
            let unknown: Vec<_> = attributes.keys().filter(|key| !ALLOWED.contains(&key.as_str())).collect();
            assert!(unknown.is_empty(), "{} has {unknown:?}", metric.name);
        }
        let about_copies =
            ["messaging.client.sent.messages", "messaging.client.operation.duration", "rehop.publish.retries"];
        for attributes in of(&metrics, &metric.name) {
            if metric.name == "rehop.stray" {
                assert_eq!(attributes["rehop.namespace"], fixture.namespace.name());
            } else if !about_copies.contains(&metric.name.as_str()) {
                assert_eq!(attributes.get(TEMPLATE), queue, "{} is about the work queue", metric.name);
            }
        }
    }
    let sent: BTreeSet<_> =
        of(&metrics, "messaging.client.sent.messages").iter().map(|it| it[TEMPLATE].clone()).collect();
    assert_eq!(sent, BTreeSet::from([format!("{}.wait.100", fixture.namespace.name()), fixture.parked()]));
    let classes: BTreeSet<_> =
        of(&metrics, "messaging.process.duration").iter().map(|it| it.get("error.type").cloned()).collect();
    let expected = [None, Some("permanent".to_owned()), Some("transient".to_owned())];
    assert_eq!(classes, BTreeSet::from(expected), "success has no error.type");

    let emitted: BTreeSet<_> = metrics.iter().flat_map(prometheus_names).collect();
    let missing: Vec<_> = asked_for().into_iter().filter(|name| !emitted.contains(name)).collect();
    assert!(missing.is_empty(), "the dashboard or the alerts ask for {missing:?}; there is {emitted:?}");
}

/// Our metrics among those that the dashboard and the alert rules name.
fn asked_for() -> Vec<String> {
    let check = concat!(env!("CARGO_MANIFEST_DIR"), "/observability/check");
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
