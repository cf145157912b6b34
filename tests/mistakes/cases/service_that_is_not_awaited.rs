// says: nothing is consumed until it is awaited
use rehop::{Failure, Message, Service};

async fn charge(_: Message<u64>) -> Result<(), Failure> {
    Ok(())
}

pub fn run(service: Service) {
    service.consumer("orders", charge);
}
