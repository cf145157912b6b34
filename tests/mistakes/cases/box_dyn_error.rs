// says: does not convert into a `Failure`
// says: `Box<dyn Error + Send + Sync>`
use std::error::Error;

use rehop::{Message, Service};

async fn charge(_: Message<u64>) -> Result<(), Box<dyn Error>> {
    Ok(())
}

pub fn run(service: Service) -> Service {
    service.consumer("orders", charge)
}
