//! The worlds in which a service is tested by its own code.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use rehop::settings::{Order, Treatment, WaitStrategy};
use rehop::{
    Backoff, Classify, Consumer, Failure, FailureEvent, Message, Outcome, Raw, Reason, RetryPolicy,
    Settings, Verdict,
};
use rehop_worlds::{Fate, MessageId, Stop, World};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// What the handlers of a test have done.
type Log = Arc<Mutex<Vec<String>>>;

fn settings() -> Settings {
    let mut settings = Settings::default();
    let retry = &mut settings.queue_mut("orders").retry;
    (retry.immediate, retry.delays) =
        (Some(0), Some(rehop::Backoff::List(vec![secs(60), secs(3_600)])));
    settings
}

/// A service whose handler charges a card and, a second later, writes a receipt. It remembers
/// nothing, so a message that comes again is charged again.
async fn forgetful(log: Log, stop: Stop) {
    let charge = move |order: Message<u32>| {
        let log = log.clone();
        async move {
            log.lock().unwrap().push(format!("charged {}", order.body));
            tokio::time::sleep(secs(1)).await;
            log.lock().unwrap().push(format!("receipt {}", order.body));
            Ok::<_, Failure>(())
        }
    };
    let service = rehop::Service::new(&settings()).with_graceful_shutdown(stop);
    service.with_consumer(Consumer::new("orders", charge)).await.unwrap();
}

/// A service whose handler fails until its message is this old.
async fn failing(for_long: Duration, log: Log, stop: Stop) {
    let charge = move |order: Message<u32>| {
        let log = log.clone();
        async move {
            let age = rehop::Timestamp::now().since(order.first_seen());
            log.lock().unwrap().push(format!(
                "attempt {} after {} s",
                order.attempt(),
                age.as_secs()
            ));
            if age < for_long { Err(Failure::transient("not yet")) } else { Ok(()) }
        }
    };
    let service = rehop::Service::new(&settings()).with_graceful_shutdown(stop);
    service.with_consumer(Consumer::new("orders", charge)).await.unwrap();
}

#[test]
fn a_handler_that_is_killed_between_two_effects_repeats_the_first() {
    let (mut world, log) = (World::new(1), Log::default());
    let first = world.start(|stop| forgetful(log.clone(), stop));
    let order = world.publish("orders", &7);
    world.pass(Duration::from_millis(500));
    world.kill(first);
    assert_eq!(world.fate(&order), Fate::In("orders".to_owned()));
    world.start(|stop| forgetful(log.clone(), stop));
    assert!(world.settle(secs(60)), "{:?}", world.fate(&order));
    assert_eq!(*log.lock().unwrap(), ["charged 7", "charged 7", "receipt 7"]);
    assert_eq!((world.deliveries(&order).len(), world.fate(&order)), (2, Fate::Gone));
}

#[test]
fn an_hour_of_backoff_takes_no_time_and_outlives_a_restart_of_the_broker() {
    let (mut world, log) = (World::new(2), Log::default());
    world.start(|stop| failing(secs(600), log.clone(), stop));
    let order = world.publish("orders", &1);
    world.pass(secs(300));
    assert_eq!(world.fate(&order), Fate::In("rehop.wait.3600000".to_owned()));
    world.stop_broker();
    world.pass(secs(30));
    world.start_broker();
    assert!(world.settle(secs(3 * 3600)));
    let log = log.lock().unwrap();
    assert_eq!(log[..2], ["attempt 1 after 0 s", "attempt 2 after 60 s"], "{log:?}");
    assert!(log.len() == 3 && log[2].starts_with("attempt 3 after 36"), "{log:?}");
}

#[test]
fn a_message_that_always_fails_is_parked() {
    let (mut world, log) = (World::new(3), Log::default());
    world.start(|stop| failing(secs(1_000_000), log.clone(), stop));
    let order = world.publish("orders", &1);
    assert!(world.settle(secs(3 * 3600)));
    assert_eq!(world.fate(&order), Fate::In("orders.parked".to_owned()));
    assert_eq!(log.lock().unwrap().len(), 3);
}

