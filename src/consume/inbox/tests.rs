//! Properties of the inbox: by itself under any calls, and in the model's worlds.

use std::collections::HashMap;

use proptest::prelude::*;

use super::model::{Range, Scenario, World};
use super::*;
use crate::inputs::{inputs, worlds};

const RULES: Rules = Rules {
    prefetch: 100,
    concurrency: 10,
    delivery_limit: 10,
    immediate: 1,
    hold_limit: Duration::from_secs(900),
    is_ordered: false,
};

impl Fingerprint for u64 {
    fn fingerprint(&self) -> u64 {
        *self
    }

    fn order_key(&self) -> u64 {
        self % 3
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Settles `times` fresh deliveries, one after the other.
fn prove(inbox: &mut Inbox<u64>, queue: QueueIndex, times: u64, now: Instant) {
    for item in 0..times {
        inbox.arrive(queue, Some(0), now, item);
        let (_, ticket, _) = inbox.start(now).expect("a handler is free");
        inbox.finish(ticket, now);
    }
}

/// Starts one handler.
fn started(inbox: &mut Inbox<u64>, now: Instant) -> (Ticket, u64) {
    let (_, ticket, item) = inbox.start(now).expect("a handler may start");
    (ticket, item)
}

proptest! {
    #![proptest_config(worlds(30))]

    #[test]
    fn only_what_kills_is_parked_and_everything_ends(seed in any::<u64>()) {
        let scenario = Scenario::draw(seed, Range::PROMISED);
        let outcome = World::new(&scenario, seed).run();
        prop_assert_eq!(&outcome.innocents_parked, &Vec::<usize>::new());
        prop_assert_eq!(outcome.unfinished, 0);
    }
}

proptest! {
    #![proptest_config(worlds(10))]

    #[test]
    fn everything_ends_although_channels_are_lost_and_messages_wait_in_their_process(seed in any::<u64>()) {
        let range = Range { losses: 3, lags: &[0, 1, 3, 20], waits: true, ordered: true, ..Range::PROMISED };
        let scenario = Scenario::draw(seed, range);
        let outcome = World::new(&scenario, seed).run();
        prop_assert_eq!(outcome.unfinished, 0);
        prop_assert_eq!(&outcome.overtaken, &Vec::new());
    }

    #[test]
    fn nothing_is_held_for_longer_than_the_brokers_ack_timeout(seed in any::<u64>()) {
        let scenario = Scenario::draw(seed, Range { ack_timeout: 5_000, ..Range::PROMISED });
        let outcome = World::new(&scenario, seed).run();
        prop_assert_eq!(outcome.unfinished, 0);
        // Some time passes until subscriptions have ended and the broker knows.
        prop_assert!(outcome.longest_held <= 5_500, "{} ms", outcome.longest_held);
    }
}

proptest! {
    #![proptest_config(worlds(20))]

    #[test]
    fn one_poison_is_parked_alone_even_where_immediate_is_close_to_the_limit(
        processes in 1usize..=6, prefetch in 1u16..=200, limit in 5u32..=12, spare in 1u32..=3, poison_at in 0usize..300,
    ) {
        let rules = Rules { prefetch, concurrency: prefetch.min(10), delivery_limit: limit, immediate: limit - spare, ..RULES };
        let scenario = Scenario::plain(processes, rules, 300, 1, poison_at);
        let outcome = World::new(&scenario, 1).run();
        prop_assert_eq!(&outcome.innocents_parked, &Vec::<usize>::new());
        prop_assert_eq!(outcome.unfinished, 0);
    }

    #[test]
    fn a_poison_of_an_ordered_queue_is_parked_with_none_but_those_behind_it_in_its_line(
        processes in 1usize..=6, prefetch in 2u16..=200, limit in 6u32..=12, keys in 1usize..=6, poison_at in 0usize..300,
    ) {
        // A queue that is ordered as a whole has one line, and holds one message at a time.
        let prefetch = if keys == 1 { 1 } else { prefetch };
        let rules = Rules { prefetch, concurrency: prefetch.min(10), delivery_limit: limit, is_ordered: true, ..RULES };
        let scenario = Scenario::plain(processes, rules, 300, keys, poison_at);
        let outcome = World::new(&scenario, 1).run();
        let is_behind = |parked: &usize| keys > 1 && *parked > poison_at && parked % keys == poison_at % keys;
        prop_assert!(outcome.innocents_parked.iter().all(is_behind), "{:?}", outcome.innocents_parked);
        prop_assert_eq!(&outcome.overtaken, &Vec::new());
        prop_assert_eq!(outcome.unfinished, 0);
    }
}

#[derive(Debug, Clone)]
enum Call {
    Arrive(usize, Option<u32>),
    Start,
    Finish(usize),
    Hold(usize, u64),
    Lose(usize),
    GiveBack(usize),
    Drain(usize),
    Subscribe(usize),
    Pass(u64),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let count = prop::option::weighted(0.9, prop_oneof![3 => Just(0u32), 1 => 1u32..4, 1 => any::<u32>()]);
    let call = prop_oneof![
        8 => (0usize..3, count).prop_map(|(queue, count)| Call::Arrive(queue, count)),
        8 => Just(Call::Start),
        6 => any::<usize>().prop_map(Call::Finish),
        3 => (any::<usize>(), 0u64..1_000).prop_map(|(which, millis)| Call::Hold(which, millis)),
        1 => (0usize..3).prop_map(Call::Lose),
        1 => (0usize..3).prop_map(Call::GiveBack),
        1 => (0usize..3).prop_map(Call::Drain),
        4 => (0usize..3).prop_map(Call::Subscribe),
        3 => (0u64..2_000_000).prop_map(Call::Pass),
    ];
    prop::collection::vec(call, 0..200)
}

#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Waiting(usize),
    Started,
    GivenBack,
    Lost,
}

proptest! {
    #![proptest_config(inputs(256))]

    /// In any order of calls that a session can make, each delivery is started, given back or lost, once.
    #[test]
    fn every_delivery_has_one_fate_and_the_bounds_hold(
        calls in calls(), draw in any::<u64>(), prefetch in 1u16.., concurrency in 1u16..5, limit in 1u32..20, immediate in 0u32..20,
    ) {
        let rules = Rules { prefetch, concurrency: concurrency.min(prefetch), delivery_limit: limit, immediate, ..RULES };
        let mut inbox = Inbox::new(draw);
        // The last queue is ordered.
        let queues: Vec<_> = (0..3).map(|queue| inbox.add(Rules { is_ordered: queue == 2, ..rules })).collect();
        let mut now = Instant::now();
        let mut fates: HashMap<u64, Fate> = HashMap::new();
        let mut running: Vec<(usize, Ticket, bool, u64)> = Vec::new();
        for call in calls {
            match call {
                Call::Arrive(queue, count) => {
                    let item = fates.len() as u64;
                    inbox.arrive(queues[queue], count, now, item);
                    fates.insert(item, Fate::Waiting(queue));
                }
                Call::Start => if let Some((queue, ticket, item)) = inbox.start(now) {
                    prop_assert_eq!(fates.insert(item, Fate::Started), Some(Fate::Waiting(queue.0)));
                    let mut same_line = running.iter().filter(|(of, _, counts, other)| (*of, other % 3, *counts) == (2, item % 3, true));
                    prop_assert!(queue.0 != 2 || same_line.next().is_none(), "one of a key runs at a time");
                    running.push((queue.0, ticket, true, item));
                    let of_queue = running.iter().filter(|(of, _, counts, _)| *of == queue.0 && *counts).count();
                    prop_assert!(of_queue <= usize::from(rules.concurrency));
                },
                Call::Finish(which) => if !running.is_empty() {
                    let (_, ticket, ..) = running.swap_remove(which % running.len());
                    inbox.finish(ticket, now);
                },
                Call::Hold(which, millis) => if !running.is_empty() {
                    let (queue, ticket, counts, item) = running.swap_remove(which % running.len());
                    let not_held = inbox.hold(ticket, item, now + Duration::from_millis(millis), now);
                    prop_assert_eq!(not_held.is_some(), !counts, "what a lost channel held is not held on");
                    if counts {
                        fates.insert(item, Fate::Waiting(queue));
                    }
                },
                Call::Lose(queue) => {
                    inbox.lost(queues[queue]);
                    fates.values_mut().filter(|fate| **fate == Fate::Waiting(queue)).for_each(|fate| *fate = Fate::Lost);
                    running.iter_mut().filter(|(of, ..)| *of == queue).for_each(|(_, _, counts, _)| *counts = false);
                }
                Call::GiveBack(queue) => for item in inbox.take_late(queues[queue], now) {
                    prop_assert_eq!(fates.insert(item, Fate::GivenBack), Some(Fate::Waiting(queue)));
                },
                // An ordered queue is drained only when nothing is started any more.
                Call::Drain(2) => {}
                Call::Drain(queue) => {
                    for item in inbox.drain(queues[queue]) {
                        prop_assert_eq!(fates.insert(item, Fate::GivenBack), Some(Fate::Waiting(queue)));
                    }
                    prop_assert!(!fates.values().any(|fate| *fate == Fate::Waiting(queue)));
                }
                Call::Subscribe(queue) => inbox.subscribed(queues[queue], inbox.window(queues[queue], now), now),
                Call::Pass(ms) => now += Duration::from_millis(ms),
            }
            prop_assert!(queues.iter().all(|queue| inbox.window(*queue, now) <= prefetch));
        }
        // In the end all that is left starts or has waited too long, and each queue is taken from again.
        let mut open = [false; 3];
        for _ in 0..10_000 {
            if inbox.is_overdue(queues[2], now) {
                inbox.lost(queues[2]);
                fates.values_mut().filter(|fate| **fate == Fate::Waiting(2)).for_each(|fate| *fate = Fate::Lost);
            }
            for queue in &queues {
                for item in inbox.take_late(*queue, now) {
                    fates.insert(item, Fate::GivenBack);
                }
            }
            while let Some((_, ticket, item)) = inbox.start(now) {
                fates.insert(item, Fate::Started);
                running.push((0, ticket, true, item));
            }
            for (_, ticket, ..) in running.drain(..) {
                inbox.finish(ticket, now);
            }
            for queue in &queues {
                let window = inbox.window(*queue, now);
                open[queue.0] |= window > 0;
                inbox.subscribed(*queue, window, now);
            }
            match inbox.wake_at(now) {
                Some(at) => now = now.max(at),
                None => break,
            }
        }
        prop_assert!(!fates.values().any(|fate| matches!(fate, Fate::Waiting(_))));
        prop_assert_eq!(open, [true; 3]);
    }
}

/// Each width of the window, while deliveries are settled one after the other.
fn widths(inbox: &mut Inbox<u64>, queue: QueueIndex, now: Instant) -> Vec<u16> {
    let mut windows = vec![inbox.window(queue, now)];
    for _ in 0..200 {
        prove(inbox, queue, 1, now);
        let window = inbox.window(queue, now);
        if windows.last() != Some(&window) {
            windows.push(window);
        }
    }
    windows
}

#[test]
fn a_fresh_delivery_opens_the_window_for_as_many_as_there_are_handlers_and_what_is_settled_opens_it_further() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    assert_eq!(widths(&mut inbox, queue, now), [1, 10, 40, 100]);
}

