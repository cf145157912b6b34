//! A service under load, for the dashboard: it publishes orders steadily, and some of them fail, in
//! several ways.
//!
//! `docker compose -f observability/compose.yaml --profile load up --wait` runs it beside RabbitMQ,
//! Jaeger, Prometheus and Grafana.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use std::io::Error;
use std::time::Duration;

use rehop::{Backoff, Failure, Message, Publish, Publisher, Settings, Topology};

const QUEUE: &str = "load.orders";

async fn handle(order: Message<u64>) -> Result<(), Failure> {
    if order.body == 1 {
        println!("the first order is here; 20 follow each second");
    }
    tokio::time::sleep(Duration::from_millis(order.body % 50)).await;
    let failing = |class: &'static str| {
        Failure::from(Error::other("the order service said no")).with_class(class)
    };
    match order.body % 100 {
        0 if order.body.is_multiple_of(500) => {
            Err(Failure::permanent("an order without items").with_class("empty"))
        }
        50 => Err(failing("http_500")), // always: parked when its attempts are used up
        10..15 if order.attempt() < 3 => Err(failing("http_503")),
        20 if order.attempt() == 1 => Err(failing("http_429").after(Duration::from_secs(1))),
        _ => Ok(()),
    }
}

/// Twenty orders a second, and one a minute that no queue takes.
async fn publish(publisher: Publisher) {
    for order in 1_u64.. {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let queue = if order.is_multiple_of(1200) { "load.nowhere" } else { QUEUE };
        let published = match Publish::to_queue(queue).json(&order) {
            Ok(message) => publisher.publish(message).await,
            Err(error) => unreachable!("a number is JSON: {error}"),
        };
        if let Err(error) = published {
            eprintln!("order {order}: {error}");
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = rehop::shutdown_signal();
    let telemetry = rehop::telemetry::init("load")?;
    let mut settings = Settings::load()?;
    settings.namespace = "load".to_owned();
    settings.queue_mut(QUEUE);
    settings.retry.delays = Some(Backoff::List([1, 5, 15].map(Duration::from_secs).to_vec()));
    Topology::of(&settings)?.declare(&settings).await?;
    let publishing = tokio::spawn(publish(Publisher::connect(&settings).await?));
    let summary = rehop::Service::new(&settings)
        .consumer(QUEUE, handle)
        .with_graceful_shutdown(shutdown)
        .await?;
    publishing.abort();
    println!("{summary}");
    if let Err(error) = telemetry.shutdown().await {
        eprintln!("{error}");
    }
    Ok(())
}
