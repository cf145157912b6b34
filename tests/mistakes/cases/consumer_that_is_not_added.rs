// says: nothing is consumed until it is added to a service
use rehop::{Consumer, Failure, Message};

async fn charge(_: Message<u64>) -> Result<(), Failure> {
    Ok(())
}

pub fn run() {
    Consumer::new("orders", charge);
}