/// The attempts of a message that always fails, by their numbers, and what became of each.
fn attempts(settings: Settings) -> Vec<(u32, Outcome)> {
    let (mut world, log) = (World::new(6), Arc::new(Mutex::new(Vec::new())));
    let attempts = log.clone();
    world.start(|stop| async move {
        let fail = |_: Message<u32>| async { Err(Failure::transient("no")) };
        let consumer = Consumer::new("orders", fail)
            .on_failure(move |event| attempts.lock().unwrap().push((event.attempt, event.outcome)));
        rehop::Service::new(&settings).with_consumer(consumer).with_graceful_shutdown(stop).await
    });
    world.publish("orders", &1);
    assert!(world.settle(secs(3600)), "{world:?}");
    log.lock().unwrap().clone()
}

#[test]
fn a_message_that_waits_in_its_queue_has_its_immediate_attempts_once() {
    let mut settings = Settings::default();
    let retry = &mut settings.queue_mut("orders").retry;
    retry.strategy = Some(WaitStrategy::Native);
    retry.delays = Some(Backoff::Fixed { delay: secs(30), waits: 2 });
    let policy = settings.policy("orders").unwrap();
    assert_eq!((policy.max_attempts(), policy.max_deliveries()), (4, 13));
    let wait = Outcome::Wait(secs(30));
    let expected =
        [(1, Outcome::Requeue), (2, wait), (3, wait), (4, Outcome::Park(Reason::Exhausted))];
    assert_eq!(attempts(settings), expected);
}

#[test]
fn a_message_of_another_program_is_decoded_and_keeps_its_id() {
    let (mut world, log) = (World::new(7), Log::default());
    let seen = log.clone();
    world.start(|stop| async move {
        let read = move |text: Message<Bytes>| {
            seen.lock().unwrap().push(format!("{:?} {:?}", text.message_id(), text.body));
            async { Ok::<_, Failure>(()) }
        };
        let consumer = Consumer::new("orders", read).decode(Raw);
        rehop::Service::new(&Settings::default())
            .with_consumer(consumer)
            .with_graceful_shutdown(stop)
            .await
    });
    let expired = (world.date() - secs(1)).duration_since(UNIX_EPOCH).unwrap().as_millis();
    let header = AMQPValue::LongLongInt(i64::try_from(expired).unwrap());
    let headers = FieldTable::from(BTreeMap::from([("rehop-expires-at".into(), header)]));
    let late =
        world.publish_raw("orders", BasicProperties::default().with_headers(headers), "late");
    let order =
        world.publish_raw("orders", BasicProperties::default().with_message_id("a".into()), "text");
    assert!(world.settle(secs(60)), "{world:?}");
    assert_eq!(*log.lock().unwrap(), ["Some(\"a\") b\"text\""]);
    assert_eq!((order.as_str(), world.fate(&late)), ("a", Fate::In("orders.parked".to_owned())));
}

/// What can go wrong in a service of several queues.
#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error("declined")]
    Declined,
    #[error("busy")]
    Busy,
}

impl Classify for OrderError {
    fn classify(&self) -> Verdict {
        match self {
            Self::Declined => Verdict::permanent(),
            Self::Busy => Verdict::transient().after(secs(10)),
        }
    }
}

