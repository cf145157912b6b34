//! Taking over a queue that another program declares. Its arguments are left alone.
//!
//! `src/docs/migration.md` says what such a queue should have, such as a dead-letter exchange.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use std::time::Duration;

use rehop::settings::{Declare, QueueType};
use rehop::{Failure, Message, RetryPolicy, Settings};

async fn handle(order: Message<u64>) -> Result<(), Failure> {
    println!("order {}, attempt {}", order.body, order.attempt());
    if order.attempt() == 1 { Err(Failure::transient("not yet")) } else { Ok(()) }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = rehop::shutdown_signal();
    let mut settings = Settings::load()?;
    settings.namespace = "takeover".to_owned();
    let queue = settings.queue_mut("takeover.orders");
    queue.declare = Declare::Existing;
    queue.queue_type = Some(QueueType::Classic);
    queue.retry = RetryPolicy::builder().immediate(0).delays([Duration::from_millis(100)]).into();

    // Without the queue this ends with an error that names it.
    let summary = rehop::Service::new(&settings)
        .consumer("takeover.orders", handle)
        .with_graceful_shutdown(shutdown)
        .await?;
    println!("{summary}");
    Ok(())
}
