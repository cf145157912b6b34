//! Testing a handler without a broker: a single attempt, and a whole service on a simulated broker,
//! in virtual time.
//!
//! In a service, each function is a test: the first a `#[tokio::test]`, the second a plain
//! `#[test]`. `rehop_testing::Broker` is for tests on a real RabbitMQ.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use std::time::Duration;

use rehop::testing::message;
use rehop::{Failure, Message, Service, Settings};
use rehop_worlds::{Fate, Stop, World};

/// The shop opens at the third attempt.
async fn ship(order: Message<u64>) -> Result<(), Failure> {
    match (order.body, order.attempt()) {
        (0, _) => Err(Failure::permanent("there is no order 0")),
        (_, 1 | 2) => Err(Failure::transient("the shop is closed")),
        _ => Ok(()),
    }
}

/// The service, as it runs in production.
async fn serve(stop: Stop) -> Result<(), rehop::Error> {
    Service::new(&Settings::default())
        .consumer("orders", ship)
        .with_graceful_shutdown(stop)
        .await
        .map(drop)
}

/// The handler is a function, and the message is built as it would come.
#[tokio::main(flavor = "current_thread")]
async fn one_attempt() {
    assert!(ship(message(7).attempt(3).build()).await.is_ok());
    let failure = ship(message(7).build()).await.expect_err("the first attempt fails");
    println!("attempt 1: {}", failure.message());
}

/// All attempts, with the default policy: no wait takes any time.
fn a_whole_service() {
    let mut world = World::new(7);
    world.start(serve);
    let [order, nothing] = [7, 0].map(|order| world.publish("orders", &order));
    assert!(world.settle(Duration::from_secs(3600)), "each message comes to an end");
    let deliveries = world.deliveries(&order);
    for delivery in &deliveries {
        println!("order 7 comes after {} s", (delivery.at - deliveries[0].at).as_secs());
    }
    assert_eq!(world.fate(&order), Fate::Gone);
    println!("order 0 is {:?}", world.fate(&nothing));
}

fn main() {
    one_attempt();
    a_whole_service();
}
