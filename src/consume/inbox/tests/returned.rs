//! What comes back because of this process is not suspect: handed back, requeued, or lost with its
//! channel.

use super::*;

#[test]
fn what_has_waited_too_long_is_given_back_and_nothing_is_taken_until_a_slot_is_free() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { concurrency: 1, ..RULES });
    prove(&mut inbox, queue, 1000, now);
    inbox.subscribed(queue, window(&inbox, queue, now), now);
    for item in 0..3 {
        inbox.arrive(queue, Some(0), now, item);
    }
    let (hangs, _) = started(&mut inbox, now);
    let late = now + RULES.start_limit;
    assert_eq!(inbox.take_late(queue, late - seconds(1)), Vec::<u64>::new());
    assert_eq!(inbox.take_late(queue, late), [1, 2]);
    assert_eq!(window(&inbox, queue, late), 0);
    inbox.finish(hangs, late);
    assert!(window(&inbox, queue, late) > 0);
}

#[test]
fn what_a_lost_channel_held_is_not_suspect_when_it_comes_back_until_that_happens_too_often() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    let mut windows = Vec::new();
    for loss in 0..5 {
        inbox.subscribed(queue, 100, now);
        inbox.arrive(queue, Some(loss), now, 1u64);
        inbox.arrive(queue, Some(loss), now, 2);
        let _ = inbox.start(now);
        windows.push(window(&inbox, queue, now));
        inbox.lost(queue, false, now);
    }
    assert_eq!(windows[..4], [10; 4], "{windows:?}");
    assert_eq!(windows[4], 0, "a message may be what breaks the channel");
    inbox.arrive(queue, Some(7), now, 3);
    assert_eq!(window(&inbox, queue, now), 0, "it was not held when the channel was lost");
}

#[test]
fn a_handler_of_a_lost_channel_takes_its_slot_until_it_ends_and_blocks_nothing_else() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { concurrency: 2, ..RULES });
    inbox.arrive(queue, Some(5), now, 1);
    let (orphan, _) = started(&mut inbox, now);
    inbox.lost(queue, false, now);
    inbox.opened(queue, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(window(&inbox, queue, now), 1);
    inbox.arrive(queue, Some(0), now, 2);
    inbox.arrive(queue, Some(0), now, 3);
    assert_eq!(started(&mut inbox, now).1, 2);
    assert!(inbox.start(now).is_none(), "the other slot is the orphan's");
    assert_eq!(inbox.running(queue), 2);
    inbox.finish(orphan, now);
    assert_eq!(started(&mut inbox, now).1, 3);
}

#[test]
fn a_queue_whose_slots_are_all_taken_by_handlers_of_a_lost_channel_takes_nothing_until_one_ends() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { concurrency: 1, ..RULES });
    inbox.arrive(queue, Some(0), now, 1);
    let (orphan, _) = started(&mut inbox, now);
    inbox.lost(queue, false, now);
    inbox.opened(queue, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(window(&inbox, queue, now), 0);
    inbox.finish(orphan, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(window(&inbox, queue, now), 1);
}

#[test]
fn what_was_on_its_way_to_a_lost_channel_is_not_suspect() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { immediate: 0, ..RULES });
    inbox.subscribed(queue, 1, now);
    inbox.lost(queue, false, now);
    inbox.subscribed(queue, 1, now);
    inbox.arrive(queue, Some(1), now, 1);
    assert_eq!(window(&inbox, queue, now), 10);
    inbox.arrive(queue, Some(0), now, 2);
    inbox.arrive(queue, Some(1), now, 3);
    assert_eq!(
        window(&inbox, queue, now),
        0,
        "what comes back does so before anything that is fresh"
    );
}

#[test]
fn what_a_handler_of_this_process_gave_back_is_no_suspect_whatever_its_headroom() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { delivery_limit: 4, immediate: 3, ..RULES });
    prove(&mut inbox, queue, 1, now);
    for count in 0..=3 {
        // Two of the same content, as heartbeats are.
        inbox.arrive(queue, Some(count), now, 7);
        inbox.arrive(queue, Some(count), now, 7);
        assert!(window(&inbox, queue, now) > 0, "the window stays open at {count}");
        for (ticket, item) in [started(&mut inbox, now), started(&mut inbox, now)] {
            inbox.expect(&ticket, item, true);
            inbox.finish(ticket, now);
        }
    }
    inbox.arrive(queue, Some(2), now, 8);
    assert_eq!(
        window(&inbox, queue, now),
        0,
        "another that came back so often may be what killed a process"
    );
}

#[test]
fn what_was_given_back_once_and_came_back_twice_is_a_suspect() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { delivery_limit: 4, immediate: 3, ..RULES });
    prove(&mut inbox, queue, 1, now);
    inbox.arrive(queue, Some(0), now, 7);
    let (ticket, item) = started(&mut inbox, now);
    inbox.expect(&ticket, item, true);
    inbox.finish(ticket, now);
    inbox.arrive(queue, Some(2), now, 7);
    assert_eq!(window(&inbox, queue, now), 0);
}

