// says: `Json` does not decode bodies to `Order`
// says: #[derive(serde::Deserialize)]
use rehop::{Failure, Message, Service};

pub struct Order;

async fn charge(_: Message<Order>) -> Result<(), Failure> {
    Ok(())
}

pub fn run(service: Service) -> Service {
    service.consumer("orders", charge)
}