#[test]
fn after_a_suspect_the_window_opens_slowly_until_enough_was_settled() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.arrive(queue, Some(5), now, 0);
    let (suspect, _) = started(&mut inbox, now);
    inbox.finish(suspect, now);
    let later = now + seconds(1);
    assert_eq!(widths(&mut inbox, queue, later), [1, 2, 40, 100]);
}

#[test]
fn a_suspect_closes_every_window_and_runs_alone() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let (a, b) = (inbox.add(RULES), inbox.add(RULES));
    prove(&mut inbox, a, 1000, now);
    inbox.arrive(b, Some(0), now, 1);
    inbox.arrive(a, Some(5), now, 2);
    assert_eq!((inbox.window(a, now), inbox.window(b, now)), (0, 0));
    let (suspect, item) = started(&mut inbox, now);
    assert_eq!(item, 2);
    assert!(inbox.start(now).is_none(), "nothing starts beside it");
    inbox.finish(suspect, now);
    assert_eq!(started(&mut inbox, now).1, 1);
}

#[test]
fn the_suspect_that_is_nearest_to_its_limit_runs_first() {
    let (mut inbox, now) = (Inbox::<u64>::new(0), Instant::now());
    let (low, high) =
        (inbox.add(Rules { delivery_limit: 5, ..RULES }), inbox.add(Rules { delivery_limit: 50, ..RULES }));
    inbox.arrive(high, Some(40), now, 10);
    inbox.arrive(low, Some(2), now, 3);
    inbox.arrive(low, Some(4), now, 1);
    let mut order = Vec::new();
    let mut now = now;
    while let Some((_, ticket, item)) = inbox.start(now) {
        order.push(item);
        inbox.finish(ticket, now);
        now += ACK_FLUSH_TIME;
    }
    assert_eq!(order, [1, 3, 10]);
}

