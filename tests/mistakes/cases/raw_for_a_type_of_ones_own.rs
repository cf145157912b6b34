// says: `Raw` does not decode bodies to `Order`
// says: `Raw` decodes to `Bytes`, `Vec<u8>` and `String`
use rehop::{Consumer, Failure, Message, Raw, Service};

#[derive(serde::Deserialize)]
pub struct Order;

async fn charge(_: Message<Order>) -> Result<(), Failure> {
    Ok(())
}

pub fn run(service: Service) -> Service {
    service.with_consumer(Consumer::new("orders", charge).decode(Raw))
}
