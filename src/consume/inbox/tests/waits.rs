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
    let (ticket, item) = started(&mut inbox, start);
    assert_eq!((item, inbox.running(queue)), (1, 1));
    let due = start + seconds(5);
    assert!(inbox.start(due).is_none(), "the slot is taken");
    inbox.finish(ticket, due);
    let (ticket, item) = started(&mut inbox, due);
    assert_eq!(item, 0, "what is due comes before what is not");
    inbox.lost(queue, false, due);
    assert_eq!(inbox.hold(ticket, item, due, due), None);
    assert!(inbox.start(due + seconds(9)).is_none(), "the broker has it again");
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
    inbox.opened(queue, start);
    let quiet = start + ACK_FLUSH_TIME;
    assert_eq!(
        inbox.wake_at(start),
        Some(quiet),
        "what was settled before must have left the process"
    );
    assert!(inbox.start(quiet).is_none());
    assert!(window(&inbox, queue, quiet) > 0, "others are taken while it waits");
    inbox.arrive(queue, Some(0), due, 2);
    let (_, first) = started(&mut inbox, due);
    assert_eq!(first, 1);
    assert!(inbox.start(due).is_none(), "nothing else starts");
}

/// Nothing else gives it back.
#[test]
fn what_would_be_held_after_the_queue_was_emptied_keeps_its_slot_until_it_is_given_back() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.arrive(queue, Some(0), now, 1);
    let (ticket, item) = started(&mut inbox, now);
    assert!(inbox.empty(queue, now).is_empty());
    let (ticket, item) = inbox.hold(ticket, item, now + seconds(5), now).unwrap();
    assert_eq!((item, inbox.running(queue), inbox.empty(queue, now)), (1, 1, vec![]));
    inbox.finish(ticket, now);
    assert_eq!(inbox.running(queue), 0);
}