#[test]
fn an_error_type_that_the_service_names_decides_in_all_queues_and_inside_other_errors() {
    let mut world = World::new(11);
    let process = world.start(|stop| async move {
        let returned = |_: Message<u32>| async { Err(OrderError::Declined) };
        let in_context = |order: Message<u32>| async move {
            let busy = order.attempt() == 1;
            let error = if busy { OrderError::Busy } else { OrderError::Declined };
            Err::<(), _>(Failure::from(std::io::Error::other(error)))
        };
        rehop::Service::new(&Settings::default())
            .consumer("orders", returned)
            .consumer("mails", in_context)
            .errors::<OrderError>()
            .with_graceful_shutdown(stop)
            .await
    });
    let (order, mail) = (world.publish("orders", &7), world.publish("mails", &7));
    assert!(world.settle(secs(3_600)), "{:?}", world.error(process));
    assert_eq!(world.fate(&order), Fate::In("orders.parked".to_owned()));
    assert_eq!(world.fate(&mail), Fate::In("mails.parked".to_owned()));
    assert_eq!((world.deliveries(&order).len(), world.deliveries(&mail).len()), (1, 2));
}

#[test]
fn what_the_service_says_of_failures_holds_for_all_queues_that_do_not_say_otherwise() {
    let (mut world, log) = (World::new(12), Log::default());
    let (of_all, of_mails) = (log.clone(), log.clone());
    let process = world.start(move |stop| async move {
        let fail = |_: Message<u32>| async { Err(std::io::Error::other("no")) };
        let note = |log: Log, who: &'static str| {
            move |event: &FailureEvent<'_>| {
                let class = event.failure.map_or("none", Failure::class).to_owned();
                log.lock().unwrap().push(format!("{who}: {}, {class}", event.queue));
            }
        };
        let mails = Consumer::new("mails", fail)
            .classify(|_| Some("of_mails"))
            .on_failure(note(of_mails, "mails"));
        let mut settings = Settings::default();
        settings.retry.delays = Some(Backoff::List(Vec::new()));
        settings.retry.immediate = Some(0);
        rehop::Service::new(&settings)
            .classify(|_| Some("of_all"))
            .on_failure(note(of_all, "all"))
            .consumer("orders", fail)
            .with_consumer(mails)
            .consumer("texts", |_: Message<String>| async { Ok::<_, Failure>(()) })
            .with_graceful_shutdown(stop)
            .await
    });
    for queue in ["orders", "mails", "texts"] {
        world.publish(queue, &7);
    }
    assert!(world.settle(secs(60)), "{:?}", world.error(process));
    let mut log = log.lock().unwrap().clone();
    log.sort_unstable();
    assert_eq!(log, ["all: orders, of_all", "all: texts, undecodable", "mails: mails, of_mails"]);
}

#[test]
fn a_class_that_the_service_does_not_declare_is_refused_unless_a_queue_declares_it() {
    let start = |of_mails: Option<&'static str>| {
        let mut world = World::new(13);
        let process = world.start(move |stop| async move {
            let handler = |_: Message<u32>| async { Ok::<_, Failure>(()) };
            let mut settings = Settings::default();
            let policy = RetryPolicy::builder().error("declned", Treatment::Permanent);
            settings.queue_mut("mails").retry = policy.into();
            let mails = Consumer::new("mails", handler);
            let mails = match of_mails {
                Some(class) => mails.classes([class]),
                None => mails,
            };
            rehop::Service::new(&settings)
                .classes(["declined"])
                .with_consumer(mails)
                .with_graceful_shutdown(stop)
                .await
        });
        world.pass(secs(5));
        world.error(process).map(str::to_owned)
    };
    let error = start(None).unwrap();
    assert!(error.contains("declned") && error.contains("declined, error"), "{error}");
    assert_eq!(start(Some("declned")), None);
}

#[test]
fn a_process_that_is_asked_to_stop_lets_its_handler_end() {
    let (mut world, log) = (World::new(4), Log::default());
    let service = world.start(|stop| forgetful(log.clone(), stop));
    world.publish("orders", &7);
    world.pass(Duration::from_millis(500));
    world.stop(service);
    world.pass(secs(5));
    assert!(world.has_ended(service));
    assert_eq!(*log.lock().unwrap(), ["charged 7", "receipt 7"]);
}

