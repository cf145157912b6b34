//! The smallest service: it takes orders from a queue and retries those that fail.
//!
//! Run it with `cargo run -p rehop-examples --bin orders`, and a RabbitMQ on this machine or one
//! that `REHOP_BROKER__URL` names. A `rehop.toml` in the working directory sets its namespace; the
//! default is the program's name, `orders`.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use rehop::{Failure, Message, Service, Settings};

#[derive(serde::Deserialize)]
struct Order {
    id: u64,
    amount: String,
}

async fn charge(order: Message<Order>) -> Result<(), Failure> {
    let Order { id, amount } = &order.body;
    println!("order {id}, attempt {}", order.attempt());
    let amount: u32 = amount.parse()?; // any error is retried as configured
    if amount == 0 {
        return Err(Failure::permanent("the amount is zero")); // parked now
    }
    println!("order {id} is charged");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Logs go to standard error, without those of lapin, the AMQP client: its warnings may quote
    // messages, and rehop logs its errors.
    tracing_subscriber::fmt().with_env_filter("info,lapin=off").with_writer(std::io::stderr).init();
    let shutdown = rehop::shutdown_signal(); // SIGTERM counts from here on
    let settings = Settings::load()?;
    let summary =
        Service::new(&settings).consumer("orders", charge).with_graceful_shutdown(shutdown).await?;
    println!("{summary}");
    Ok(())
}
