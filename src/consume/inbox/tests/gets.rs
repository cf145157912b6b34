//! While little is proven, messages are taken one by one.

use super::*;

/// An inbox whose queues are all open.
fn opened<const N: usize>(rules: Rules, now: Instant) -> (Inbox<u64>, [QueueIndex; N]) {
    let mut inbox = Inbox::new(0);
    let queues = [(); N].map(|()| inbox.add(rules));
    queues.iter().for_each(|queue| inbox.opened(*queue, now));
    assert!(inbox.start(now).is_none());
    (inbox, queues)
}

/// What each queue is to do once all that can start has started.
fn takes<const N: usize>(inbox: &Inbox<u64>, queues: [QueueIndex; N], now: Instant) -> [Take; N] {
    queues.map(|queue| inbox.take(queue, now))
}

/// Answers the gets of one queue after the other with nothing, until none is asked.
fn all_empty(inbox: &mut Inbox<u64>, queues: &[QueueIndex], now: Instant) -> usize {
    let mut answered = 0;
    while let Some(asked) = queues.iter().find(|queue| inbox.take(**queue, now) == Take::One) {
        inbox.got(*asked, None, now);
        assert!(inbox.start(now).is_none());
        answered += 1;
    }
    answered
}

const NONE: Take = Take::Window(0);