/// A service whose handler uploads ten parts in 5 s each, and ends between two of them when the
/// service stops.
async fn uploading(log: Log, stop: Stop) {
    let upload = move |file: Message<u32>| {
        let log = log.clone();
        async move {
            let done = log.lock().unwrap().len();
            let mut stopping = std::pin::pin!(file.stopping());
            for part in done..10 {
                let left = file.time_left().as_secs();
                log.lock().unwrap().push(format!("part {part}, {left} s left"));
                tokio::time::sleep(secs(5)).await;
                if futures_util::poll!(&mut stopping).is_ready() {
                    return Err(Failure::defer(secs(10)));
                }
            }
            assert_eq!(file.attempt(), 1);
            Ok::<_, Failure>(())
        }
    };
    let service = rehop::Service::new(&settings()).with_graceful_shutdown(stop);
    service.with_consumer(Consumer::new("orders", upload)).await.unwrap();
}

#[test]
fn a_handler_that_listens_for_the_stop_repeats_nothing_after_it() {
    let (mut world, log) = (World::new(9), Log::default());
    let first = world.start(|stop| uploading(log.clone(), stop));
    let file = world.publish("orders", &1);
    world.pass(secs(18));
    world.stop(first);
    world.pass(secs(30));
    assert!(world.has_ended(first) && world.error(first).is_none());
    world.start(|stop| uploading(log.clone(), stop));
    assert!(world.settle(secs(600)), "{:?}", world.fate(&file));
    assert_eq!(world.fate(&file), Fate::Gone);
    let log = log.lock().unwrap();
    let parts: Vec<_> = (0..10).map(|part| format!("part {part},")).collect();
    let are_in_order = log.iter().zip(&parts).all(|(line, part)| line.starts_with(part));
    assert!(log.len() == 10 && are_in_order, "{log:?}");
    // The time limit of the handler is a minute.
    assert_eq!(log[..2], ["part 0, 60 s left", "part 1, 55 s left"]);
}

async fn panicking(_: Stop) {
    panic!("no configuration")
}

#[test]
fn a_process_that_fails_says_why() {
    let mut world = World::new(5);
    let service = world.start(|stop| async move {
        let mut settings = settings();
        settings.queue_mut("orders").consume.concurrency = Some(0);
        rehop::Service::new(&settings)
            .consumer("orders", |_: Message<u32>| async { Ok::<_, Failure>(()) })
            .with_graceful_shutdown(stop)
            .await
    });
    let panicking = world.start(panicking);
    world.pass(secs(1));
    let error = world.error(service).unwrap();
    assert!(error.contains("concurrency"), "{error}");
    assert_eq!(world.error(panicking), Some("it panicked: no configuration"));
    assert!(format!("{world:?}").contains("concurrency is 0"), "{world:?}");
}

#[test]
#[should_panic(expected = "there is another world on this thread")]
fn two_worlds_on_one_thread_are_refused() {
    let _first = World::new(1);
    World::new(2);
}

#[tokio::test]
#[should_panic(expected = "make its test a plain #[test]")]
async fn a_world_inside_a_runtime_is_refused() {
    World::new(1);
}

#[test]
#[should_panic(
    expected = "there is no queue \"nowhere\": start a service that consumes it; process 1 ended: \"no password\""
)]
fn a_message_to_a_queue_that_nobody_declares_is_refused() {
    let mut world = World::new(1);
    world.start(|_| async { Err::<(), _>("no password") });
    world.publish("nowhere", &1);
}

#[test]
#[should_panic(expected = "takes no message while it is stopped or has an alarm")]
fn publishing_to_a_broker_that_takes_no_message_panics() {
    let mut world = World::new(1);
    world.stop_broker();
    world.publish("orders", &1);
}

