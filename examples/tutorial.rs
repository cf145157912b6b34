//! The service of the tutorial, with its test.
//!
//! While a file named `closed` is in the working directory, every order fails.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use std::path::Path;

use rehop::{Failure, Message, Service, Settings};

#[derive(serde::Deserialize, serde::Serialize)]
struct Order {
    id: u64,
    amount: String,
}

async fn charge(order: Message<Order>) -> Result<(), Failure> {
    let Order { id, amount } = &order.body;
    println!("order {id}, attempt {}", order.attempt());
    if Path::new("closed").exists() {
        return Err(Failure::transient("the shop is closed").with_class("shop_closed"));
    }
    let amount: u32 = amount.parse()?;
    if amount == 0 {
        return Err(Failure::permanent("the amount is zero"));
    }
    println!("order {id} is charged");
    Ok(())
}

/// Runs until `stop` completes.
async fn serve(
    settings: Settings,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), rehop::Error> {
    let summary =
        Service::new(&settings).consumer("orders", charge).with_graceful_shutdown(stop).await?;
    println!("{summary}");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Logs go to standard error, without those of lapin, the AMQP client: its warnings may quote
    // messages, and rehop logs its errors.
    tracing_subscriber::fmt().with_env_filter("info,lapin=off").with_writer(std::io::stderr).init();
    let shutdown = rehop::shutdown_signal(); // SIGTERM counts from here on
    serve(Settings::load()?, shutdown).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rehop_worlds::{Fate, World};

    use super::*;

    #[test]
    fn an_order_that_always_fails_is_parked() {
        let mut world = World::new(7); // the same seed gives the same run
        world.start(|stop| serve(Settings::default(), stop));
        let order = world.publish("orders", &Order { id: 8, amount: "twelve".to_owned() });
        assert!(world.settle(Duration::from_secs(3600)), "it comes to an end");
        assert_eq!(world.deliveries(&order).len(), 8); // twice at first, and twice after each of three waits
        assert_eq!(world.fate(&order), Fate::In("orders.parked".to_owned()));
    }
}
