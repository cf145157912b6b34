//! What a handler can return, and what then happens to the message.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use std::time::Duration;

use rehop::settings::Treatment;
use rehop::{Failure, Message, Publish, Publisher, RetryPolicy, Settings, Topology};

async fn handle(order: Message<String>) -> Result<(), Failure> {
    println!("{}, attempt {}", order.body, order.attempt());
    match order.body.as_str() {
        "fine" => Ok(()),
        "unreadable" => {
            let _: u32 = "seven".parse()?; // any error is transient
            Ok(())
        }
        "busy" => Err(Failure::transient("the shop is busy").after(Duration::from_millis(50))), // waits at least that long
        // Nothing failed: it is the same attempt, some time later.
        "early" if order.defers() == 0 => Err(Failure::defer(Duration::from_millis(50))),
        "early" => Ok(()),
        "locked" => Err(Failure::requeue("another order holds the lock")), // retried immediately, while that lasts
        "empty" => Err(Failure::permanent("an order without items")),      // parked now
        "cancelled" => Err(Failure::discard("the customer cancelled it")), // acked and counted
        // Not classified here, but by the settings below: permanent.
        "unpaid" => {
            Err(Failure::from(std::io::Error::other("the card was refused")).with_class("unpaid"))
        }
        _ => panic!("a bug"), // transient, and other messages are unaffected
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = rehop::shutdown_signal();
    let mut settings = Settings::load()?;
    settings.namespace = "failures".to_owned();
    settings.queue_mut("failures.orders");
    let policy = RetryPolicy::builder().immediate(1).delays([Duration::from_millis(100)]);
    settings.retry = policy.error("unpaid", Treatment::Permanent).into();

    Topology::of(&settings)?.declare(&settings).await?;
    let publisher = Publisher::connect(&settings).await?;
    for order in
        ["fine", "unreadable", "busy", "early", "locked", "empty", "cancelled", "unpaid", "other"]
    {
        publisher.publish(Publish::to_queue("failures.orders").json(&order)?).await?;
    }

    let summary = rehop::Service::new(&settings)
        .consumer("failures.orders", handle)
        .with_graceful_shutdown(shutdown)
        .await?;
    println!("{summary}");
    Ok(())
}
