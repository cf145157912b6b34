// says: `Declined` does not convert into a `Failure`
// says: implements `std::error::Error`
use rehop::{Message, Service};

pub struct Declined;

async fn charge(_: Message<u64>) -> Result<(), Declined> {
    Err(Declined)
}

pub fn run(service: Service) -> Service {
    service.consumer("orders", charge)
}