/// A service with so many queues, `q0` first. A handler runs for 5 ms, but the first so many run
/// for longer than anybody waits.
async fn of_queues(number: usize, handled: Arc<Mutex<usize>>, slow: usize, stop: Stop) {
    let mut settings = Settings::default();
    settings.retry.immediate = Some(1);
    settings.consume.concurrency = Some(50);
    let began = Arc::new(Mutex::new(0));
    let mut service = rehop::Service::new(&settings).with_graceful_shutdown(stop);
    for queue in 0..number {
        let (handled, began) = (handled.clone(), began.clone());
        let handler = move |_: Message<u32>| {
            let (handled, began) = (handled.clone(), began.clone());
            async move {
                *began.lock().unwrap() += 1;
                let is_slow = *began.lock().unwrap() <= slow;
                tokio::time::sleep(if is_slow { secs(50) } else { Duration::from_millis(5) }).await;
                *handled.lock().unwrap() += 1;
                Ok::<_, Failure>(())
            }
        };
        service = service.with_consumer(Consumer::new(format!("q{queue}"), handler));
    }
    service.await.unwrap();
}

/// The time until so many messages are handled.
fn time_until(world: &mut World, handled: &Arc<Mutex<usize>>, number: usize) -> Duration {
    let began = world.now();
    while *handled.lock().unwrap() < number {
        world.pass(Duration::from_millis(5));
        assert!(world.now() < began + secs(60), "{} of {number}", *handled.lock().unwrap());
    }
    world.now() - began
}

#[test]
fn a_message_in_one_of_a_hundred_queues_is_handled_as_soon_as_one_in_a_single_queue() {
    let time_of = |queues: usize| {
        let (mut world, handled) = (World::new(1), Arc::default());
        let first = world.start(|stop| of_queues(queues, Arc::clone(&handled), 0, stop));
        // The queues exist now.
        world.pass(secs(10));
        world.stop(first);
        world.pass(secs(10));
        assert!(world.has_ended(first), "{:?}", world.error(first));
        world.publish(&format!("q{}", queues - 1), &1);
        world.start(|stop| of_queues(queues, Arc::clone(&handled), 0, stop));
        time_until(&mut world, &handled, 1)
    };
    let times = [1, 20, 100].map(time_of);
    assert!(times.iter().all(|time| *time < secs(1)), "{times:?}");
}

/// After a crash that charged fifty messages.
#[test]
fn a_process_with_twenty_queues_that_was_killed_goes_on_at_once() {
    let (mut world, handled) = (World::new(1), Arc::default());
    let first = world.start(|stop| of_queues(20, Arc::clone(&handled), 50, stop));
    world.pass(secs(10));
    for _ in 0..1_000 {
        world.publish("q7", &1);
    }
    world.pass(secs(10));
    world.kill(first);
    world.start(|stop| of_queues(20, Arc::clone(&handled), 0, stop));
    let time = time_until(&mut world, &handled, 1_000);
    assert!(time < secs(2), "{time:?}");
}

/// Serves a queue with one handler that takes a second, and pauses it after half a second.
async fn pausing(for_long: Duration, order: Order, log: Log, stop: Stop) {
    let mut settings = settings();
    let queue = settings.queue_mut("orders");
    if order.is_kept() {
        queue.retry.strategy = Some(WaitStrategy::InProcess);
        queue.retry.delays = Some(Backoff::List(vec![secs(1)]));
    }
    (queue.consume.concurrency, queue.consume.order) = (Some(1), Some(order));
    let handle = move |order: Message<u32>| {
        let log = log.clone();
        async move {
            tokio::time::sleep(secs(1)).await;
            log.lock().unwrap().push(format!("{} on attempt {}", order.body, order.attempt()));
            Ok::<_, Failure>(())
        }
    };
    let service = rehop::Service::new(&settings).consumer("orders", handle);
    let handle = service.handle();
    let pause = async {
        tokio::time::sleep(Duration::from_millis(12_500)).await;
        assert!(handle.pause("orders").unwrap().await);
        tokio::time::sleep(for_long).await;
        handle.resume("orders").unwrap();
    };
    let (ended, ()) = tokio::join!(service.with_graceful_shutdown(stop).into_future(), pause);
    ended.unwrap();
}

