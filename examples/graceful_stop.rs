//! A service that Kubernetes or systemd can stop: SIGTERM lets running handlers finish.
//!
//! Set `shutdown.grace` a little below Kubernetes' `terminationGracePeriodSeconds` or systemd's
//! `TimeoutStopSec`: after these the process is killed, and the broker charges each message that it
//! held with a delivery.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use std::time::Duration;

use rehop::{Failure, Message, Publish, Publisher, Settings, Topology};

async fn handle(order: Message<u64>) -> Result<(), Failure> {
    println!("order {} has begun", order.body);
    tokio::time::sleep(Duration::from_secs(5)).await;
    println!("order {} is done", order.body);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // From here on a signal no longer kills the process.
    let shutdown = rehop::shutdown_signal();
    let mut settings = Settings::load()?;
    settings.namespace = "graceful_stop".to_owned();
    settings.shutdown.grace = Duration::from_secs(25);
    let queue = settings.queue_mut("graceful_stop.orders");
    queue.consume.concurrency = Some(1);

    Topology::of(&settings)?.declare(&settings).await?;
    let publisher = Publisher::connect(&settings).await?;
    for order in [7, 8] {
        publisher.publish(Publish::to_queue("graceful_stop.orders").json(&order)?).await?;
    }

    // A signal also ends the service while it connects: then it has handled nothing, and the
    // summary says so.
    let summary = rehop::Service::new(&settings)
        .consumer("graceful_stop.orders", handle)
        .with_graceful_shutdown(shutdown)
        .await?;
    println!("{summary}"); // order 8 is back in the queue; 3.10 and 4.0 count that as a delivery, and 4.3 does not
    Ok(())
}
