//! How wide the window is.

use super::*;

/// Each width of the window, while deliveries are settled one after the other.
fn widths(inbox: &mut Inbox<u64>, queue: QueueIndex, now: Instant) -> Vec<u16> {
    let mut windows = vec![window(inbox, queue, now)];
    for _ in 0..200 {
        prove(inbox, queue, 1, now);
        let wide = window(inbox, queue, now);
        if windows.last() != Some(&wide) {
            windows.push(wide);
        }
    }
    windows
}

#[test]
fn a_fresh_delivery_opens_the_window_for_as_many_as_there_are_handlers_and_what_is_settled_opens_it_further()
 {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    assert_eq!(widths(&mut inbox, queue, now), [0, 10, 40, 100]);
}

/// Each is one more consumer, as the page "Sizing" says.
#[test]
fn a_queue_that_was_empty_at_first_is_subscribed_to_in_four_steps() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.opened(queue, now);
    inbox.got(queue, None, now);
    assert_eq!(widths(&mut inbox, queue, now), [1, 10, 40, 100]);
}

#[test]
fn after_a_suspect_the_window_stays_closed_until_enough_was_settled() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.arrive(queue, Some(5), now, 0);
    let (suspect, _) = started(&mut inbox, now);
    inbox.finish(suspect, now);
    let later = now + seconds(1);
    assert_eq!(widths(&mut inbox, queue, later), [0, 40, 100]);
}

#[test]
fn after_a_delivery_that_ended_the_connection_one_message_is_taken_at_a_time_until_enough_was_settled()
 {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    prove(&mut inbox, queue, 2000, now);
    assert_eq!(window(&inbox, queue, now), 100);
    inbox.lost(queue, true, now);
    assert_eq!(widths(&mut inbox, queue, now), [0, 40, 100]);
}

#[test]
fn ordinary_requeues_leave_an_open_window_open() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    prove(&mut inbox, queue, 2000, now);
    for item in 0..50 {
        inbox.arrive(queue, Some(1), now, item);
    }
    assert_eq!(window(&inbox, queue, now), 100);
    let running = std::iter::from_fn(|| inbox.start(now)).count();
    assert_eq!(running, 10, "as many at a time as before");
}

#[test]
fn one_handler_has_a_window_too() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { concurrency: 1, ..RULES });
    let mut prefetch = 0;
    for item in 0..41 {
        let wanted = window(&inbox, queue, now);
        if wanted != prefetch {
            inbox.subscribed(queue, 0, now);
            inbox.subscribed(queue, wanted, now);
            prefetch = wanted;
        }
        inbox.arrive(queue, Some(0), now, item);
        let (ticket, _) = started(&mut inbox, now);
        if item < 40 {
            inbox.handler_ended(&ticket, now);
            inbox.finish(ticket, now + Duration::from_millis(2));
        }
    }
    assert_eq!(window(&inbox, queue, now), 16);
}

#[test]
fn a_window_that_is_narrow_because_of_what_waits_widens_only_where_it_can_double() {
    let mut held = queue_inbox::QueueInbox::<u64>::new(RULES, 0);
    held.subscribe(10);
    let window = |room| held.in_steps(100, room);
    assert_eq!([5, 10, 11, 19, 20, 99, 100, 200].map(window), [5, 10, 10, 10, 20, 99, 100, 100]);
    assert_eq!(held.in_steps(12, 50), 12, "what is open in full needs no further step");
}

#[test]
fn an_idle_queue_keeps_its_window_until_something_comes_and_widens_in_steps() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let [busy, idle] = [(); 2].map(|()| inbox.add(RULES));
    prove(&mut inbox, busy, 2000, now);
    assert_eq!(window(&inbox, idle, now), 100, "a first subscription is as wide as it may be");
    inbox.subscribed(idle, 1, now);
    assert_eq!(window(&inbox, idle, now), 1);
    for (item, wider) in [10, 40, 100].into_iter().enumerate() {
        inbox.arrive(idle, Some(0), now, item as u64);
        assert_eq!(window(&inbox, idle, now), wider, "for each handler, and then in steps");
        inbox.subscribed(idle, wider, now);
    }
}

/// A slot that does not become free, as of a refused copy, is not counted on.
#[test]
fn the_more_slots_stay_taken_the_less_is_taken_and_what_earlier_subscriptions_brought_counts() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    // Each slot starts three in time.
    let queue = inbox.add(Rules { concurrency: 2, handler_timeout: seconds(400), ..RULES });
    prove(&mut inbox, queue, 1_000, now);
    assert_eq!(window(&inbox, queue, now), 6);
    inbox.subscribed(queue, 6, now);
    inbox.arrive(queue, Some(0), now, 1);
    let _stays = started(&mut inbox, now);
    let later = now + RULES.start_limit;
    assert_eq!(window(&inbox, queue, later), 4, "the one that stays, and three");
    (2..4).for_each(|item| inbox.arrive(queue, Some(0), later, item));
    inbox.subscribed(queue, 0, later);
    assert_eq!(window(&inbox, queue, later), 1, "two of the three are here");
}

#[test]
fn what_was_proven_before_a_dangerous_message_counts_no_more() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    prove(&mut inbox, queue, 2000, now);
    inbox.arrive(queue, Some(5), now, 0);
    let (suspect, _) = started(&mut inbox, now);
    inbox.finish(suspect, now);
    assert_eq!(window(&inbox, queue, now), 0);
}

/// While less is proven, messages are taken one by one.
#[test]
fn eight_deliveries_that_were_settled_or_have_run_for_ten_seconds_are_some_proof() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.arrive(queue, Some(0), now, 0);
    let (slow, _) = started(&mut inbox, now);
    assert_eq!(inbox.wake_at(now), Some(now + CRASHES_WITHIN));
    prove(&mut inbox, queue, 7, now);
    inbox.pass_time(now + CRASHES_WITHIN - Duration::from_nanos(1));
    assert!(inbox.proof.is_scant());
    inbox.pass_time(now + CRASHES_WITHIN);
    assert!(!inbox.proof.is_scant());
    inbox.finish(slow, now + CRASHES_WITHIN);
}

#[test]
fn a_handler_that_runs_for_long_is_proof_once() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    prove(&mut inbox, queue, 6, now);
    inbox.arrive(queue, Some(0), now, 0);
    let (slow, _) = started(&mut inbox, now);
    for after in 10..20 {
        inbox.pass_time(now + seconds(after));
    }
    inbox.finish(slow, now + seconds(20));
    assert!(inbox.proof.is_scant());
}

/// A message that its queue has delayed.
struct Delayed(u64);

impl Fingerprint for Delayed {
    fn fingerprint(&self) -> u64 {
        self.0
    }

    fn has_waited_in_queue(&self) -> bool {
        true
    }
}

#[test]
fn what_its_queue_has_delayed_opens_the_window_only_if_it_comes_back_explained() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.arrive(queue, Some(0), now, Delayed(1));
    let (ticket, _) = inbox.start(now).expect("a handler is free");
    assert_eq!(window(&inbox, queue, now), 0, "it may have come before what a crash gave back");
    inbox.expect(&ticket, 1, true);
    inbox.finish(ticket, now);
    inbox.arrive(queue, Some(1), now, Delayed(1));
    assert_eq!(window(&inbox, queue, now), 10);
}
