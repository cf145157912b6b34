// says: Result<(),
use rehop::{Message, Service};

async fn charge(_: Message<u64>) {}

pub fn run(service: Service) -> Service {
    service.consumer("orders", charge)
}
