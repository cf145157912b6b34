//! The collector becomes unreachable in the middle of a run, and comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rehop::telemetry::Telemetry;
use rehop_testing::eventually;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use super::collector::Collector;
use crate::alone;
use crate::support::{Fixture, Log, PROMPTLY, SOON};

/// Keeps the log lines about the exporters.
struct Said(Log<String>);

impl<S: tracing::Subscriber> Layer<S> for Said {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        if event.metadata().target().starts_with("rehop::telemetry") {
            let mut text = Text(String::new());
            event.record(&mut text);
            self.0.push(format!("{} {}", event.metadata().level(), text.0));
        }
    }
}

const ROUND: usize = 2_000;
/// Each message makes two spans.
const QUEUE: usize = 512;

/// A collector, what exports to it, and what is logged of that.
fn exporting() -> (Collector, Telemetry, Log<String>) {
    let (collector, said) = (Collector::start(), Log::default());
    let builder =
        rehop::telemetry::builder("orders").endpoint(collector.url()).without_subscriber();
    let telemetry = builder.init().unwrap();
    tracing_subscriber::registry()
        .with(telemetry.layer())
        .with(Said(said.clone()))
        .with(EnvFilter::new("info,lapin=off"))
        .init();
    (collector, telemetry, said)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_dies_and_returns_does_not_slow_the_consumer_down() {
    let variables = [
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "512"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "128"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "200"),
    ];
    if !alone(
        "outage::a_collector_that_dies_and_returns_does_not_slow_the_consumer_down",
        &variables,
    )
    .await
    {
        return;
    }
    let (collector, telemetry, said) = exporting();
    let fixture = Fixture::new("outage").await;
    let handled = Arc::new(AtomicUsize::new(0));
    let counter = handled.clone();
    let handler = move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, rehop::Failure>(()) }
    };
    let running = fixture.serve(handler).await;
    let round = async |number: usize| {
        let started = Instant::now();
        let messages = (0..ROUND).map(|_| fixture.to_queue().body("7"));
        fixture.client.publish_many(messages).await.unwrap();
        eventually(SOON, "the round is handled", async || {
            handled.load(Ordering::SeqCst) >= number * ROUND
        })
        .await
        .unwrap();
        started.elapsed()
    };
    let undisturbed = round(1).await;
    assert!(said.all().is_empty(), "{:?}", said.all());

    collector.kill();
    let before = collector.arrived().spans.len();
    let memory = resident_bytes();
    let disturbed = round(2).await;
    said.reaches(1).await;
    let (also_disturbed, grown) = (round(3).await, resident_bytes().saturating_sub(memory));
    // Other tests may have begun during one of them.
    let took = disturbed.min(also_disturbed);
    assert!(took < undisturbed * 4 + PROMPTLY, "{took:?} instead of {undisturbed:?}");
    assert!(grown < 64 << 20, "grew by {grown} bytes");
    assert_eq!(said.all().len(), 1, "one warning: {:?}", said.all());

    collector.start_again();
    eventually(SOON, "the exporters recover", async || {
        // A failed signal recovers when it next exports something, so each has something to export.
        tracing::info_span!("something").in_scope(|| tracing::info!("to export"));
        telemetry.flush().await.map_err(|error| error.to_string())?;
        let said = said.all();
        if said.len() > 1 { Ok(true) } else { Err(format!("{said:?}")) }
    })
    .await
    .unwrap();
    let late = collector.arrived().spans.len() - before;
    assert!(late <= 2 * QUEUE, "only what the queue holds was kept of the outage: {late}");
    let said = said.all();
    assert!(said[0].starts_with("WARN telemetry cannot be exported"), "{said:?}");
    assert!(said[1].starts_with("INFO telemetry is exported again"), "{said:?}");
    round(4).await;
    let summary = running.stop().await;
    assert_eq!(summary.handled, 4 * ROUND as u64, "nothing is lost");

    eventually(SOON, "what was recorded is exported", async || {
        telemetry.flush().await.map(|()| true)
    })
    .await
    .unwrap();
    collector.kill();
    tracing::info_span!("the last").in_scope(|| {});
    let started = Instant::now();
    let error = telemetry.shutdown().await.unwrap_err();
    assert!(started.elapsed() < PROMPTLY, "{:?}", started.elapsed());
    assert!(error.failures().any(|(signal, _)| signal == "traces"), "{error}");
    assert!(error.to_string().contains(&collector.url()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_refuses_everything_holds_nothing_up_and_is_told_of_once() {
    let test = "outage::a_collector_that_refuses_everything_holds_nothing_up_and_is_told_of_once";
    // Only what is flushed is exported.
    let variables = [
        ("OTEL_METRICS_EXPORTER", "none"),
        ("OTEL_LOGS_EXPORTER", "none"),
        ("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
    ];
    if !alone(test, &variables).await {
        return;
    }
    let (collector, telemetry, said) = exporting();
    let fixture = Fixture::new("refused").await;
    let handled = Log::default();
    let log = handled.clone();
    let running = fixture
        .serve(move |message: rehop::Message<bytes::Bytes>| {
            log.push(message.raw_body().clone());
            async { Ok::<_, rehop::Failure>(()) }
        })
        .await;
    let statuses = [400, 401, 403, 404, 413, 429];
    for (done, status) in statuses.into_iter().enumerate() {
        collector.arrived().refuses = Some(status);
        fixture.publish("7").await;
        handled.reaches(done + 1).await;
        // The attempt may end after its handler has been counted.
        tracing::info_span!("something").in_scope(|| {});
        let error = telemetry.flush().await.unwrap_err().to_string();
        // The port may look like the status.
        let error = error.replace(&collector.url(), "the collector");
        assert!(error.contains(&status.to_string()), "{error}");
    }
    let warned = said.all();
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].starts_with("WARN telemetry cannot be exported"), "{warned:?}");
    assert!(collector.arrived().spans.is_empty());
    collector.arrived().refuses = None;
    tracing::info_span!("something").in_scope(|| {});
    telemetry.flush().await.unwrap();
    assert!(said.all()[1].starts_with("INFO telemetry is exported again"), "{:?}", said.all());
    assert_eq!(running.stop().await.handled, statuses.len() as u64);
    telemetry.shutdown().await.unwrap();
}

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
