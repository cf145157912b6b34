// says: future
use rehop::{Failure, Message, Service};

fn charge(_: Message<u64>) -> Result<(), Failure> {
    Ok(())
}

pub fn run(service: Service) -> Service {
    service.consumer("orders", charge)
}
