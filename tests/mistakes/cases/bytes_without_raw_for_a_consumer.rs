// says: `Json` does not decode bodies to
// says: .decode(rehop::Raw)
use rehop::bytes::Bytes;
use rehop::{Consumer, Failure, Message, Service};

async fn archive(_: Message<Bytes>) -> Result<(), Failure> {
    Ok(())
}

pub fn run(service: Service) -> Service {
    service.with_consumer(Consumer::new("orders", archive))
}