#[test]
fn what_a_paused_queue_holds_is_kept_for_ten_seconds_and_then_others_have_it() {
    for (for_long, kept) in [(secs(5), true), (secs(60), false)] {
        let (mut world, log) = (World::new(31), Log::default());
        world.start(|stop| pausing(for_long, Order::None, log.clone(), stop));
        let orders: Vec<_> = (0..40).map(|number| world.publish("orders", &number)).collect();
        world.pass(secs(13) + for_long - secs(1));
        let held = orders.iter().filter(|order| {
            world.fate(order) == Fate::In("orders".to_owned())
                && !world.deliveries(order).is_empty()
        });
        let held = held.count();
        assert!(held > 1, "the window has opened");
        let ready = world.queue("orders").unwrap().ready.len();
        let handled = log.lock().unwrap().len();
        assert_eq!(ready + handled == 40, !kept, "{ready} ready, {handled} handled");
        assert!(world.settle(secs(300)));
        assert_eq!(log.lock().unwrap().len(), 40, "each is handled once");
    }
}

#[test]
fn an_ordered_queue_that_is_paused_gives_all_back_and_goes_on_in_its_order() {
    let (mut world, log) = (World::new(32), Log::default());
    let order = Order::RoutingKey;
    world.start(|stop| pausing(secs(30), order, log.clone(), stop));
    (0..30u32).for_each(|number| drop(world.publish("orders", &number)));
    world.pass(secs(25));
    let handled = log.lock().unwrap().len();
    assert_eq!(world.queue("orders").unwrap().ready.len(), 30 - handled);
    assert!(world.settle(secs(600)));
    let log = log.lock().unwrap();
    let numbers: Vec<u32> =
        log.iter().map(|line| line.split_once(' ').unwrap().0.parse().unwrap()).collect();
    assert_eq!(numbers, (0..30).collect::<Vec<_>>());
}

/// A service whose handler fails at every message.
async fn never(stop: Stop) -> Result<(), rehop::Error> {
    let fail = |_: Message<u32>| async { Err(Failure::transient("no card service")) };
    let service = rehop::Service::new(&settings()).consumer("orders", fail);
    service.with_graceful_shutdown(stop).await.map(drop)
}

/// The text of the assertion that fails.
fn refuted(assertion: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(assertion)).unwrap_err();
    *panic.downcast::<String>().unwrap()
}

#[test]
fn an_assertion_that_fails_prints_the_whole_history() {
    let mut world = World::new(8);
    world.start(never);
    let order = world.publish("orders", &1);
    let early = refuted(|| world.assert_settles(secs(100)));
    let begins = "not settled within 100s: 1 in rehop.wait.3600000\nmessage 1:\n";
    assert!(early.starts_with(begins), "{early}");
    assert!(early.ends_with("now: in rehop.wait.3600000; delivered 2 times"), "{early}");
    world.assert_settles(secs(2 * 3600));
    world.assert_parked(&order, Reason::Exhausted);
    world.assert_attempts(&order, 3);
    world.assert_waited(&order, &[secs(60), secs(3_600)]);
    let text = refuted(|| world.assert_handled(&order));
    let lines: Vec<_> = text.lines().map(|line| line.trim_start()).collect();
    assert_eq!(lines[..2], ["message 1 was not handled", "message 1:"], "{text}");
    assert!(lines[2].ends_with("  published to orders"), "{text}");
    for (line, outcome) in
        [(3, "1 in process 1, waits 60s"), (5, "3 in process 1, parked: exhausted")]
    {
        let end = format!("attempt {outcome} (transient: no card service)");
        assert!(lines[line].ends_with(&end), "{text}");
    }
    assert!(
        lines[6].ends_with("now: in orders.parked, for exhausted; delivered 3 times"),
        "{text}"
    );
    for (text, but) in [
        (
            refuted(|| world.assert_parked(&order, Reason::Expired)),
            "was expected to be parked as expired; it was parked as exhausted",
        ),
        (
            refuted(|| world.assert_discarded(&order, Reason::Expired)),
            "was not discarded as expired",
        ),
        (refuted(|| world.assert_in(&order, "orders")), "is not in orders"),
        (refuted(|| world.assert_attempts(&order, 2)), "had 3 attempts instead of 2"),
    ] {
        assert!(text.starts_with(&format!("message 1 {but}\nmessage 1:\n")), "{text}");
    }
    let waits = refuted(|| world.assert_waited(&order, &[secs(60), secs(600)]));
    assert!(waits.contains("waited [60") && waits.contains("instead of [60s, 600s]"), "{waits}");
}