#[test]
fn a_suspect_waits_until_the_one_before_it_is_settled_at_the_broker() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    inbox.arrive(queue, Some(5), now, 1);
    inbox.arrive(queue, Some(5), now, 2);
    let (first, _) = started(&mut inbox, now);
    inbox.finish(first, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(inbox.wake_at(now), Some(now + ACK_FLUSH_TIME));
    assert!(inbox.start(now + ACK_FLUSH_TIME).is_some());
}

#[test]
fn ordinary_requeues_leave_an_open_window_open() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    prove(&mut inbox, queue, 2000, now);
    for item in 0..50 {
        inbox.arrive(queue, Some(1), now, item);
    }
    assert_eq!(inbox.window(queue, now), 100);
    let running = std::iter::from_fn(|| inbox.start(now)).count();
    assert_eq!(running, 10, "as many at a time as before");
}

#[test]
fn requeues_near_the_limit_are_suspect_although_handlers_give_back_as_often() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { delivery_limit: 5, immediate: 4, ..RULES });
    prove(&mut inbox, queue, 2000, now);
    inbox.arrive(queue, Some(2), now, 1);
    assert_eq!(inbox.window(queue, now), 0);
}

#[test]
fn a_handler_that_runs_for_a_day_stops_no_other_queue() {
    let (mut inbox, mut now) = (Inbox::new(0), Instant::now());
    let (slow, quick) = (inbox.add(RULES), inbox.add(RULES));
    inbox.subscribed(slow, 1, now);
    inbox.arrive(slow, Some(1), now, 1);
    let (_day, _) = started(&mut inbox, now);
    assert_eq!(inbox.window(quick, now), 0);
    now += CRASHES_WITHIN;
    assert!(inbox.start(now).is_none());
    inbox.subscribed(slow, inbox.window(slow, now), now);
    assert_eq!(inbox.window(quick, now), 1, "the suspect's isolation is over, and so is its queue's turn");
    prove(&mut inbox, quick, 100, now);
    assert!(inbox.window(quick, now) >= 8);
}

