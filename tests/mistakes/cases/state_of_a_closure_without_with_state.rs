// says: does not handle a `Message<
// says: pass `rehop::with_state(state, handle)`
use std::sync::Arc;

use rehop::{Consumer, Failure, Message, Service};

pub fn run(service: Service) -> Service {
    let charge = |_: Message<u64>, _: Arc<u32>| async { Ok::<_, Failure>(()) };
    service.with_consumer(Consumer::new("orders", charge))
}
