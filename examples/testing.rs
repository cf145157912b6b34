//! A service with its tests: one attempt, the whole service in virtual time, faults, and a real
//! broker.
//!
//! `cargo test -p rehop-examples --bin testing` runs the tests. Only the last one needs a broker.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use rehop::{Failure, Message, Service, Settings};

/// The shop opens at the third attempt, except for order 13.
async fn ship(order: Message<u64>) -> Result<(), Failure> {
    match (order.body, order.attempt()) {
        (0, _) => Err(Failure::permanent("there is no order 0")),
        (13, _) | (_, 1 | 2) => Err(Failure::transient("the shop is closed")),
        (number, attempt) => {
            println!("order {number} is shipped at attempt {attempt}");
            Ok(())
        }
    }
}

/// The service, as it runs in production and in tests.
async fn serve(
    settings: Settings,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), rehop::Error> {
    let service = Service::new(&settings).consumer("shipping", ship);
    let summary = service.with_graceful_shutdown(stop).await?;
    println!("{summary}");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = rehop::shutdown_signal();
    serve(Settings::load()?, shutdown).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rehop::settings::{Order, WaitStrategy};
    use rehop::{Backoff, Timestamp};
    use rehop_testing::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A world in which the service runs with its default settings.
    fn world() -> World {
        let mut world = World::new(7); // the same seed gives the same run
        world.start(|stop| serve(Settings::default(), stop));
        world
    }

    // One attempt: a message goes in, and what rehop would do with it comes out.

    #[tokio::test]
    async fn an_order_is_shipped_when_the_shop_is_open() {
        assert_eq!(message(7).attempt(3).outcome(ship).await, Outcome::Ack);
    }

    #[tokio::test]
    async fn a_closed_shop_is_tried_again_at_once_and_then_after_ten_seconds() {
        assert_eq!(message(7).outcome(ship).await, Outcome::Requeue);
        let second = message(7).attempt(2);
        assert_eq!(second.outcome(ship).await, Outcome::Wait(Duration::from_secs(10)));
    }

    #[tokio::test]
    async fn an_order_that_does_not_exist_is_parked_at_once() {
        assert_eq!(message(0).outcome(ship).await, Outcome::Park(Reason::Permanent));
    }

    #[tokio::test]
    async fn an_order_is_not_shipped_after_its_deadline() {
        let late = message(7).attempt(3).deadline(Timestamp::now());
        assert_eq!(late.outcome(ship).await, Outcome::Park(Reason::Expired));
    }

    // All attempts: hours of waiting take milliseconds.

    #[test]
    fn an_order_waits_once_until_the_shop_is_open() {
        let mut world = world();
        let order = world.publish("shipping", &7);
        world.assert_settles(HOUR);
        world.assert_handled(&order);
        world.assert_attempts(&order, 3);
        world.assert_waited(&order, &[Duration::from_secs(10)]);
    }

    #[test]
    fn an_order_that_always_fails_is_parked_after_all_its_attempts() {
        let mut world = world();
        let order = world.publish("shipping", &13);
        world.assert_settles(HOUR);
        world.assert_parked(&order, Reason::Exhausted);
        world.assert_attempts(&order, 8);
        world.assert_waited(&order, &[10, 60, 600].map(Duration::from_secs));
    }

    #[test]
    fn an_order_that_is_no_number_is_parked_without_an_attempt() {
        let mut world = world();
        let order = world.publish("shipping", &"seven");
        world.assert_settles(HOUR);
        world.assert_parked(&order, Reason::Undecodable);
        world.assert_attempts(&order, 0);
    }

    #[test]
    fn orders_are_shipped_in_order() {
        let mut settings = Settings::default();
        let queue = settings.queue_mut("shipping");
        queue.consume.order = Some(Order::Queue);
        queue.retry.strategy = Some(WaitStrategy::InProcess);
        let mut world = World::new(7);
        world.start(|stop| serve(settings, stop));
        let orders = [7, 8, 9].map(|order| world.publish("shipping", &order));
        world.assert_settles(HOUR);
        world.assert_in_order(&orders);
    }

    // Faults.

    #[test]
    fn an_order_that_waits_outlives_its_process() {
        let mut world = World::new(7);
        let first = world.start(|stop| serve(Settings::default(), stop));
        let order = world.publish("shipping", &7);
        world.pass(Duration::from_secs(1));
        world.kill(first);
        world.assert_in(&order, "rehop.wait.10000");
        world.start(|stop| serve(Settings::default(), stop));
        world.assert_settles(HOUR);
        world.assert_handled(&order);
    }

    #[test]
    fn an_order_outlives_an_hour_without_a_broker() {
        let mut world = world();
        let order = world.publish("shipping", &7);
        world.pass(Duration::from_secs(1)); // it waits
        world.stop_broker();
        world.pass(HOUR);
        world.start_broker();
        world.assert_settles(HOUR);
        world.assert_handled(&order);
    }

    #[test]
    fn an_order_stays_in_its_queue_while_the_parked_queue_is_full() {
        let mut world = world();
        let [first, second] = [0, 0].map(|order| world.publish("shipping", &order));
        world.limit("shipping.parked", Some(0)); // a quorum queue takes one more than its limit
        world.pass(HOUR);
        world.assert_parked(&first, Reason::Permanent);
        world.assert_in(&second, "shipping");
    }

    // The same on a real broker, where a second takes a second.

    #[tokio::test]
    async fn a_real_broker_does_the_same() {
        let mut settings = Settings::default();
        settings.retry.delays = Some(Backoff::List(vec![Duration::from_secs(1)]));
        let mut world = RealWorld::new().await;
        world.start(settings, serve);
        let [good, bad] =
            [world.publish("shipping", &7).await, world.publish("shipping", &0).await];
        world.assert_handled(&good).await;
        world.assert_parked(&bad, Reason::Permanent).await;
        world.finish().await;
    }
}