#[test]
fn a_suspect_whose_queue_is_busy_stops_no_other_queue() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let (busy, other) = (inbox.add(Rules { concurrency: 1, ..RULES }), inbox.add(RULES));
    inbox.arrive(busy, Some(0), now, 1);
    let (_day, _) = started(&mut inbox, now);
    inbox.arrive(busy, Some(5), now, 2);
    prove(&mut inbox, other, 16, now);
    assert_eq!((inbox.window(busy, now), inbox.window(other, now)), (0, 2));
}

#[test]
fn a_hold_limit_may_be_infinite() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { hold_limit: Duration::MAX, ..RULES });
    inbox.arrive(queue, Some(9), now, 1);
    let (ticket, _) = started(&mut inbox, now);
    inbox.arrive(queue, Some(9), now, 2);
    inbox.finish(ticket, now);
    assert!(inbox.wake_at(now).is_some());
}

#[test]
fn the_more_often_a_suspect_came_back_the_longer_it_is_isolated() {
    let isolated_for = |count| suspicion::isolated_for(&RULES, count).as_secs();
    assert_eq!(
        [1, 2, 3, 4, 5, 7, 8].map(isolated_for),
        [10, 40, 160, 640, 900, 900, 900],
        "never above the hold limit"
    );
}

#[test]
fn equal_suspects_run_in_random_order() {
    let first_of_two = |draw| {
        let (mut inbox, now) = (Inbox::new(draw), Instant::now());
        let queue = inbox.add(RULES);
        inbox.arrive(queue, Some(5), now, 1);
        inbox.arrive(queue, Some(5), now, 2);
        started(&mut inbox, now).1
    };
    let firsts = (0..20).map(first_of_two).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(firsts.len(), 2, "either may be first");
}

