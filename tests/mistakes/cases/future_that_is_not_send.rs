// says: `Send`
// says: Rc<
use std::rc::Rc;

use rehop::{Failure, Message, Service};

async fn charge(_: Message<u64>) -> Result<(), Failure> {
    let shared = Rc::new(1);
    std::future::ready(()).await;
    drop(shared);
    Ok(())
}

pub fn run(service: Service) -> Service {
    service.consumer("orders", charge)
}