#[test]
fn a_message_that_kills_its_process_each_time_is_parked_by_the_broker() {
    let mut world = World::new(9);
    let mut process = world.start(|stop| forgetful(Log::default(), stop));
    let order = world.publish("orders", &1);
    for _ in 0..40 {
        world.pass(Duration::from_millis(500));
        world.kill(process);
        process = world.start(|stop| forgetful(Log::default(), stop));
    }
    world.assert_settles(secs(60));
    world.assert_parked(&order, "delivery_limit");
    let attempts = world.attempts(&order);
    let have_no_outcome = attempts.iter().all(|attempt| attempt.outcome.is_none());
    assert!(!attempts.is_empty() && have_no_outcome, "{}", world.history(&order));
}

#[test]
fn a_message_stays_in_its_queue_while_the_parked_queue_is_full() {
    let mut world = World::new(10);
    world.start(never);
    let [first, second] = [1, 2].map(|order| world.publish("orders", &order));
    world.pass(secs(1));
    world.limit("orders.parked", Some(0));
    world.pass(secs(2 * 3600));
    // The queue takes one message more than its limit.
    world.assert_parked(&first, Reason::Exhausted);
    world.assert_in(&second, "orders");
    world.limit("orders.parked", None);
    world.assert_settles(secs(3600));
    // The service has rejected what it could not copy, so the broker has parked it.
    world.assert_parked(&second, "rejected");
}

#[test]
fn messages_are_in_order_only_if_each_ends_before_the_next_begins() {
    let mut world = World::new(11);
    let mut settings = settings();
    settings.queue_mut("orders").consume.order = Some(Order::Queue);
    let retry = &mut settings.queue_mut("orders").retry;
    retry.strategy = Some(WaitStrategy::InProcess);
    retry.delays = Some(Backoff::List(vec![secs(10)]));
    world.start(|stop| async move {
        let charge = |order: Message<u32>| async move {
            if order.attempt() == 1 { Err(Failure::transient("no")) } else { Ok(()) }
        };
        rehop::Service::new(&settings).consumer("orders", charge).with_graceful_shutdown(stop).await
    });
    let orders = [1, 2, 3].map(|order| world.publish("orders", &order));
    world.assert_settles(secs(3600));
    orders.iter().for_each(|order| world.assert_handled(order));
    world.assert_in_order(&orders);
    let [first, second, third] = orders;
    let text = refuted(|| world.assert_in_order(&[first, third, second]));
    assert!(text.starts_with("message 3 did not end before 2 began\nmessage 3:\n"), "{text}");
}

#[test]
fn of_messages_that_are_handled_at_one_time_only_one_order_holds() {
    let mut world = World::new(17);
    world.start(|stop| async move {
        let charge = |_: Message<u32>| async { Ok::<_, Failure>(()) };
        rehop::Service::new(&settings())
            .consumer("orders", charge)
            .with_graceful_shutdown(stop)
            .await
    });
    let [first, second] = [1, 2].map(|order| world.publish("orders", &order));
    world.assert_settles(secs(60));
    let orders = [[first.clone(), second.clone()], [second, first]];
    let holds = |order: &[MessageId; 2]| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.assert_in_order(order)))
            .is_ok()
    };
    assert!(orders.iter().filter(|order| holds(order)).count() <= 1);
}