#[test]
fn a_suspect_near_its_limit_keeps_the_process_to_itself_until_the_hold_limit() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let (slow, quick) = (inbox.add(RULES), inbox.add(RULES));
    inbox.arrive(slow, Some(9), now, 1);
    let (_hangs, _) = started(&mut inbox, now);
    inbox.arrive(quick, Some(0), now, 2);
    assert!(inbox.start(now + seconds(899)).is_none());
    assert!(inbox.start(now + seconds(900)).is_some());
}

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
    assert_eq!(windows, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]], "all are idle, so there is nothing to separate");
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
    assert_eq!((inbox.window(a, later), inbox.window(b, later)), (0, 0), "deliveries of the first may be under way");
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

#[test]
fn what_has_waited_too_long_is_given_back_and_not_taken_again() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { concurrency: 1, ..RULES });
    prove(&mut inbox, queue, 1000, now);
    inbox.subscribed(queue, inbox.window(queue, now), now);
    for item in 0..3 {
        inbox.arrive(queue, Some(0), now, item);
    }
    let (hangs, _) = started(&mut inbox, now);
    let late = now + RULES.hold_limit;
    assert_eq!(inbox.take_late(queue, late - seconds(1)), Vec::<u64>::new());
    assert_eq!(inbox.take_late(queue, late), [1, 2]);
    assert!(inbox.window(queue, late) <= 1, "the only handler does not end");
    inbox.finish(hangs, late + seconds(900));
    assert_eq!(inbox.window(queue, late + seconds(900)), 4, "handlers take 225 s on average: 4 in 900 s");
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
        windows.push(inbox.window(queue, now));
        inbox.lost(queue);
    }
    assert_eq!(windows[..4], [10; 4], "{windows:?}");
    assert_eq!(windows[4], 0, "a message may be what breaks the channel");
    inbox.arrive(queue, Some(7), now, 3);
    assert_eq!(inbox.window(queue, now), 0, "it was not held when the channel was lost");
}

#[test]
fn handlers_of_a_lost_channel_block_nothing() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { concurrency: 1, ..RULES });
    inbox.arrive(queue, Some(5), now, 1);
    let (left_over, _) = started(&mut inbox, now);
    inbox.lost(queue);
    assert_eq!(inbox.window(queue, now), 1);
    inbox.arrive(queue, Some(0), now, 2);
    assert_eq!(started(&mut inbox, now).1, 2);
    inbox.finish(left_over, now);
    inbox.arrive(queue, Some(0), now, 3);
    assert!(inbox.start(now).is_none(), "the slot is the other's");
}

#[test]
fn what_was_on_its_way_when_a_subscription_ended_is_not_suspect() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { immediate: 0, ..RULES });
    prove(&mut inbox, queue, 30, now);
    inbox.subscribed(queue, 10, now);
    inbox.subscribed(queue, 0, now);
    inbox.subscribed(queue, 40, now);
    inbox.arrive(queue, Some(1), now, 1);
    assert_eq!(inbox.window(queue, now), 40);
    inbox.arrive(queue, Some(0), now, 2);
    inbox.arrive(queue, Some(1), now, 3);
    assert_eq!(inbox.window(queue, now), 0, "what comes back does so before anything that is fresh");
}

#[test]
fn a_subscription_ends_when_it_is_full_or_idle_and_in_any_case_soon() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    let millis = |millis| now + Duration::from_millis(millis);
    inbox.subscribed(queue, 3, now);
    inbox.arrive(queue, Some(0), now, 1);
    assert!(!inbox.is_ending(queue));
    assert_eq!(inbox.fill_until(queue, now), Some(millis(100)));
    inbox.arrive(queue, Some(0), millis(40), 2);
    assert_eq!(inbox.fill_until(queue, millis(40)), Some(millis(140)));
    assert_eq!(inbox.fill_until(queue, millis(140)), None, "it is idle");
    inbox.arrive(queue, Some(0), millis(140), 3);
    assert_eq!(inbox.fill_until(queue, millis(140)), None, "it is full");
    assert!(inbox.is_ending(queue), "until that is reported");
    inbox.subscribed(queue, 0, now);
    assert!(!inbox.is_ending(queue));

    inbox.subscribed(queue, 100, now);
    for at in (0..300).step_by(50) {
        inbox.arrive(queue, Some(0), millis(at), at);
        assert_eq!(inbox.fill_until(queue, millis(at)), Some(millis((at + 100).min(300))));
    }
    assert_eq!(inbox.fill_until(queue, millis(300)), None);
    inbox.lost(queue);
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
    assert_eq!(inbox.fill_until(queue, now), None);
    inbox.subscribed(queue, 0, now);
    assert!(inbox.start(now).is_none());
    assert_eq!(inbox.wake_at(now), Some(now + ACK_FLUSH_TIME));
    assert!(inbox.start(now + ACK_FLUSH_TIME).is_some());
}

