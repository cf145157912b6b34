//! Suspects run alone, and hold up nothing for longer than they must.

use super::*;

#[test]
fn a_suspect_closes_every_window_and_runs_alone() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let (a, b) = (inbox.add(RULES), inbox.add(RULES));
    prove(&mut inbox, a, 1000, now);
    inbox.arrive(b, Some(0), now, 1);
    inbox.arrive(a, Some(5), now, 2);
    assert_eq!((window(&inbox, a, now), window(&inbox, b, now)), (0, 0));
    let (suspect, item) = started(&mut inbox, now);
    assert_eq!(item, 2);
    assert!(inbox.start(now).is_none(), "nothing starts beside it");
    assert_eq!((window(&inbox, a, now), window(&inbox, b, now)), (0, 0));
    inbox.finish(suspect, now);
    assert_eq!(started(&mut inbox, now).1, 1);
}

/// Its copy may not be confirmed for long.
#[test]
fn others_start_a_while_after_a_suspects_handler_has_ended_even_if_it_is_not_settled() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.arrive(queue, Some(0), now, 1);
    let (plain, _) = started(&mut inbox, now);
    inbox.arrive(queue, Some(9), now, 2);
    let (suspect, _) = started(&mut inbox, now);
    inbox.arrive(queue, Some(0), now, 3);
    inbox.handler_ended(&plain, now);
    let later = now + seconds(60);
    assert!(inbox.start(later).is_none(), "the suspect's own handler runs");
    inbox.handler_ended(&suspect, later);
    assert!(inbox.start(later).is_none(), "the suspect is not settled");
    assert_eq!(inbox.wake_at(later), Some(later + SETTLED_WITHIN));
    assert_eq!(started(&mut inbox, later + SETTLED_WITHIN).1, 3);
}

/// Otherwise refused copies of one queue would stop all queues for as often as there are suspects.
#[test]
fn of_several_suspects_that_are_not_settled_only_the_first_one_holds_up_others() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    for item in 1..4 {
        inbox.arrive(queue, Some(5), now, item);
    }
    let (first, _) = started(&mut inbox, now);
    inbox.handler_ended(&first, now);
    // It is called again when a copy is given up.
    inbox.handler_ended(&first, now);
    assert!(inbox.start(now + ACK_FLUSH_TIME).is_none());
    let later = now + SETTLED_WITHIN;
    let (second, _) = started(&mut inbox, later);
    inbox.handler_ended(&second, later);
    assert!(inbox.start(later).is_none());
    let later = later + ACK_FLUSH_TIME;
    let (third, _) = started(&mut inbox, later);
    inbox.finish(first, later);
    inbox.finish(second, later);
    inbox.handler_ended(&third, later);
    inbox.arrive(queue, Some(5), later, 4);
    assert!(inbox.start(later + ACK_FLUSH_TIME).is_none(), "nothing else is unsettled any more");
}

#[test]
fn a_suspect_near_its_limit_runs_first_and_then_what_came_back_most_often() {
    let (mut inbox, now) = (Inbox::<u64>::new(0), Instant::now());
    let (low, high) = (
        inbox.add(Rules { delivery_limit: 5, ..RULES }),
        inbox.add(Rules { delivery_limit: 50, ..RULES }),
    );
    inbox.arrive(high, Some(40), now, 10);
    inbox.arrive(low, Some(2), now, 3);
    inbox.arrive(low, Some(4), now, 1);
    let mut order = Vec::new();
    let mut now = now;
    while let Some((ticket, item)) = inbox.start(now) {
        order.push(item);
        inbox.finish(ticket, now);
        now += ACK_FLUSH_TIME;
    }
    assert_eq!(order, [1, 10, 3]);
}

#[test]
fn a_suspect_waits_until_the_one_before_it_is_settled_at_the_broker() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.arrive(queue, Some(5), now, 1);
    inbox.arrive(queue, Some(5), now, 2);
    let (first, _) = started(&mut inbox, now);
    inbox.handler_ended(&first, now);
    // If the second one killed the process now, the first one would be charged, and its copy may
    // exist.
    let settled = now + SETTLED_WITHIN - Duration::from_millis(1);
    assert!(inbox.start(settled).is_none());
    inbox.finish(first, settled);
    assert!(inbox.start(settled).is_none());
    assert_eq!(inbox.wake_at(settled), Some(settled + ACK_FLUSH_TIME));
    assert!(inbox.start(settled + ACK_FLUSH_TIME).is_some());
}

#[test]
fn requeues_near_the_limit_are_suspect_although_handlers_give_back_as_often() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { delivery_limit: 5, immediate: 4, ..RULES });
    prove(&mut inbox, queue, 2000, now);
    inbox.arrive(queue, Some(2), now, 1);
    assert_eq!(window(&inbox, queue, now), 0);
}

#[test]
fn a_death_is_told_of_unless_another_process_has_probably_requeued_the_message() {
    for (proven, count, told) in [(0, 0, None), (31, 1, Some(1)), (32, 1, None), (32, 5, Some(5))] {
        let (mut inbox, now) = (Inbox::new(0), Instant::now());
        let queue = inbox.add(RULES);
        prove(&mut inbox, queue, proven, now);
        inbox.arrive(queue, Some(count), now, 1_000);
        let (ticket, _) = started(&mut inbox, now);
        assert_eq!(inbox.unanswered(&ticket), told, "{count} after {proven}");
    }
}

