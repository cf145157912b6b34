//! The smallest service: it takes orders from a queue and retries those that fail.
//!
//! Run it with `cargo run -p rehop-examples --bin orders`, and a RabbitMQ on this machine or one that `REHOP_BROKER__URL` names.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use rehop::{Failure, Message, Settings};

#[derive(serde::Deserialize)]
struct Order {
    id: u64,
    amount: String,
}

async fn charge(order: Message<Order>) -> Result<(), Failure> {
    println!("order {}, attempt {}", order.id, order.attempt());
    let amount: u32 = order.amount.parse()?; // any error is retried as configured
    if amount == 0 {
        return Err(Failure::permanent("the amount is zero")); // parked now
    }
    println!("order {} is charged", order.id);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = rehop::shutdown_signal(); // SIGTERM counts from here on
    let mut settings = Settings::load()?;
    settings.namespace = "billing".to_owned(); // begins the names of all that rehop declares
    let summary = rehop::connect_until(&settings, shutdown).await?.consumer("orders", charge).await?;
    println!("{summary}");
    Ok(())
}