#[test]
fn one_handler_has_a_window_too() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { concurrency: 1, ..RULES });
    let mut prefetch = 0;
    for item in 0..41 {
        let wanted = inbox.window(queue, now);
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
    assert_eq!(inbox.window(queue, now), 16);
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
        assert!(inbox.window(queue, now) > 0, "the window stays open at {count}");
        for (ticket, item) in [started(&mut inbox, now), started(&mut inbox, now)] {
            inbox.requeue(&ticket, item);
            inbox.finish(ticket, now);
        }
    }
    inbox.arrive(queue, Some(2), now, 8);
    assert_eq!(inbox.window(queue, now), 0, "another that came back so often may be what killed a process");
}

#[test]
fn what_was_given_back_once_and_came_back_twice_is_a_suspect() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { delivery_limit: 4, immediate: 3, ..RULES });
    prove(&mut inbox, queue, 1, now);
    inbox.arrive(queue, Some(0), now, 7);
    let (ticket, item) = started(&mut inbox, now);
    inbox.requeue(&ticket, item);
    inbox.finish(ticket, now);
    inbox.arrive(queue, Some(2), now, 7);
    assert_eq!(inbox.window(queue, now), 0);
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
fn a_window_that_is_narrow_for_its_pace_widens_only_where_it_can_double() {
    let mut held = queue_inbox::QueueInbox::<u64>::new(RULES);
    held.subscribe(10);
    let window = |paced| held.in_steps(100, paced);
    assert_eq!([5, 10, 11, 19, 20, 99, 100, 200].map(window), [5, 10, 10, 10, 20, 99, 100, 100]);
    assert_eq!(held.in_steps(12, 50), 12, "what is open in full needs no further step");
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
    let later = now + RULES.hold_limit;
    assert_eq!(inbox.take_late(queue, later), (10..20).collect::<Vec<_>>());
    inbox.arrive(queue, Some(1), later, 10);
    assert!(!inbox.has_suspects(later), "this process has handed it back itself");
    inbox.arrive(queue, Some(1), later, 5);
    assert!(inbox.has_suspects(later) || inbox.queues[0].has_suspects(), "and not this one");
}

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
    assert_eq!(item, 1);
    let due = start + seconds(5);
    assert!(inbox.start(due).is_none(), "the slot is taken");
    inbox.finish(ticket, due);
    let (ticket, item) = started(&mut inbox, due);
    assert_eq!(item, 0, "what is due comes before what is not");
    inbox.lost(queue);
    assert_eq!(inbox.hold(ticket, item, due, due), Some(0), "the broker has it again");
    assert!(inbox.start(due + seconds(9)).is_none());
}

/// With one handler at first, or after a crash, the window is one delivery. If that one waits, others must still be delivered.
#[test]
fn a_subscription_that_is_full_of_waits_ends_and_another_one_takes_its_place() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(Rules { prefetch: 3, concurrency: 1, ..RULES });
    for item in 0..3 {
        let window = inbox.window(queue, now);
        assert_eq!(window, 1, "for item {item}");
        inbox.subscribed(queue, window, now);
        inbox.arrive(queue, Some(0), now, item);
        let (ticket, item) = started(&mut inbox, now);
        assert_eq!(inbox.window(queue, now), 1, "it runs");
        assert_eq!(inbox.hold(ticket, item, now + seconds(60), now), None);
        if item < 2 {
            assert_eq!(inbox.window(queue, now), 0, "it waits");
            inbox.subscribed(queue, 0, now);
        }
    }
    assert_eq!(inbox.window(queue, now), 1, "all of the prefetch waits");
    let due = now + seconds(60);
    let (ticket, _) = started(&mut inbox, due);
    inbox.finish(ticket, due);
    assert_eq!(inbox.window(queue, due), 2, "there is room for one more");
}