#[test]
fn a_handler_that_runs_for_a_day_stops_no_other_queue() {
    let (mut inbox, mut now) = (Inbox::new(0), Instant::now());
    let (slow, quick) = (inbox.add(Rules { immediate: 0, ..RULES }), inbox.add(RULES));
    inbox.opened(quick, now);
    inbox.arrive(slow, Some(1), now, 1);
    let (_day, _) = started(&mut inbox, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(window(&inbox, quick, now), 0);
    now += CRASHES_WITHIN;
    assert!(inbox.start(now).is_none());
    assert_eq!(window(&inbox, quick, now), 1, "the suspect's isolation is over");
    inbox.got(quick, None, now);
    prove(&mut inbox, quick, 100, now);
    assert!(window(&inbox, quick, now) >= 8);
}

#[test]
fn a_suspect_whose_queue_is_busy_stops_no_other_queue() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let (busy, other) = (inbox.add(Rules { concurrency: 1, ..RULES }), inbox.add(RULES));
    inbox.arrive(busy, Some(0), now, 1);
    let (_day, _) = started(&mut inbox, now);
    inbox.arrive(busy, Some(5), now, 2);
    inbox.opened(other, now);
    // What runs may kill the process, too, for a while.
    let later = now + CRASHES_WITHIN;
    assert!(inbox.start(later).is_none());
    assert_eq!(inbox.take(other, later), Take::One);
}

#[test]
fn a_start_limit_may_be_infinite() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { start_limit: Duration::MAX, ..RULES });
    inbox.arrive(queue, Some(9), now, 1);
    let (ticket, _) = started(&mut inbox, now);
    inbox.arrive(queue, Some(9), now, 2);
    inbox.finish(ticket, now);
    assert!(inbox.wake_at(now).is_some());
}

#[test]
fn a_start_limit_of_ten_years_is_kept() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let start_limit = seconds(10 * 365 * 24 * 60 * 60);
    let queue = inbox.add(Rules { start_limit, ..RULES });
    inbox.arrive(queue, Some(0), now, 1);
    assert_eq!(inbox.wake_at(now), Some(now + start_limit));
}

#[test]
fn the_more_often_a_suspect_came_back_the_longer_it_is_isolated() {
    let isolated_for = |count| isolation::isolated_for(&RULES, count).as_secs();
    assert_eq!(
        [1, 2, 3, 4, 5, 7, 8].map(isolated_for),
        [10, 40, 160, 640, 900, 900, 900],
        "never above the hold limit"
    );
}

#[test]
fn of_two_equal_suspects_the_other_runs_first_in_the_next_life() {
    let first_of_two = |count| {
        let (mut inbox, now) = (Inbox::new(0), Instant::now());
        let queue = inbox.add(RULES);
        inbox.arrive(queue, Some(count), now, 1);
        inbox.arrive(queue, Some(count), now, 2);
        started(&mut inbox, now).1
    };
    assert_ne!(first_of_two(5), first_of_two(6));
}

/// As of a classic queue.
#[test]
fn without_a_count_equal_suspects_run_in_another_order_in_each_process() {
    let first_of_two = |draw| {
        let (mut inbox, now) = (Inbox::new(draw), Instant::now());
        let queue = inbox.add(Rules { counts_deliveries: false, immediate: 0, ..RULES });
        inbox.arrive(queue, None, now, 1);
        inbox.arrive(queue, None, now, 2);
        started(&mut inbox, now).1
    };
    let firsts = (0..20).map(first_of_two).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(firsts.len(), 2, "either may be first");
}

#[test]
fn a_suspect_near_its_limit_keeps_the_process_to_itself_until_the_start_limit() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let (slow, quick) = (inbox.add(RULES), inbox.add(RULES));
    inbox.arrive(slow, Some(9), now, 1);
    let (_hangs, _) = started(&mut inbox, now);
    inbox.arrive(quick, Some(0), now, 2);
    assert!(inbox.start(now + seconds(899)).is_none());
    assert!(inbox.start(now + seconds(900)).is_some());
}

#[test]
fn a_suspect_that_waited_long_for_a_slot_still_waits_for_subscriptions_to_end() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let (busy, other) = (inbox.add(Rules { concurrency: 1, ..RULES }), inbox.add(RULES));
    inbox.arrive(busy, Some(0), now, 0);
    let (slow, _) = started(&mut inbox, now);
    inbox.arrive(busy, Some(6), now, 1);
    prove(&mut inbox, other, 40, now);
    inbox.subscribed(other, 10, now);
    let later = now + 3 * ENDED_WITHIN;
    inbox.finish(slow, later);
    let quiet = later + ACK_FLUSH_TIME;
    assert!(inbox.start(quiet).is_none(), "what the other queue brings would be charged");
    assert_eq!(window(&inbox, other, quiet), 0);
    inbox.subscribed(other, 0, quiet);
    assert_eq!(started(&mut inbox, quiet + ACK_FLUSH_TIME).1, 1);
}
