//! Testing a handler without a broker: a single attempt, and a message's whole way in virtual time.
//!
//! In a service, each part of `main` is a test. `rehop_testing::Broker` is for tests on a real RabbitMQ.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use rehop::testing::{chain, message};
use rehop::{Failure, Message, Outcome};

/// The shop opens at the third attempt.
async fn ship(order: Message<u64>) -> Result<(), Failure> {
    match (order.body(), order.attempt()) {
        (0, _) => Err(Failure::permanent("there is no order 0")),
        (_, 1 | 2) => Err(Failure::transient("the shop is closed")),
        _ => Ok(()),
    }
}

#[tokio::main]
async fn main() {
    // One attempt: the handler is a function, and the message is built as it would come.
    assert!(ship(message(7).attempt(3).build()).await.is_ok());
    let failure = ship(message(7).build()).await.expect_err("the first attempt fails");
    println!("attempt 1: {}", failure.message());

    // All attempts, with the default policy: no wait takes any time.
    let run = chain(message(7), ship).await;
    println!("{run}");
    assert_eq!(run.end, Outcome::Ack);
    println!("{}", chain(message(0), ship).await);
}
