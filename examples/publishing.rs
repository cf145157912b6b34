//! A service that publishes: an order that is charged becomes an invoice in another queue.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use std::time::{Duration, SystemTime};

use rehop::{Failure, Message, Publish, Publisher, Settings, Topology, with_state};

#[derive(serde::Serialize, serde::Deserialize)]
struct Order {
    id: u64,
}

async fn charge(order: Message<Order>, publisher: Publisher) -> Result<(), Failure> {
    println!("charged order {}", order.body.id);
    // The id is the same on every attempt, so a second invoice for this order is recognised as a
    // duplicate.
    let invoice =
        Publish::to_queue("publishing.invoices").message_id(format!("invoice-{}", order.body.id));
    publisher.publish(invoice.json(&order.body)?).await?; // if this fails, the order is retried
    Ok(())
}

async fn send(invoice: Message<Order>) -> Result<(), Failure> {
    println!("sent {} for order {}", invoice.message_id().unwrap_or("an invoice"), invoice.body.id);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = rehop::shutdown_signal();
    let mut settings = Settings::load()?;
    settings.namespace = "publishing".to_owned();
    for queue in ["publishing.orders", "publishing.invoices"] {
        settings.queue_mut(queue);
    }
    // A queue must exist before anything is published to it.
    Topology::of(&settings)?.declare(&settings).await?;

    let publisher = Publisher::connect(&settings).await?;
    let order = || Publish::to_queue("publishing.orders").json(&Order { id: 7 });
    publisher.publish(order()?.deadline(SystemTime::now() + Duration::from_secs(3600))).await?;
    for message in [
        order()?.deadline(SystemTime::now() - Duration::from_secs(60)),
        Publish::to_queue("nowhere"),
        Publish::to("no.such.exchange", "key"),
    ] {
        if let Err(error) = publisher.publish(message).await {
            println!("error: {error}");
        }
    }

    let summary = rehop::Service::new(&settings)
        .consumer("publishing.orders", with_state(publisher.clone(), charge))
        .consumer("publishing.invoices", send)
        .with_graceful_shutdown(shutdown)
        .await?;
    publisher.close().await;
    println!("{summary}");
    Ok(())
}