/// Otherwise whatever comes next could kill the process, which would charge it.
#[test]
fn a_subscription_full_of_waits_stays_while_a_suspect_near_its_limit_waits() {
    for (count, window) in [(7, 0), (8, 1)] {
        let (mut inbox, now) = (Inbox::new(0), Instant::now());
        let queue = inbox.add(RULES);
        inbox.subscribed(queue, 1, now);
        inbox.arrive(queue, Some(count), now, 1);
        let (ticket, item) = started(&mut inbox, now);
        assert_eq!(inbox.hold(ticket, item, now + seconds(60), now), None);
        assert_eq!(inbox.window(queue, now + ACK_FLUSH_TIME), window, "of {}", RULES.delivery_limit);
    }
}

/// Otherwise a few lost channels would make each message wait until the one before it is settled.
#[test]
fn a_subscription_full_of_waits_is_replaced_although_lost_channels_have_charged_what_waits() {
    let (mut inbox, mut now) = (Inbox::new(0), Instant::now());
    let queue = inbox.add(RULES);
    for count in 0..9 {
        inbox.lost(queue);
        now += seconds(1);
        inbox.subscribed(queue, 1, now);
        inbox.arrive(queue, Some(count), now, 1);
        let (ticket, item) = started(&mut inbox, now);
        assert_eq!(inbox.hold(ticket, item, now + seconds(60), now), None);
    }
    assert_eq!(inbox.window(queue, now + ACK_FLUSH_TIME), 0);
    assert!(is_near_limit(8, RULES.delivery_limit));
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

/// Items with the same remainder by three are in one line. A crash charges all of them, and one of them kills. Each of the others
/// first fails this often, and waits after each failure. `counts` are the delivery counts before the two crashes. Returns what is left after
/// them.
fn left_after_two_crashes(poison: u64, failures: u32, counts: [u32; 2]) -> Vec<u64> {
    let (now, mut left) = (Instant::now(), (0..9).collect::<Vec<u64>>());
    for count in counts {
        let mut inbox = Inbox::new(0);
        let queue = inbox.add(Rules { is_ordered: true, ..RULES });
        inbox.subscribed(queue, inbox.window(queue, now), now);
        for item in &left {
            inbox.arrive(queue, Some(count), now, *item);
        }
        let (mut time, mut failed) = (now, HashMap::new());
        loop {
            let Some((_, ticket, item)) = inbox.start(time) else {
                time = inbox.wake_at(time).expect("something is left");
                continue;
            };
            assert!(inbox.start(time).is_none(), "suspects run alone");
            if item == poison {
                break;
            }
            let failed = failed.entry(item).or_insert(0);
            if *failed < failures {
                *failed += 1;
                assert_eq!(inbox.hold(ticket, item, time + Duration::from_millis(100), time), None);
            } else {
                left.retain(|other| *other != item);
                inbox.finish(ticket, time);
            }
        }
    }
    left
}

#[test]
fn after_two_crashes_only_the_line_of_the_message_that_kills_is_left_of_an_ordered_queue() {
    for poison in 0..9 {
        let line: Vec<_> = (0..9).filter(|item| item % 3 == poison % 3 && *item >= poison).collect();
        assert_eq!(left_after_two_crashes(poison, 0, [6, 7]), line, "{poison} kills");
        assert_eq!(left_after_two_crashes(poison, 2, [8, 9]), line, "{poison} kills, and the others wait first");
    }
}

#[test]
fn an_ordered_queue_keeps_its_prefetch_whatever_the_other_queues_bring() {
    let (mut inbox, now) = (Inbox::new(0), Instant::now());
    let (ordered, other) = (inbox.add(Rules { is_ordered: true, ..RULES }), inbox.add(RULES));
    inbox.subscribed(ordered, RULES.prefetch, now);
    inbox.arrive(other, Some(9), now, 1);
    assert_eq!(inbox.window(ordered, now), RULES.prefetch);
    inbox.arrive(ordered, Some(0), now, 2);
    let (_, suspect) = started(&mut inbox, now);
    assert_eq!(suspect, 1);
    assert!(inbox.start(now).is_none(), "what the ordered queue brought waits until the suspect has proven harmless");
    assert!(!inbox.is_overdue(ordered, now) && inbox.is_overdue(ordered, now + RULES.hold_limit));
}
