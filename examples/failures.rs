//! What a handler can return, and what then happens to the message.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use std::time::Duration;

use rehop::settings::Treatment;
use rehop::{Classify, Failure, Message, Verdict};
use rehop::{Publish, Publisher, RetryPolicy, Settings, Topology};

/// What can go wrong in this service, and what it means for the message.
#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error("the bank refused the card")]
    Refused,
    #[error("the bank is closed")]
    Closed,
}

impl Classify for OrderError {
    fn classify(&self) -> Verdict {
        match self {
            Self::Refused => Verdict::permanent().with_class("refused"),
            Self::Closed => Verdict::transient().after(Duration::from_millis(50)),
        }
    }
}

fn pay(order: &str) -> Result<(), OrderError> {
    if order == "refused" { Err(OrderError::Refused) } else { Err(OrderError::Closed) }
}

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
        "refused" | "closed" => Ok(pay(&order.body)?), // as `OrderError` says
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
    let broken = ["unreadable", "busy", "refused", "closed", "locked", "empty", "unpaid", "other"];
    for order in ["fine", "early", "cancelled"].into_iter().chain(broken) {
        publisher.publish(Publish::to_queue("failures.orders").json(&order)?).await?;
    }

    let summary = rehop::Service::new(&settings)
        .errors::<OrderError>()
        .consumer("failures.orders", handle)
        .with_graceful_shutdown(shutdown)
        .await?;
    println!("{summary}");
    Ok(())
}
