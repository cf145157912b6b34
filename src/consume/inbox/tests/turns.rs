//! Queues take turns at the start.

use super::*;

#[test]
fn queues_take_turns_at_the_start_and_idle_ones_are_passed_over() {
    let (mut inbox, mut now) = (Inbox::<u64>::new(0), Instant::now());
    let queues: Vec<_> = (0..3).map(|_| inbox.add(RULES)).collect();
    let mut windows = Vec::new();
    for _ in 0..4 {
        assert!(inbox.start(now).is_none());
        windows.push(queues.iter().map(|queue| inbox.window(*queue, now)).collect::<Vec<_>>());
        now = inbox.wake_at(now).unwrap_or(now);
    }
    assert_eq!(
        windows,
        [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]],
        "all are idle, so there is nothing to separate"
    );
    assert_eq!(inbox.wake_at(now), None, "an idle process sleeps");
}

#[test]
fn a_queue_waits_for_its_turn_until_the_subscription_before_it_has_ended() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let (a, b) = (inbox.add(RULES), inbox.add(RULES));
    inbox.subscribed(a, 1, now);
    inbox.arrive(a, Some(5), now, 0);
    let (suspect, _) = started(&mut inbox, now);
    inbox.finish(suspect, now);
    let later = now + seconds(1);
    prove(&mut inbox, a, 1, later);
    assert_eq!(
        (inbox.window(a, later), inbox.window(b, later)),
        (0, 0),
        "deliveries of the first may be under way"
    );
    inbox.subscribed(a, 0, now);
    assert_eq!((inbox.window(a, later), inbox.window(b, later)), (0, 1));
}

#[test]
fn a_fresh_delivery_passes_the_turn_on_although_its_handler_runs() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let (a, b) = (inbox.add(RULES), inbox.add(RULES));
    inbox.subscribed(a, 1, now);
    inbox.arrive(a, Some(0), now, 0);
    let _running = started(&mut inbox, now);
    assert_eq!((inbox.window(a, now), inbox.window(b, now)), (10, 1));
}

/// It may have killed the process before, although it is no suspect yet.
#[test]
fn a_queue_whose_delivery_came_back_keeps_its_turn_until_that_is_settled() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let (a, b) = (inbox.add(RULES), inbox.add(RULES));
    inbox.subscribed(a, 1, now);
    inbox.arrive(a, Some(1), now, 0);
    let (ticket, _) = started(&mut inbox, now);
    assert_eq!((inbox.window(a, now), inbox.window(b, now)), (1, 0));
    inbox.finish(ticket, now);
    inbox.subscribed(a, 0, now);
    assert_eq!((inbox.window(a, now), inbox.window(b, now)), (0, 1));
}

/// That one may be what killed the process before.
#[test]
fn after_a_suspect_a_queue_keeps_its_turn_until_its_delivery_is_settled() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let (a, b) = (inbox.add(RULES), inbox.add(RULES));
    let windows = |inbox: &Inbox<u64>| (inbox.window(a, now), inbox.window(b, now));
    inbox.arrive(a, Some(5), now, 0);
    let (suspect, _) = started(&mut inbox, now);
    inbox.finish(suspect, now);
    assert_eq!(windows(&inbox), (0, 1));
    inbox.arrive(b, Some(0), now, 1);
    let (plain, _) = started(&mut inbox, now);
    assert_eq!(windows(&inbox), (0, 1));
    assert!(inbox.start(now + seconds(1)).is_none());
    assert_eq!(windows(&inbox), (0, 1), "the queue is not idle");
    inbox.finish(plain, now);
    assert_eq!(windows(&inbox), (1, 0));
}

#[test]
fn a_process_with_one_queue_takes_no_turns() {
    let (mut inbox, now) = (Inbox::<u64>::new(0), Instant::now());
    let queue = inbox.add(RULES);
    assert!(inbox.start(now).is_none());
    assert_eq!((inbox.window(queue, now), inbox.wake_at(now)), (1, None));
}

#[test]
fn queues_are_counted_from_zero() {
    let mut inbox = Inbox::<u64>::new(0);
    let positions = [(); 3].map(|()| inbox.add(RULES).position());
    assert_eq!(positions, [0, 1, 2]);
}

/// A delivery has arrived, so there is something to separate again.
#[test]
fn queues_that_were_idle_take_turns_again_once_one_of_them_brings_something() {
    let (mut inbox, mut now) = (Inbox::new(0), Instant::now());
    let (a, b) = (inbox.add(RULES), inbox.add(RULES));
    assert!(inbox.start(now).is_none());
    while let Some(at) = inbox.wake_at(now) {
        now = at;
        assert!(inbox.start(now).is_none());
    }
    assert_eq!((inbox.window(a, now), inbox.window(b, now)), (1, 1), "all were idle");
    inbox.arrive(a, Some(5), now, 0);
    let (suspect, _) = started(&mut inbox, now);
    inbox.finish(suspect, now);
    assert_eq!((inbox.window(a, now), inbox.window(b, now)), (0, 1));
}
