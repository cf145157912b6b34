//! Bodies that are not JSON: bytes as they are, and a format of the service's own.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use rehop::bytes::Bytes;
use rehop::{Consumer, Decode, DecodeError, Encoded, Failure, Message, Raw};
use rehop::{Publish, Publisher, Settings, Topology};

struct Order {
    id: u64,
    item: String,
}

/// Orders as `7;a blue lamp`.
struct Semicolons;

impl Decode<Order> for Semicolons {
    // An error must not quote the body, because it is logged and kept with the parked message.
    fn decode(&self, encoded: &Encoded<'_>) -> Result<Order, DecodeError> {
        let text = std::str::from_utf8(encoded.body()).map_err(DecodeError::new)?;
        let (id, item) =
            text.split_once(';').ok_or_else(|| DecodeError::new("there is no semicolon"))?;
        Ok(Order { id: id.parse().map_err(DecodeError::new)?, item: item.to_owned() })
    }
}

async fn ship(order: Message<Order>) -> Result<(), Failure> {
    println!("shipped {} for order {}", order.body.item, order.body.id);
    Ok(())
}

async fn archive(picture: Message<Bytes>) -> Result<(), Failure> {
    println!(
        "archived {} bytes of {}",
        picture.body.len(),
        picture.content_type().unwrap_or("an unknown type")
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = rehop::shutdown_signal();
    let mut settings = Settings::load()?;
    settings.namespace = "decoding".to_owned();
    let (orders, pictures) = ("decoding.orders", "decoding.pictures");
    for queue in [orders, pictures] {
        settings.queue_mut(queue);
    }
    Topology::of(&settings)?.declare(&settings).await?;
    let publisher = Publisher::connect(&settings).await?;
    publisher.publish(Publish::to_queue(orders).bytes("7;a blue lamp")).await?;
    publisher.publish(Publish::to_queue(orders).bytes("seven")).await?; // parked at once: no retry can mend it
    publisher
        .publish(Publish::to_queue(pictures).bytes(vec![0x89, 0xff]).content_type("image/png"))
        .await?;

    let summary = rehop::Service::new(&settings)
        .with_consumer(Consumer::new(orders, ship).decode(Semicolons))
        .with_consumer(Consumer::new(pictures, archive).decode(Raw))
        .with_graceful_shutdown(shutdown)
        .await?;
    println!("{summary}");
    Ok(())
}
