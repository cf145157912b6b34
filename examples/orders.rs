//! The smallest service: it takes orders from a queue, and survives whatever fails.
//!
//! `cargo run --example orders`, with a RabbitMQ on this machine or one that `REHOP_BROKER__URL` names.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use rehop::{Failure, Message, Settings};

#[derive(serde::Deserialize)]
struct Order {
    id: u64,
    amount: String,
}

async fn charge(order: &Order) -> Result<(), Failure> {
    let amount: u32 = order.amount.parse()?; // any error: tried again, as the settings say
    if amount == 0 {
        return Err(Failure::permanent("an order of nothing")); // parked now
    }
    println!("charged {amount} for order {}", order.id);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let settings = Settings::load()?;
    let summary = rehop::connect(&settings)
        .await?
        .consumer("orders", |order: Message<Order>| async move { charge(&order).await })
        .with_graceful_shutdown(async {
            let _ = tokio::signal::ctrl_c().await;
        })
        .await?;
    println!("{summary}");
    Ok(())
}