#[test]
fn one_queue_after_the_other_is_asked_and_subscribed_to_when_it_is_empty() {
    let now = Instant::now();
    let (mut inbox, queues @ [a, b, c]) = opened(RULES, now);
    assert_eq!(takes(&inbox, queues, now), [Take::One, NONE, NONE]);
    inbox.got(a, None, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(takes(&inbox, queues, now), [Take::Window(1), Take::One, NONE]);
    inbox.got(b, None, now);
    assert!(inbox.start(now).is_none());
    inbox.got(c, None, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(takes(&inbox, queues, now), [Take::Window(1); 3]);
    assert_eq!(inbox.wake_at(now), None, "an idle process sleeps");
}

#[test]
fn a_hundred_idle_queues_are_asked_once_each() {
    let now = Instant::now();
    let (mut inbox, queues) = opened::<100>(RULES, now);
    assert_eq!(all_empty(&mut inbox, &queues, now), 100);
    assert_eq!(takes(&inbox, queues, now), [Take::Window(1); 100]);
}

#[test]
fn processes_that_start_together_do_not_all_begin_with_the_same_queue() {
    let now = Instant::now();
    let first = |draw| {
        let mut inbox = Inbox::<u64>::new(draw);
        let queues = [(); 5].map(|()| inbox.add(RULES));
        queues.iter().for_each(|queue| inbox.opened(*queue, now));
        assert!(inbox.start(now).is_none());
        queues.iter().position(|queue| inbox.take(*queue, now) == Take::One)
    };
    assert_eq!([0, 1, 7, 254].map(first), [0, 1, 2, 4].map(Some));
}

/// A channel may not open for long, and others must not wait for that.
#[test]
fn a_queue_whose_channel_is_not_open_is_passed_over() {
    let now = Instant::now();
    let mut inbox = Inbox::<u64>::new(0);
    let (away, here) = (inbox.add(RULES), inbox.add(RULES));
    inbox.opened(here, now);
    assert!(inbox.start(now).is_none());
    assert_eq!((inbox.take(away, now), inbox.take(here, now)), (NONE, Take::One));
}

#[test]
fn a_fresh_message_opens_its_queue_and_lets_the_next_one_be_asked_although_its_handler_runs() {
    let now = Instant::now();
    let (mut inbox, queues @ [a, _]) = opened(RULES, now);
    inbox.got(a, Some((Some(0), 1)), now);
    let _running = started(&mut inbox, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(takes(&inbox, queues, now), [Take::Window(10), Take::One]);
}

/// It may have killed the process before, although it is no suspect yet.
#[test]
fn while_a_message_that_came_back_runs_nothing_is_asked() {
    let now = Instant::now();
    let (mut inbox, queues @ [a, _]) = opened(RULES, now);
    inbox.got(a, Some((Some(1), 1)), now);
    let (ticket, _) = started(&mut inbox, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(takes(&inbox, queues, now), [NONE, NONE]);
    inbox.finish(ticket, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(takes(&inbox, queues, now), [NONE, Take::One]);
}

#[test]
fn a_message_that_has_run_for_ten_seconds_stops_no_other_queue() {
    let now = Instant::now();
    let (mut inbox, queues @ [a, _]) = opened(RULES, now);
    inbox.got(a, Some((Some(1), 1)), now);
    let _runs = started(&mut inbox, now);
    assert_eq!(inbox.wake_at(now), Some(now + CRASHES_WITHIN));
    let later = now + CRASHES_WITHIN;
    assert!(inbox.start(later).is_none());
    assert_eq!(takes(&inbox, queues, later), [NONE, Take::One]);
}

/// As many as that can be handled one by one at once.
#[test]
fn fifty_messages_that_came_back_open_their_queue_after_the_eighth() {
    let now = Instant::now();
    let (mut inbox, queues @ [_, b, _]) = opened(RULES, now);
    let mut asked = 0;
    for number in 0.. {
        let Some(queue) = queues.iter().find(|queue| inbox.take(**queue, now) == Take::One) else {
            break;
        };
        asked += 1;
        let got = (*queue == b).then_some((Some(1), number));
        inbox.got(*queue, got, now);
        while let Some((ticket, _)) = inbox.start(now) {
            inbox.finish(ticket, now);
        }
    }
    assert_eq!(asked, 10, "two queues are empty");
    assert_eq!(inbox.take(b, now), Take::Window(10));
}

#[test]
fn after_a_suspect_each_message_is_taken_alone_and_each_queue_has_its_turn() {
    let now = Instant::now();
    let (mut inbox, queues @ [a, b]) = opened(RULES, now);
    inbox.got(a, Some((Some(5), 1)), now);
    assert_eq!(takes(&inbox, queues, now), [NONE, NONE]);
    let (suspect, _) = started(&mut inbox, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(takes(&inbox, queues, now), [NONE, NONE]);
    inbox.finish(suspect, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(takes(&inbox, queues, now), [NONE, Take::One]);
    inbox.got(b, Some((Some(0), 2)), now);
    let (fresh, _) = started(&mut inbox, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(takes(&inbox, queues, now), [NONE, NONE], "although it is fresh");
    inbox.finish(fresh, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(takes(&inbox, queues, now), [Take::One, NONE]);
}

#[test]
fn after_a_suspect_the_process_holds_an_eighth_of_what_it_has_settled() {
    let now = Instant::now();
    let (mut inbox, [queue]) = opened(RULES, now);
    inbox.got(queue, Some((Some(5), 0)), now);
    let (suspect, _) = started(&mut inbox, now);
    inbox.finish(suspect, now);
    let mut proven = 1;
    while proven < 32 {
        let mut running = Vec::new();
        while inbox.start(now).is_none() && inbox.take(queue, now) == Take::One {
            inbox.got(queue, Some((Some(0), proven)), now);
            running.push(started(&mut inbox, now).0);
        }
        assert_eq!(running.len() as u64, (proven / 8).max(1), "after {proven}");
        proven += running.len() as u64;
        running.into_iter().for_each(|ticket| inbox.finish(ticket, now));
    }
    assert_eq!(inbox.take(queue, now), Take::Window(40), "what was proven is enough");
}

#[test]
fn after_a_suspect_empty_queues_are_subscribed_to_when_all_are_empty_and_stay_so() {
    let now = Instant::now();
    let (mut inbox, queues @ [a, b, c]) = opened(RULES, now);
    inbox.got(a, Some((Some(5), 0)), now);
    let (suspect, _) = started(&mut inbox, now);
    inbox.finish(suspect, now);
    assert!(inbox.start(now).is_none());
    inbox.got(b, None, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(takes(&inbox, queues, now), [NONE, NONE, Take::One]);
    assert_eq!(all_empty(&mut inbox, &[a, b, c], now), 2);
    assert_eq!(takes(&inbox, queues, now), [Take::Window(1); 3]);
    queues.iter().for_each(|queue| inbox.subscribed(*queue, 1, now));
    inbox.arrive(b, Some(0), now, 1);
    let (fresh, _) = started(&mut inbox, now);
    assert!(inbox.start(now).is_none());
    let one = Take::Window(1);
    assert_eq!(takes(&inbox, queues, now), [one, NONE, one], "one that is not empty is asked");
    inbox.subscribed(b, 0, now);
    inbox.finish(fresh, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(takes(&inbox, queues, now), [one, Take::One, one]);
}

/// Its leader may hang.
#[test]
fn a_queue_that_does_not_answer_is_waited_for_only_a_while() {
    let now = Instant::now();
    let (mut inbox, queues @ [a, b]) = opened(RULES, now);
    let later = inbox.wake_at(now).expect("the get has a time limit");
    assert!(inbox.start(later).is_none());
    assert_eq!(takes(&inbox, queues, later), [Take::One, Take::One]);
    inbox.got(b, Some((Some(5), 1)), later);
    let (suspect, _) = started(&mut inbox, later);
    inbox.finish(suspect, later);
    inbox.got(a, None, later);
    assert!(inbox.start(later).is_none());
    assert_eq!(takes(&inbox, queues, later), [Take::One, NONE], "it is asked again");
}

/// What it brings would be charged.
#[test]
fn a_suspect_waits_for_the_answer_to_a_get() {
    let now = Instant::now();
    let (mut inbox, [a, b]) = opened(RULES, now);
    inbox.arrive(b, Some(5), now, 1);
    assert!(inbox.start(now).is_none());
    inbox.got(a, None, now);
    assert_eq!(started(&mut inbox, now).1, 1);
}

#[test]
fn a_queue_that_refuses_gets_is_subscribed_to_with_a_prefetch_of_one() {
    let now = Instant::now();
    let (mut inbox, queues @ [a, _]) = opened(RULES, now);
    inbox.refuses_gets(a, now);
    inbox.lost(a, false, now);
    inbox.opened(a, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(takes(&inbox, queues, now), [Take::Window(1), Take::One]);
    inbox.subscribed(a, 1, now);
    inbox.arrive(a, Some(0), now, 1);
    assert_eq!(inbox.take(a, now), Take::Window(10), "nothing came back before it");
}

/// What comes next may kill the process, which would charge it.
#[test]
fn while_a_suspect_near_its_limit_is_held_its_queue_is_not_asked() {
    for (count, take) in [(7, Take::One), (8, NONE)] {
        let now = Instant::now();
        let (mut inbox, [queue]) = opened(RULES, now);
        inbox.got(queue, Some((Some(count), 1)), now);
        let (ticket, item) = started(&mut inbox, now);
        assert_eq!(inbox.hold(ticket, item, now + seconds(60), now), None);
        assert!(inbox.start(now + ACK_FLUSH_TIME).is_none());
        assert_eq!(inbox.take(queue, now + ACK_FLUSH_TIME), take, "at {count}");
    }
}

/// Otherwise a few lost channels would make each message wait until the one before it is settled.
#[test]
fn a_queue_is_asked_although_lost_channels_have_charged_what_is_held() {
    let mut now = Instant::now();
    let (mut inbox, [queue]) = opened(RULES, now);
    for count in 0..9 {
        assert_eq!(inbox.take(queue, now), Take::One);
        inbox.got(queue, Some((Some(count), 1)), now);
        let (ticket, item) = started(&mut inbox, now);
        assert_eq!(inbox.hold(ticket, item, now + seconds(60), now), None);
        now += seconds(1);
        assert!(inbox.start(now).is_none());
        if count < 8 {
            inbox.lost(queue, false, now);
            inbox.opened(queue, now);
            assert!(inbox.start(now).is_none());
        }
    }
    assert!(is_near_limit(8, RULES.delivery_limit));
    assert_eq!(inbox.take(queue, now), Take::One);
}

#[test]
fn a_queue_without_a_free_slot_is_not_asked_and_the_others_are() {
    let now = Instant::now();
    let (mut inbox, queues @ [a, b]) = opened(Rules { concurrency: 1, ..RULES }, now);
    inbox.got(a, Some((Some(5), 0)), now);
    let (suspect, _) = started(&mut inbox, now);
    inbox.handler_ended(&suspect, now);
    let later = now + SETTLED_WITHIN;
    assert!(inbox.start(later).is_none());
    assert_eq!(takes(&inbox, queues, later), [NONE, Take::One]);
    inbox.got(b, None, later);
    assert!(inbox.start(later).is_none());
    assert_eq!(takes(&inbox, queues, later), [NONE, Take::Window(1)]);
    inbox.finish(suspect, later);
}

/// Otherwise the broker would be asked without end.
#[test]
fn while_only_a_queue_without_room_may_hold_more_the_empty_ones_are_subscribed_to() {
    let now = Instant::now();
    let (mut inbox, queues @ [a, b]) = opened(Rules { prefetch: 1, concurrency: 1, ..RULES }, now);
    inbox.got(a, Some((Some(5), 0)), now);
    let (suspect, item) = started(&mut inbox, now);
    let due = now + seconds(60);
    assert_eq!(inbox.hold(suspect, item, due, now), None);
    assert!(inbox.start(now).is_none());
    assert_eq!(takes(&inbox, queues, now), [NONE, Take::One]);
    inbox.got(b, None, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(takes(&inbox, queues, now), [NONE, Take::Window(1)]);
    inbox.subscribed(b, 1, now);
    assert!(inbox.start(due).is_none(), "the other queue's subscription has to end");
    let (suspect, _) = started(&mut inbox, due + ENDED_WITHIN);
    inbox.finish(suspect, due + ENDED_WITHIN);
}

#[test]
fn queues_are_counted_from_zero() {
    let mut inbox = Inbox::<u64>::new(0);
    let positions = [(); 3].map(|()| inbox.add(RULES).position());
    assert_eq!(positions, [0, 1, 2]);
}

/// An event concerns the sessions of one queue, unless what is known about all of them changes.
#[test]
fn an_event_changes_the_queue_that_it_is_about() {
    let now = Instant::now();
    let (mut inbox, queues @ [a, ..]) = opened::<100>(RULES, now);
    all_empty(&mut inbox, &queues, now);
    prove(&mut inbox, a, 100, now);
    let changed = |inbox: &mut Inbox<u64>| std::iter::from_fn(|| inbox.next_changed()).count();
    changed(&mut inbox);
    prove(&mut inbox, a, 10, now);
    assert_eq!(changed(&mut inbox), 1);
    inbox.arrive(a, Some(5), now, 1);
    assert_eq!(changed(&mut inbox), 100, "all have to close");
}
