//! What a program asks of a queue: that it pauses, drains, goes on, or runs fewer handlers.

use super::*;
use crate::consume::inbox::flow::KEPT_IN_PAUSE;

#[test]
fn a_paused_queue_starts_and_takes_nothing_and_the_others_go_on() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let [paused, other] = [0, 1].map(|_| inbox.add(RULES));
    for queue in [paused, other] {
        inbox.opened(queue, now);
        prove(&mut inbox, queue, 40, now);
        inbox.subscribed(queue, 10, now);
    }
    inbox.arrive(paused, Some(0), now, 100);
    let (running, _) = started(&mut inbox, now);
    inbox.arrive(paused, Some(0), now, 101);
    inbox.set_flow(paused, Flow::Paused { since: now }, now);
    assert!(inbox.start(now).is_none());
    assert_eq!((window(&inbox, paused, now), inbox.rest(paused)), (0, Rest::NotYet));
    assert!(window(&inbox, other, now) > 0);
    inbox.arrive(other, Some(0), now, 200);
    let (of_other, item) = started(&mut inbox, now);
    assert_eq!(item, 200);
    inbox.finish(of_other, now);
    inbox.subscribed(paused, 0, now);
    assert_eq!(inbox.rest(paused), Rest::NotYet, "a handler runs");
    inbox.finish(running, now);
    assert_eq!((inbox.rest(paused), inbox.rest(other)), (Rest::Rests, Rest::Flows));
    inbox.set_flow(paused, Flow::On, now);
    assert_eq!(started(&mut inbox, now).1, 101, "it was kept");
    assert!(window(&inbox, paused, now) > 0);
}

#[test]
fn what_a_paused_queue_holds_goes_back_after_a_while_but_not_what_has_few_charges_left() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { immediate: 9, ..RULES });
    inbox.opened(queue, now);
    prove(&mut inbox, queue, 40, now);
    inbox.subscribed(queue, 10, now);
    inbox.set_flow(queue, Flow::Paused { since: now }, now);
    for (item, count) in [(1, 0), (2, 3), (3, 8)] {
        inbox.arrive(queue, Some(count), now, item);
    }
    assert_eq!(inbox.wake_at(now), Some(now + KEPT_IN_PAUSE));
    let later = now + KEPT_IN_PAUSE;
    assert!(!inbox.has_late(queue, later - seconds(1)) && inbox.has_late(queue, later));
    let mut late = inbox.take_late(queue, later);
    late.sort_unstable();
    assert_eq!(late, [1, 2]);
    assert!(!inbox.has_late(queue, later));
    assert_eq!(inbox.take_late(queue, now + RULES.start_limit), [3]);
}

#[test]
fn what_has_long_waited_before_a_pause_is_kept_as_long_as_the_rest() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.opened(queue, now);
    prove(&mut inbox, queue, 40, now);
    inbox.subscribed(queue, 20, now);
    for item in 0..10 {
        inbox.arrive(queue, Some(0), now, item);
        let _ = started(&mut inbox, now);
    }
    (10..13).for_each(|item| inbox.arrive(queue, Some(0), now, item));
    let pause = now + seconds(60);
    inbox.set_flow(queue, Flow::Paused { since: pause }, pause);
    assert_eq!(inbox.late(queue, pause + KEPT_IN_PAUSE - seconds(1)), None);
    assert_eq!(inbox.late(queue, pause + KEPT_IN_PAUSE), Some(Late::Paused));
    assert_eq!(inbox.take_late(queue, pause + KEPT_IN_PAUSE), [10, 11, 12]);
}

#[test]
fn a_drained_queue_handles_what_it_holds_and_then_rests() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.opened(queue, now);
    prove(&mut inbox, queue, 40, now);
    inbox.subscribed(queue, 10, now);
    (0..3).for_each(|item| inbox.arrive(queue, Some(0), now, item));
    inbox.set_flow(queue, Flow::Draining, now);
    assert_eq!(window(&inbox, queue, now), 0);
    inbox.subscribed(queue, 0, now);
    for item in 0..3 {
        let (ticket, started) = started(&mut inbox, now);
        assert_eq!((started, inbox.rest(queue)), (item, Rest::NotYet));
        if item == 0 {
            let held = inbox.hold(ticket, item, now + seconds(5), now);
            assert!(held.is_none());
        } else {
            inbox.finish(ticket, now);
        }
    }
    assert_eq!(inbox.rest(queue), Rest::NotYet, "one is held between two attempts");
    let due = now + seconds(5);
    let (ticket, _) = started(&mut inbox, due);
    inbox.finish(ticket, due);
    assert_eq!((inbox.rest(queue), window(&inbox, queue, due)), (Rest::Rests, 0));
}

