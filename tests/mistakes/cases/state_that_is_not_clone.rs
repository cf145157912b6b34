// says: Clone
use rehop::{Failure, Message, Service, with_state};

struct Pool;

async fn charge(_: Message<u64>, _: Pool) -> Result<(), Failure> {
    Ok(())
}

pub fn run(service: Service) -> Service {
    service.consumer("orders", with_state(Pool, charge))
}
