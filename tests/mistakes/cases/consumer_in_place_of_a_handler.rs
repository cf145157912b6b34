// says: does not handle a `Message<
use rehop::{Consumer, Failure, Message, Service};

async fn charge(_: Message<u64>) -> Result<(), Failure> {
    Ok(())
}

pub fn run(service: Service) -> Service {
    service.consumer("orders", Consumer::new("orders", charge))
}
