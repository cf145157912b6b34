//! Queues that are kept in order.

use super::*;

/// Items with the same remainder by three are in one line. A crash charges all of them, and one of
/// them kills. `counts` are the delivery counts before the two crashes. Returns what is left after
/// them.
fn left_after_two_crashes(poison: u64, counts: [u32; 2]) -> Vec<u64> {
    let (now, mut left) = (Instant::now(), (0..9).collect::<Vec<u64>>());
    for count in counts {
        let mut inbox = Inbox::new(0);
        let queue = inbox.add(Rules { line: Line::Ordered, ..RULES });
        inbox.subscribed(queue, window(&inbox, queue, now), now);
        for item in &left {
            inbox.arrive(queue, Some(count), now, *item);
        }
        let mut time = now;
        loop {
            let Some((ticket, item)) = inbox.start(time) else {
                time = inbox.wake_at(time).expect("something is left");
                continue;
            };
            assert!(inbox.start(time).is_none(), "suspects run alone");
            if item == poison {
                break;
            }
            left.retain(|other| *other != item);
            inbox.finish(ticket, time);
        }
    }
    left
}

#[test]
fn after_two_crashes_only_the_line_of_the_message_that_kills_is_left_of_an_ordered_queue() {
    for poison in 0..9 {
        let line: Vec<_> =
            (0..9).filter(|item| item % 3 == poison % 3 && *item >= poison).collect();
        for counts in [[6, 7], [8, 9]] {
            assert_eq!(left_after_two_crashes(poison, counts), line, "{poison} kills");
        }
    }
}

#[test]
fn without_a_count_the_order_of_suspect_lines_depends_on_the_process() {
    let first = |draw| {
        let (mut inbox, now) = (Inbox::new(draw), Instant::now());
        let queue = inbox.add(Rules {
            line: Line::Ordered,
            counts_deliveries: false,
            immediate: 0,
            prefetch: 3,
            ..RULES
        });
        inbox.subscribed(queue, 3, now);
        (0..3).for_each(|item| inbox.arrive(queue, None, now, item));
        started(&mut inbox, now).1
    };
    assert_eq!([first(0), first(1)], [0, 2]);
}

#[test]
fn an_ordered_queue_keeps_its_prefetch_whatever_the_other_queues_bring() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let (ordered, other) = (inbox.add(Rules { line: Line::Ordered, ..RULES }), inbox.add(RULES));
    inbox.subscribed(ordered, RULES.prefetch, now);
    inbox.arrive(other, Some(9), now, 1);
    assert_eq!(window(&inbox, ordered, now), RULES.prefetch);
    inbox.arrive(ordered, Some(0), now, 2);
    let (_, suspect) = started(&mut inbox, now);
    assert_eq!(suspect, 1);
    assert!(
        inbox.start(now).is_none(),
        "what the ordered queue brought waits until the suspect has proven harmless"
    );
    assert!(!inbox.has_late(ordered, now) && inbox.has_late(ordered, now + RULES.start_limit));
}

#[test]
fn a_suspect_of_an_ordered_queue_waits_for_subscriptions_to_end_however_long_others_are_there() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let (ordered, other) = (inbox.add(Rules { line: Line::Ordered, ..RULES }), inbox.add(RULES));
    inbox.subscribed(other, 1, now);
    inbox.arrive(ordered, Some(0), now, 0);
    let _running = started(&mut inbox, now);
    let later = now + 2 * ENDED_WITHIN;
    inbox.arrive(ordered, Some(6), later, 1);
    assert!(inbox.start(later).is_none(), "what is on its way to the other queue would be charged");
    inbox.subscribed(other, 0, later);
    assert_eq!(started(&mut inbox, later + ENDED_WITHIN).1, 1);
}

#[test]
fn what_has_waited_between_two_attempts_is_no_suspect_of_an_ordered_queue_unless_it_was_one() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { line: Line::Ordered, ..RULES });
    inbox.arrive(queue, Some(0), now, 0);
    let (ticket, plain) = started(&mut inbox, now);
    assert_eq!(inbox.hold(ticket, plain, now + seconds(1), now), None);
    inbox.arrive(queue, Some(6), now, 1);
    assert_eq!(started(&mut inbox, now + seconds(1)).1, 1, "the suspect is in the other line");
}

#[test]
fn a_line_goes_on_when_its_first_is_settled_and_not_while_that_waits() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { line: Line::Ordered, ..RULES });
    [0, 3].into_iter().for_each(|item| inbox.arrive(queue, Some(0), now, item));
    let (ticket, first) = started(&mut inbox, now);
    assert_eq!(first, 0);
    assert!(inbox.start(now).is_none(), "it is behind the first");
    let due = now + seconds(1);
    assert_eq!(inbox.hold(ticket, first, due, now), None);
    assert!(inbox.start(now).is_none());
    let (ticket, again) = started(&mut inbox, due);
    assert_eq!(again, 0);
    inbox.finish(ticket, due);
    assert_eq!(started(&mut inbox, due).1, 3);
}

#[test]
fn suspects_of_an_ordered_queue_wait_for_the_rest_of_its_window_but_not_for_long() {
    let millis = Duration::from_millis;
    let subscribed = |now| {
        let mut inbox = Inbox::new(0);
        let queue = inbox.add(Rules { line: Line::Ordered, prefetch: 3, ..RULES });
        inbox.subscribed(queue, 3, now);
        inbox.arrive(queue, Some(6), now, 2);
        assert!(inbox.start(now).is_none(), "others may come that are to run first");
        (inbox, queue)
    };
    let now = Instant::now();
    let (mut inbox, queue) = subscribed(now);
    inbox.arrive(queue, Some(6), now + millis(90), 1);
    assert!(inbox.start(now + millis(180)).is_none());
    inbox.arrive(queue, Some(6), now + millis(180), 0);
    assert_eq!(started(&mut inbox, now + millis(180)).1, 0, "all have come");
    let (mut inbox, _) = subscribed(now);
    assert_eq!(inbox.wake_at(now), Some(now + millis(100)));
    assert_eq!(started(&mut inbox, now + millis(100)).1, 2, "nothing else comes");
}

/// When all goes back, a copy that is on its way may be stored, and would be sent again each time.
#[test]
fn a_copy_that_is_on_its_way_gets_a_moment_before_an_ordered_queue_gives_all_back() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { line: Line::Ordered, ..RULES });
    for item in 0..2 {
        inbox.arrive(queue, Some(0), now, item);
    }
    let (ticket, _) = started(&mut inbox, now);
    let _ = started(&mut inbox, now);
    let late = now + RULES.start_limit;
    assert!(inbox.has_late(queue, late));
    inbox.handler_ended(&ticket, late);
    assert!(!inbox.has_late(queue, late));
    assert_eq!(inbox.wake_at(late), Some(late + SETTLED_WITHIN));
    assert!(inbox.has_late(queue, late + SETTLED_WITHIN), "but not for long");
    inbox.finish(ticket, late);
    assert!(inbox.has_late(queue, late));
}
