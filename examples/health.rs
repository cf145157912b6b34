//! Probes and metrics of a service: `/livez`, `/readyz` and `/metrics`, by the feature
//! `monitoring`.
//!
//! Restart a service on `/livez` alone. One that has lost its broker is not ready, but it is alive,
//! and reconnects by itself.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use rehop::{Failure, Message, Settings};

async fn handle(order: Message<u64>) -> Result<(), Failure> {
    println!("order {} is handled", order.body);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = rehop::shutdown_signal();
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:9464".to_owned());
    let mut settings = Settings::load()?;
    settings.namespace = "health".to_owned();

    // From here on /livez answers, and /readyz says what is missing.
    let monitoring = rehop::monitoring::start("health", &address).await?;
    println!("probes at http://{address}/readyz");
    let service = rehop::Service::new(&settings)
        .consumer("health.orders", handle)
        .with_graceful_shutdown(shutdown);
    monitoring.watch(service.status());
    let summary = service.await?;
    println!("{summary}");
    Ok(())
}
