// says: does not handle a `Message<
// says: pass `rehop::with_state(state, handle)`
use std::sync::Arc;

use rehop::{Failure, Message, Service};

async fn charge(_: Message<u64>, _: Arc<u32>) -> Result<(), Failure> {
    Ok(())
}

pub fn run(service: Service) -> Service {
    service.consumer("orders", charge)
}