#[test]
fn an_ordered_queue_that_is_paused_or_drained_gives_all_back_after_a_while_once_nothing_runs() {
    for is_drained in [false, true] {
        let (mut inbox, now) = (Inbox::new(0), Instant::now());
        let queue = inbox.add(Rules { line: Line::Ordered, can_get: false, ..RULES });
        inbox.opened(queue, now);
        inbox.subscribed(queue, RULES.prefetch, now);
        (0..6).for_each(|item| inbox.arrive(queue, Some(0), now, item));
        let (ticket, _) = started(&mut inbox, now);
        let flow = if is_drained { Flow::Draining } else { Flow::Paused { since: now } };
        inbox.set_flow(queue, flow, now);
        assert!(inbox.start(now).is_none());
        assert_eq!(
            window(&inbox, queue, now),
            RULES.prefetch,
            "others would overtake what is held"
        );
        let later = now + KEPT_IN_PAUSE;
        assert!(!inbox.has_late(queue, later) && inbox.rest(queue) == Rest::NotYet, "one runs");
        inbox.finish(ticket, now);
        assert_eq!((inbox.rest(queue), inbox.late(queue, now)), (Rest::Rests, None));
        assert_eq!(inbox.wake_at(now), Some(later));
        assert_eq!(inbox.late(queue, later), Some(Late::Paused));
        inbox.lost(queue, false, later);
        inbox.opened(queue, later);
        assert_eq!((window(&inbox, queue, later), inbox.late(queue, later)), (0, None));
        inbox.set_flow(queue, Flow::On, later);
        assert_eq!(window(&inbox, queue, later), RULES.prefetch);
    }
}

#[test]
fn an_ordered_queue_keeps_what_has_few_charges_left() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { line: Line::Ordered, can_get: false, immediate: 9, ..RULES });
    inbox.opened(queue, now);
    inbox.subscribed(queue, RULES.prefetch, now);
    (0..3).for_each(|item| inbox.arrive(queue, Some(8), now, item));
    inbox.set_flow(queue, Flow::Paused { since: now }, now);
    assert_eq!(inbox.late(queue, now + KEPT_IN_PAUSE), None);
    assert_eq!(inbox.late(queue, now + RULES.start_limit), Some(Late::Paused));
}

#[test]
fn what_was_tried_before_a_pause_is_kept_so_that_it_keeps_its_attempts() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.opened(queue, now);
    inbox.arrive(queue, Some(0), now, 1);
    let (ticket, item) = started(&mut inbox, now);
    assert!(inbox.hold(ticket, item, now + seconds(1), now).is_none());
    inbox.set_flow(queue, Flow::Paused { since: now }, now);
    let due = now + seconds(1);
    assert!(inbox.start(due).is_none());
    assert_eq!(inbox.late(queue, due + KEPT_IN_PAUSE), None);
    assert_eq!(inbox.take_late(queue, due + RULES.start_limit), [1]);
}

#[test]
fn a_suspect_of_a_paused_queue_holds_nobody_up() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let [paused, other] = [0, 1].map(|_| inbox.add(RULES));
    [paused, other].iter().for_each(|queue| inbox.opened(*queue, now));
    inbox.arrive(paused, Some(9), now, 1);
    inbox.set_flow(paused, Flow::Paused { since: now }, now);
    inbox.arrive(other, Some(0), now, 2);
    assert_eq!(started(&mut inbox, now).1, 2);
}

#[test]
fn fewer_handlers_start_from_now_on_and_those_that_run_go_on() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.opened(queue, now);
    prove(&mut inbox, queue, 40, now);
    inbox.subscribed(queue, 10, now);
    (0..10).for_each(|item| inbox.arrive(queue, Some(0), now, item));
    let mut running: Vec<_> = (0..4).map(|_| started(&mut inbox, now).0).collect();
    inbox.set_concurrency(queue, 2, now);
    assert!(inbox.start(now).is_none() && inbox.running(queue) == 4);
    for _ in 0..2 {
        inbox.finish(running.remove(0), now);
        assert!(inbox.start(now).is_none());
    }
    inbox.finish(running.remove(0), now);
    let (third, _) = started(&mut inbox, now);
    assert!(inbox.start(now).is_none());
    inbox.set_concurrency(queue, 3, now);
    let _ = (started(&mut inbox, now), third, running);
    inbox.set_concurrency(queue, u16::MAX, now);
    assert_eq!(inbox.most_handlers(queue), RULES.prefetch, "as many as it may hold");
}
