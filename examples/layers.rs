//! Layers of tower around handlers, by the feature `tower`: two queues share one limit, and a slow
//! attempt is given up.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use std::time::Duration;

use rehop::{
    Consumer, Failure, Message, Publish, Publisher, RetryPolicy, Settings, Topology, layered,
};
use tower::ServiceBuilder;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::timeout::error::Elapsed;

const QUEUES: [&str; 2] = ["layers.invoices", "layers.refunds"];

/// The ledger takes one entry at a time.
async fn book(entry: Message<String>) -> Result<(), Failure> {
    println!("{} begins, attempt {}", entry.body, entry.attempt());
    if entry.body.as_str() == "stuck" {
        std::future::pending::<()>().await;
    }
    println!("{} is booked", entry.body);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = rehop::shutdown_signal();
    let mut settings = Settings::load()?;
    settings.namespace = "layers".to_owned();
    settings.retry = RetryPolicy::builder().immediate(1).delays([]).into(); // no waits: after two attempts an entry is parked
    for queue in QUEUES {
        settings.queue_mut(queue);
    }

    Topology::of(&settings)?.declare(&settings).await?;
    let publisher = Publisher::connect(&settings).await?;
    for (queue, entry) in QUEUES.into_iter().zip(["stuck", "refund 7"]) {
        publisher.publish(Publish::to_queue(queue).json(&entry)?).await?;
    }

    // Both consumers get a clone of the limit, which shares its places. The timeout is inside:
    // waiting for a place costs no time.
    let layers = ServiceBuilder::new()
        .layer(GlobalConcurrencyLimitLayer::new(1))
        .timeout(Duration::from_millis(200));
    let mut service = rehop::Service::new(&settings);
    for queue in QUEUES {
        let consumer = Consumer::new(queue, layered(layers.clone(), book));
        service = service.with_consumer(
            consumer.classify(|error| error.is::<Elapsed>().then_some("ledger_timeout")),
        );
    }
    println!("{}", service.with_graceful_shutdown(shutdown).await?);
    Ok(())
}
