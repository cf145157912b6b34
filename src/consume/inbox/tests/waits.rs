//! Messages that wait in the process.

use super::*;

#[test]
fn what_is_held_takes_no_slot_and_runs_first_when_it_is_due() {
    let (mut inbox, start) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { concurrency: 1, ..RULES });
    for item in 0..3 {
        inbox.arrive(queue, Some(0), start, item);
    }
    let (ticket, item) = started(&mut inbox, start);
    assert_eq!(inbox.hold(ticket, item, start + seconds(5), start), None);
    assert_eq!((inbox.running(queue), inbox.wake_at(start)), (0, Some(start + seconds(5))));
    assert_eq!(inbox.oldest_running(queue), None, "it waits");
    let (ticket, item) = started(&mut inbox, start);
    assert_eq!((item, inbox.running(queue)), (1, 1));
    let due = start + seconds(5);
    assert!(inbox.start(due).is_none(), "the slot is taken");
    inbox.finish(ticket, due);
    let (ticket, item) = started(&mut inbox, due);
    assert_eq!(item, 0, "what is due comes before what is not");
    assert_eq!(inbox.oldest_running(queue), Some(due));
    inbox.lost(queue);
    assert_eq!(inbox.hold(ticket, item, due, due), Some(0), "the broker has it again");
    assert!(inbox.start(due + seconds(9)).is_none());
}

/// One attempt that does not kill says little about the next.
#[test]
fn a_suspect_that_was_held_is_alone_again_when_it_is_due_and_not_before() {
    let (mut inbox, start) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.arrive(queue, Some(6), start, 1);
    let (ticket, item) = started(&mut inbox, start);
    inbox.handler_ended(&ticket, start);
    let due = start + seconds(5);
    assert_eq!(inbox.hold(ticket, item, due, start), None);
    let quiet = inbox.quiet_until().expect("what was settled before must have left the process");
    inbox.pass_time(quiet);
    assert!(inbox.window(queue, quiet) > 0, "others are taken while it waits");
    inbox.arrive(queue, Some(0), due, 2);
    let (_, first) = started(&mut inbox, due);
    assert_eq!(first, 1);
    assert!(inbox.start(due).is_none(), "nothing else starts");
}

/// Otherwise each crash by another message would charge it while it waits, up to its limit.
#[test]
fn while_a_suspect_near_its_limit_waits_nothing_else_is_taken_or_started() {
    let (mut inbox, start) = (Inbox::new(0), Instant::now());
    let (queue, other) = (inbox.add(RULES), inbox.add(RULES));
    inbox.subscribed(queue, 1, start);
    inbox.arrive(queue, Some(8), start, 1);
    let (ticket, item) = started(&mut inbox, start);
    let due = start + seconds(5);
    assert_eq!(inbox.hold(ticket, item, due, start), None);
    inbox.arrive(other, Some(0), start, 2);
    inbox.arrive(other, Some(9), start, 3);
    let quiet = start + ENDED_WITHIN;
    assert!(inbox.start(quiet).is_none());
    assert_eq!((inbox.window(queue, quiet), inbox.window(other, quiet)), (0, 0));
    inbox.subscribed(queue, 0, quiet);
    assert_eq!(inbox.wake_at(quiet), Some(due));
    let order = [due, due + seconds(1), due + seconds(2)].map(|now| {
        let (ticket, item) = started(&mut inbox, now);
        assert!(inbox.start(now).is_none() || item == 2);
        inbox.finish(ticket, now);
        item
    });
    assert_eq!(order, [3, 1, 2], "the nearest to its limit first");
}

#[test]
fn a_suspect_near_its_limit_that_has_waited_runs_before_its_equals() {
    for draw in 0..50 {
        let (mut inbox, start) = (Inbox::new(draw), Instant::now());
        let queue = inbox.add(RULES);
        for item in 0..5 {
            inbox.arrive(queue, Some(9), start, item);
        }
        let (ticket, first) = started(&mut inbox, start);
        let due = start + seconds(5);
        assert_eq!(inbox.hold(ticket, first, due, start), None);
        assert_eq!(started(&mut inbox, due).1, first, "draw {draw}");
    }
}

#[test]
fn a_suspect_that_waits_for_long_holds_up_nothing() {
    let (mut inbox, start) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.arrive(queue, Some(9), start, 1);
    let (ticket, item) = started(&mut inbox, start);
    assert_eq!(inbox.hold(ticket, item, start + seconds(11), start), None);
    inbox.arrive(queue, Some(0), start, 2);
    assert_eq!(started(&mut inbox, start + ACK_FLUSH_TIME).1, 2);
}

#[test]
fn others_start_after_ten_seconds_however_often_a_suspect_waits() {
    let (mut inbox, start) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.arrive(queue, Some(9), start, 1);
    inbox.arrive(queue, Some(0), start, 2);
    let (ticket, item) = started(&mut inbox, start);
    assert_eq!(inbox.hold(ticket, item, start + seconds(6), start), None);
    let (ticket, item) = started(&mut inbox, start + seconds(6));
    assert_eq!((item, inbox.hold(ticket, item, start + seconds(12), start + seconds(6))), (1, None));
    assert!(inbox.start(start + seconds(7)).is_none(), "it is close to its limit");
    assert_eq!(inbox.wake_at(start + seconds(7)), Some(start + seconds(10)));
    assert_eq!(started(&mut inbox, start + seconds(10)).1, 2);
}

/// A suspect near its limit that waits for five seconds has all of them, whatever waited before it.
#[test]
fn only_a_suspect_near_its_limit_that_waits_begins_a_standstill() {
    let (start, wait) = (Instant::now(), seconds(5));
    for (redeliveries, first_wait) in [(0, wait), (9, Duration::ZERO)] {
        let mut inbox = Inbox::new(0);
        let queue = inbox.add(RULES);
        inbox.arrive(queue, Some(redeliveries), start, 1);
        let (ticket, item) = started(&mut inbox, start);
        assert_eq!(inbox.hold(ticket, item, start + first_wait, start), None);
        let now = start + seconds(8);
        let (ticket, _) = started(&mut inbox, now);
        inbox.finish(ticket, now);
        let now = now + ACK_FLUSH_TIME;
        inbox.arrive(queue, Some(9), now, 2);
        let (ticket, item) = started(&mut inbox, now);
        assert_eq!(inbox.hold(ticket, item, now + wait, now), None);
        assert_eq!(inbox.stands_still_until(now), Some(now + seconds(10)), "after {first_wait:?}");
    }
}

#[test]
fn a_suspect_that_waits_holds_up_nothing_once_its_channel_is_lost() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.arrive(queue, Some(9), now, 1);
    let (ticket, item) = started(&mut inbox, now);
    assert_eq!(inbox.hold(ticket, item, now + seconds(5), now), None);
    assert_eq!(inbox.window(queue, now), 0);
    inbox.lost(queue);
    assert_eq!(inbox.window(queue, now), 1);
    inbox.arrive(queue, Some(0), now, 2);
    assert_eq!(started(&mut inbox, now).1, 2);
}
