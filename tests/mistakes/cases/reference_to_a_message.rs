// says: does not handle a `Message<
// says: async fn handle(message: Message<Body>) -> Result<(), Failure>
use rehop::{Failure, Message, Service};

async fn charge(_: &Message<u64>) -> Result<(), Failure> {
    Ok(())
}

pub fn run(service: Service) -> Service {
    service.consumer("orders", charge)
}
