//! When subscriptions end, and what waits for that.

use super::*;

#[test]
fn a_subscription_ends_when_it_is_full_or_idle_and_in_any_case_soon() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    let millis = |millis| now + Duration::from_millis(millis);
    inbox.subscribed(queue, 3, now);
    inbox.arrive(queue, Some(0), now, 1);
    assert!(!inbox.is_ending(queue));
    assert_eq!(inbox.ends_at(queue, now), Some(millis(100)));
    inbox.arrive(queue, Some(0), millis(40), 2);
    assert_eq!(inbox.ends_at(queue, millis(40)), Some(millis(140)));
    assert_eq!(inbox.ends_at(queue, millis(140)), None, "it is idle");
    inbox.arrive(queue, Some(0), millis(140), 3);
    assert_eq!(inbox.ends_at(queue, millis(140)), None, "it is full");
    assert!(inbox.is_ending(queue), "until that is reported");
    inbox.subscribed(queue, 0, now);
    assert!(!inbox.is_ending(queue));

    inbox.subscribed(queue, 100, now);
    for at in (0..300).step_by(50) {
        inbox.arrive(queue, Some(0), millis(at), at);
        assert_eq!(inbox.ends_at(queue, millis(at)), Some(millis((at + 100).min(300))));
    }
    assert_eq!(inbox.ends_at(queue, millis(300)), None);
    inbox.lost(queue, false, now);
    assert!(!inbox.is_ending(queue), "what nobody ends must hold up no settlement");
}

#[test]
fn a_suspect_starts_when_every_subscription_has_ended_or_does_not_end() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let (a, b) = (inbox.add(RULES), inbox.add(RULES));
    inbox.subscribed(a, 10, now);
    inbox.subscribed(b, 10, now);
    inbox.arrive(a, Some(5), now, 1);
    assert!(inbox.start(now).is_none());
    inbox.subscribed(a, 0, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(inbox.wake_at(now), Some(now + ENDED_WITHIN));
    inbox.subscribed(b, 0, now);
    let (suspect, _) = started(&mut inbox, now);
    inbox.finish(suspect, now);

    // The broker does not answer.
    let later = now + seconds(1);
    inbox.subscribed(b, 10, later);
    inbox.arrive(a, Some(5), later, 2);
    assert!(inbox.start(later).is_none());
    assert_eq!(started(&mut inbox, later + ENDED_WITHIN).1, 2);
}

#[test]
fn what_waited_to_be_settled_is_settled_before_a_suspect_starts() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.subscribed(queue, 1, now);
    inbox.arrive(queue, Some(5), now, 1u64);
    inbox.arrive(queue, Some(5), now, 2);
    assert_eq!(inbox.ends_at(queue, now), None);
    inbox.subscribed(queue, 0, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(inbox.wake_at(now), Some(now + ACK_FLUSH_TIME));
    assert!(inbox.start(now + ACK_FLUSH_TIME).is_some());
}

/// With one handler at first, or after a crash, the window is one delivery. If that one waits,
/// others must still be delivered.
#[test]
fn a_subscription_that_is_full_of_waits_ends_and_another_one_takes_its_place() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { prefetch: 3, concurrency: 1, can_get: false, ..RULES });
    for item in 0..3 {
        let wide = window(&inbox, queue, now);
        assert_eq!(wide, 1, "for item {item}");
        inbox.subscribed(queue, wide, now);
        inbox.arrive(queue, Some(0), now, item);
        let (ticket, item) = started(&mut inbox, now);
        assert_eq!(window(&inbox, queue, now), 1, "it runs");
        assert_eq!(inbox.hold(ticket, item, now + seconds(60), now), None);
        if item < 2 {
            assert_eq!(window(&inbox, queue, now), 0, "it waits");
            inbox.subscribed(queue, 0, now);
        }
    }
    assert_eq!(window(&inbox, queue, now), 1, "all of the prefetch waits");
    let due = now + seconds(60);
    let (ticket, _) = started(&mut inbox, due);
    inbox.finish(ticket, due);
    assert_eq!(window(&inbox, queue, due), 2, "there is room for one more");
}

/// Otherwise a copy that is refused after a crash would stop its queue, because little is proven
/// then and the window is one where no single message may be asked for.
#[test]
fn a_subscription_whose_delivery_has_long_been_waiting_for_a_confirm_ends_and_another_one_takes_its_place()
 {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { can_get: false, ..RULES });
    inbox.arrive(queue, Some(1), now, 1);
    inbox.lost(queue, false, now);
    assert_eq!(window(&inbox, queue, now), 1);
    inbox.subscribed(queue, 1, now);
    inbox.arrive(queue, Some(2), now, 2);
    let (ticket, _) = started(&mut inbox, now);
    inbox.handler_ended(&ticket, now);
    let later = now + SETTLED_WITHIN;
    let soon = later - Duration::from_millis(1);
    assert_eq!((window(&inbox, queue, soon), inbox.wake_at(soon)), (1, Some(later)));
    inbox.pass_time(later);
    assert_eq!(window(&inbox, queue, later), 0);
    inbox.subscribed(queue, 0, later);
    assert!(window(&inbox, queue, later) > 0);
}

/// What another subscription brings could not start, and would only be charged.
#[test]
fn a_subscription_whose_deliveries_all_wait_for_confirms_stays_while_no_slot_is_free() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { concurrency: 2, ..RULES });
    inbox.subscribed(queue, 2, now);
    let tickets = [1, 2].map(|item| {
        inbox.arrive(queue, Some(0), now, item);
        let (ticket, _) = started(&mut inbox, now);
        inbox.handler_ended(&ticket, now);
        ticket
    });
    let later = now + SETTLED_WITHIN;
    inbox.pass_time(later);
    assert_eq!(window(&inbox, queue, later), 2);
    for ticket in tickets {
        inbox.finish(ticket, later);
    }
    assert!(window(&inbox, queue, later) >= 2);
}