#[test]
fn messages_that_end_one_after_the_other_are_not_in_order_if_one_is_parked() {
    let mut world = World::new(12);
    world.start(never);
    let first = world.publish("orders", &1);
    world.assert_settles(secs(2 * 3600));
    let second = world.publish("orders", &2);
    world.assert_settles(secs(2 * 3600));
    let text = refuted(|| world.assert_in_order(&[first, second]));
    assert!(text.starts_with("message 1 was not handled\n"), "{text}");
}

#[test]
fn a_body_that_cannot_be_decoded_is_no_attempt() {
    let mut world = World::new(13);
    world.start(never);
    let order = world.publish("orders", &"seven");
    world.assert_settles(secs(60));
    world.assert_parked(&order, Reason::Undecodable);
    world.assert_attempts(&order, 0);
    assert_eq!(world.outcome(&order), Some(Outcome::Park(Reason::Undecodable)));
}

#[test]
fn a_world_settles_in_the_time_that_it_has_or_not() {
    let mut world = World::new(14);
    world.start(never);
    world.publish("orders", &1);
    let began = world.now();
    assert!(!world.settle(Duration::from_millis(1_500)));
    let took = world.now() - began;
    assert!(
        took >= Duration::from_millis(1_500) && took < Duration::from_millis(1_510),
        "{took:?}"
    );
}

#[test]
fn a_message_id_that_the_test_has_used_is_refused_and_not_given_again() {
    let mut world = World::new(15);
    world.start(never);
    let with_id = |id: &str| BasicProperties::default().with_message_id(id.into());
    world.publish_raw("orders", with_id("2"), "1");
    let next = world.publish("orders", &1);
    assert_eq!(next.as_str(), "3");
    let text = refuted(|| drop(world.publish_raw("orders", with_id("2"), "1")));
    assert_eq!(text, "the test has already published a message with the message_id \"2\"");
}

#[test]
fn a_wait_of_a_millisecond_counts_and_is_not_one_of_50() {
    let mut world = World::new(16);
    world.start(|stop| async move {
        let mut settings = settings();
        settings.queue_mut("orders").retry.strategy = Some(WaitStrategy::InProcess);
        settings.queue_mut("orders").retry.delays =
            Some(Backoff::List(vec![Duration::from_millis(1)]));
        settings.queue_mut("orders").consume.order = Some(Order::Queue);
        let later = |order: Message<u32>| async move {
            if order.attempt() == 1 { Err(Failure::transient("no")) } else { Ok(()) }
        };
        rehop::Service::new(&settings).consumer("orders", later).with_graceful_shutdown(stop).await
    });
    let order = world.publish("orders", &1);
    world.assert_settles(secs(60));
    let text = refuted(|| world.assert_waited(&order, &[Duration::from_millis(50)]));
    assert!(text.contains(" instead of [50ms]\n") && !text.contains("waited []"), "{text}");
}

#[test]
fn what_nobody_knows_is_not_asserted() {
    let mut world = World::new(17);
    world.start(never);
    let order = world.publish("orders", &1);
    world.assert_settles(secs(2 * 3600));
    let text = refuted(|| world.limit("ordres", Some(0)));
    assert!(text.starts_with("there is no queue \"ordres\", but these: "), "{text}");
    assert!(text.contains("orders.parked"), "{text}");
    let unknown = MessageId::from("unknown");
    for text in [
        refuted(|| world.assert_attempts(&unknown, 0)),
        refuted(|| world.assert_waited(&unknown, &[])),
    ] {
        assert_eq!(text, "this test did not publish message unknown, and no service told of it");
    }
    world.assert_attempts(&order, 3);
}

#[test]
fn an_assertion_says_that_no_service_told_of_anything() {
    let mut world = World::new(18);
    let process = world.start(never);
    world.pass(secs(5));
    world.kill(process);
    let order = world.publish("orders", &1);
    let text = refuted(|| world.assert_handled(&order));
    assert!(
        text.starts_with("message 1 was not handled; no service told of any message"),
        "{text}"
    );
}