#[test]
fn what_other_processes_took_is_forgotten_in_time() {
    let mut requeued = requeued::Requeued::default();
    for fingerprint in 0..50_000 {
        requeued.expect(fingerprint, Redeliveries { count: 1, ..Redeliveries::default() });
    }
    assert_eq!(requeued.take(0, 1), None);
    assert_eq!(requeued.take(49_999, 2), None, "it came back once only");
    assert!(requeued.take(49_999, 1).is_some());
    assert_eq!(requeued.take(49_999, 1), None, "it is expected once");
}

#[test]
fn what_was_handed_back_late_is_no_suspect_when_it_comes_back_counted() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { immediate: 0, ..RULES });
    prove(&mut inbox, queue, 40, now);
    for item in 0..20 {
        inbox.arrive(queue, Some(0), now, item);
    }
    while inbox.start(now).is_some() {}
    let later = now + RULES.start_limit;
    assert_eq!(inbox.take_late(queue, later), (10..20).collect::<Vec<_>>());
    inbox.arrive(queue, Some(1), later, 10);
    assert!(!has_suspects(&inbox), "this process has handed it back itself");
    inbox.arrive(queue, Some(1), later, 5);
    assert!(has_suspects(&inbox), "and not this one");
}

#[test]
fn what_has_waited_too_long_for_a_handler_goes_back_and_is_no_suspect() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { concurrency: 1, immediate: 0, ..RULES });
    prove(&mut inbox, queue, 40, now);
    inbox.subscribed(queue, 4, now);
    for item in 0..4 {
        inbox.arrive(queue, Some(0), now, item);
    }
    let (waits, item) = started(&mut inbox, now);
    assert_eq!(inbox.hold(waits, item, now + seconds(5), now), None);
    let (runs, _) = started(&mut inbox, now);
    inbox.subscribed(queue, 0, now);
    assert_eq!(inbox.take_late(queue, now + RULES.start_limit), [2, 3]);
    assert_eq!(inbox.take_late(queue, now + RULES.start_limit), Vec::<u64>::new());
    // 3.10 and 4.0 count it.
    inbox.arrive(queue, Some(1), now, 2);
    assert!(!has_suspects(&inbox), "this process has handed it back itself");
    inbox.finish(runs, now);
    assert_eq!(
        started(&mut inbox, now + seconds(5)).1,
        0,
        "what waited between two attempts has stayed"
    );
}

#[test]
fn what_goes_back_makes_room_for_others() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { concurrency: 1, prefetch: 4, ..RULES });
    prove(&mut inbox, queue, 40, now);
    inbox.subscribed(queue, 4, now);
    (0..4).for_each(|item| inbox.arrive(queue, Some(0), now, item));
    let _runs = started(&mut inbox, now);
    assert_eq!(inbox.take_late(queue, now + RULES.start_limit), [1, 2, 3]);
    assert_eq!(window(&inbox, queue, now), 4, "the broker counts only what is unsettled");
    inbox.subscribed(queue, 0, now);
    assert_eq!(window(&inbox, queue, now), 3, "one is still running");
}

#[test]
fn what_was_handed_back_is_known_whether_the_broker_counts_it_or_not_and_explains_nothing_else() {
    let of = |count, excused| Redeliveries { count, excused, requeued: 0 };
    let mut requeued = requeued::Requeued::default();
    for (had, count, expected) in [
        (of(0, 0), 0, of(0, 0)),
        (of(0, 0), 1, of(1, 1)),
        (of(2, 0), 2, of(2, 0)),
        (of(2, 0), 3, of(3, 1)),
    ] {
        requeued.expect_handed_back(7, had);
        assert!(requeued.has_handed_back());
        assert_eq!(requeued.take(7, count), Some(expected));
        assert!(!requeued.has_handed_back());
        assert_eq!(
            (requeued.take(7, had.count), requeued.take(7, had.count + 1)),
            (None, None),
            "it comes back once"
        );
    }
}

#[test]
fn a_requeued_message_that_4_3_hands_back_uncounted_is_still_no_suspect() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { concurrency: 1, delivery_limit: 5, immediate: 2, ..RULES });
    prove(&mut inbox, queue, 40, now);
    inbox.arrive(queue, Some(0), now, 7);
    for count in 1..=2 {
        let (ticket, item) = started(&mut inbox, now);
        inbox.expect(&ticket, item, true);
        inbox.finish(ticket, now);
        if count == 2 {
            inbox.arrive(queue, Some(0), now, 8);
            let _runs = started(&mut inbox, now);
        }
        inbox.arrive(queue, Some(count), now, 7);
    }
    inbox.subscribed(queue, 0, now);
    assert_eq!(inbox.take_late(queue, now + RULES.start_limit), [7]);
    inbox.arrive(queue, Some(2), now, 7);
    assert!(!has_suspects(&inbox));
}

