// says: does not handle a `Message<
// says: let it take a `Message` of the body's type
use rehop::{Failure, Service};

async fn charge(_: u64) -> Result<(), Failure> {
    Ok(())
}

pub fn run(service: Service) -> Service {
    service.consumer("orders", charge)
}