#[test]
fn what_was_handed_back_uncounted_excuses_no_later_crash() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { concurrency: 1, immediate: 0, ..RULES });
    prove(&mut inbox, queue, 40, now);
    (0..2).for_each(|item| inbox.arrive(queue, Some(0), now, item));
    let _runs = started(&mut inbox, now);
    inbox.subscribed(queue, 0, now);
    assert_eq!(inbox.take_late(queue, now + RULES.start_limit), [1]);
    inbox.arrive(queue, Some(0), now, 1);
    assert_eq!(inbox.take_late(queue, now + RULES.start_limit), [1]);
    inbox.arrive(queue, Some(0), now, 1);
    assert_eq!(
        inbox.queues[0].redeliveries(1, &1u64),
        Redeliveries { count: 1, ..Redeliveries::default() }
    );
}

#[test]
fn what_can_come_in_one_way_only_is_not_taken_for_what_was_handed_back() {
    let of = |count, requeued, excused| Redeliveries { count, requeued, excused };
    let mut requeued = requeued::Requeued::default();
    requeued.expect_handed_back(7, of(0, 0, 0));
    requeued.expect(7, of(1, 1, 0));
    assert_eq!(requeued.take(7, 1), Some(of(1, 1, 0)));
    assert_eq!(requeued.take(7, 0), Some(of(0, 0, 0)));
    assert!(!requeued.has_handed_back());
}

#[test]
fn what_a_lost_channel_held_is_known_although_what_was_handed_back_comes_before_it() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { concurrency: 1, immediate: 0, ..RULES });
    prove(&mut inbox, queue, 40, now);
    inbox.subscribed(queue, 2, now);
    (1..=2).for_each(|item| inbox.arrive(queue, Some(0), now, item));
    let _runs = started(&mut inbox, now);
    inbox.subscribed(queue, 0, now);
    assert_eq!(inbox.take_late(queue, now + RULES.start_limit), [2]);
    inbox.lost(queue, false, now);
    inbox.subscribed(queue, 2, now);
    inbox.arrive(queue, Some(0), now, 2);
    inbox.arrive(queue, Some(1), now, 1);
    assert!(!has_suspects(&inbox));
}

#[test]
fn only_what_has_waited_too_long_is_given_back() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { concurrency: 1, ..RULES });
    inbox.arrive(queue, Some(0), now, 0);
    let _runs = started(&mut inbox, now);
    (1..=2).for_each(|item| inbox.arrive(queue, Some(0), now + seconds(item), item));
    assert_eq!(inbox.take_late(queue, now + RULES.start_limit + seconds(1)), [1]);
}

#[test]
fn what_goes_back_to_wait_in_its_queue_is_as_little_suspect_as_before() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { immediate: 0, ..RULES });
    inbox.arrive(queue, Some(0), now, 7);
    let (ticket, item) = started(&mut inbox, now);
    inbox.expect(&ticket, item, true);
    inbox.finish(ticket, now);
    inbox.arrive(queue, Some(1), now, 7);
    let (ticket, item) = started(&mut inbox, now);
    inbox.expect(&ticket, item, false);
    inbox.finish(ticket, now);
    inbox.arrive(queue, Some(1), now, 7);
    assert!(!has_suspects(&inbox), "this process has requeued it");
}

/// A fresh message ends the wait for what was on its way to a lost channel.
#[test]
fn a_message_that_waited_in_its_queue_uncounted_is_fresh_when_it_comes_again() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { immediate: 0, concurrency: 1, ..RULES });
    (7..=8).for_each(|item| inbox.arrive(queue, Some(0), now, item));
    let (ticket, item) = started(&mut inbox, now);
    inbox.expect(&ticket, item, false);
    inbox.finish(ticket, now);
    assert_eq!(inbox.take_late(queue, now + RULES.start_limit), [8]);
    inbox.subscribed(queue, 1, now);
    inbox.lost(queue, false, now);
    inbox.arrive(queue, Some(0), now, 7);
    inbox.arrive(queue, Some(1), now, 1);
    assert!(has_suspects(&inbox));
}

#[test]
fn the_last_ten_thousand_that_were_given_back_are_known() {
    let of = Redeliveries { count: 1, requeued: 1, excused: 0 };
    let mut requeued = requeued::Requeued::default();
    requeued.expect_handed_back(10_000, Redeliveries::default());
    (0..10_000).for_each(|fingerprint| requeued.expect(fingerprint, of));
    assert!(requeued.has_handed_back());
    assert!((0..10_000).all(|fingerprint| requeued.take(fingerprint, 1) == Some(of)));
    assert!(requeued.take(10_000, 0).is_some());
}

#[test]
fn of_a_thousand_that_are_alike_the_oldest_is_forgotten() {
    let mut requeued = requeued::Requeued::default();
    (0..1_001).for_each(|_| requeued.expect_handed_back(7, Redeliveries::default()));
    let known = std::iter::from_fn(|| requeued.take(7, 0)).count();
    assert_eq!((known, requeued.has_handed_back()), (1_000, false));
}
