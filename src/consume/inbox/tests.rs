//! Properties of the inbox: by itself under any calls, and in the model's worlds.

mod ordered;
mod returned;
mod subscriptions;
mod suspects;
mod turns;
mod waits;
mod windows;

use std::collections::HashMap;

use proptest::prelude::*;

use super::model::{Enforced, Range, Scenario, World};
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
        prop_assert_eq!(&outcome.innocents_lost, &Vec::<usize>::new());
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

/// The broker's ack timeout. It is shorter than what the settings say in all of these worlds.
const ENFORCED: u64 = 5_000;

/// Worlds in which the broker closes channels over its ack timeout.
fn closing(looks_every: u64) -> Range {
    let enforced = Some(Enforced::by_closing_channels(ENFORCED, looks_every));
    Range { messages: 200, poisons: 3, losses: 2, waits: true, ordered: true, enforced, ..Range::PROMISED }
}

/// Worlds in which the broker cancels subscriptions over its ack timeout. Handlers that hang once are among them. No message kills here:
/// what was taken back may kill a process that does not hold it any more, which charges the others.
fn cancelling() -> Range {
    Range { messages: 120, poisons: 0, enforced: Some(Enforced::by_cancelling(ENFORCED)), ..Range::PROMISED }
}

/// The same with ordered queues, and with one process, because the next one would be active too soon.
fn cancelling_in_order() -> Range {
    Range { processes: 1, ordered: true, ..cancelling() }
}

proptest! {
    #![proptest_config(worlds(10))]

    #[test]
    fn everything_ends_although_the_broker_closes_channels_over_a_shorter_ack_timeout_than_the_settings_say(
        seed in any::<u64>(), looks_every in prop::sample::select(&[1u64, 1_000, 60_000]),
    ) {
        let scenario = Scenario::draw(seed, closing(looks_every));
        let outcome = World::new(&scenario, seed).run();
        prop_assert_eq!(outcome.unfinished, 0);
        prop_assert_eq!(&outcome.overtaken, &Vec::new());
    }

    #[test]
    fn everything_ends_and_nothing_is_parked_although_the_broker_cancels_over_a_shorter_ack_timeout_than_the_settings_say(
        seed in any::<u64>(),
    ) {
        let scenario = Scenario::draw(seed, cancelling());
        let outcome = World::new(&scenario, seed).run();
        prop_assert_eq!(outcome.unfinished, 0);
        prop_assert_eq!(&outcome.innocents_parked, &Vec::<usize>::new());
        prop_assert_eq!(&outcome.innocents_lost, &Vec::<usize>::new());
    }

    #[test]
    fn an_ordered_queue_ends_in_order_although_the_broker_cancels_over_a_shorter_ack_timeout_than_the_settings_say(
        seed in any::<u64>(),
    ) {
        let scenario = Scenario::draw(seed, cancelling_in_order());
        let outcome = World::new(&scenario, seed).run();
        prop_assert_eq!(outcome.unfinished, 0);
        prop_assert_eq!(&outcome.overtaken, &Vec::new());
        let is_ordered = |parked: &usize| scenario.is_ordered(*parked);
        prop_assert!(outcome.innocents_parked.iter().all(is_ordered), "{:?}", outcome.innocents_parked);
        prop_assert!(outcome.innocents_lost.iter().all(is_ordered), "{:?}", outcome.innocents_lost);
    }

    #[test]
    fn a_process_learns_the_ack_timeout_from_the_first_channel_that_is_closed_over_it_and_parks_nothing(
        prefetch in 50u16..=200, concurrency in 1u16..=3, limit in 5u32..=12, looks_every in 1u64..=20_000,
    ) {
        let rules = Rules { prefetch, concurrency, delivery_limit: limit, ..RULES };
        let enforced = Enforced::by_closing_channels(ENFORCED, looks_every);
        let scenario = Scenario::plain(1, rules, 200, 1, usize::MAX).taking(500).with(enforced);
        let outcome = World::new(&scenario, 1).run();
        prop_assert_eq!(outcome.unfinished, 0);
        prop_assert!(outcome.taken_back <= 1, "{} times", outcome.taken_back);
        prop_assert_eq!(&outcome.innocents_parked, &Vec::<usize>::new());
    }

    /// More wait here than can be handled before the broker takes them back. If they stayed, each would be late again and again.
    #[test]
    fn what_waits_here_when_the_broker_cancels_is_handled_in_time_in_the_end(
        processes in 1usize..=3, prefetch in 50u16..=200, concurrency in 1u16..=3, limit in 5u32..=12,
    ) {
        let rules = Rules { prefetch, concurrency, delivery_limit: limit, ..RULES };
        let scenario = Scenario::plain(processes, rules, 300, 1, usize::MAX).taking(500).with(Enforced::by_cancelling(ENFORCED));
        let outcome = World::new(&scenario, 1).run();
        prop_assert_eq!(outcome.unfinished, 0);
        prop_assert!(outcome.taken_back > 0, "nothing waits here for so long");
        prop_assert_eq!(&outcome.innocents_parked, &Vec::<usize>::new());
    }
}

/// Otherwise the properties would not cover what the broker takes back. One that looks only once a minute sees little of what is late.
#[test]
fn in_many_of_these_worlds_the_broker_takes_deliveries_back() {
    for range in [closing(1), closing(1_000), cancelling(), cancelling_in_order()] {
        let taken_back = |seed| World::new(&Scenario::draw(seed, range), seed).run().taken_back;
        let worlds = (0..10).filter(|seed| taken_back(*seed) > 0).count();
        assert!(worlds >= 3, "{worlds} of 10 with {range:?}");
    }
}

/// The ack timeout of the worlds in which the broker refuses copies for longer than that.
const SHORT: u64 = 5_000;

/// Worlds in which the broker refuses copies for longer than its ack timeout.
fn refusing() -> Range {
    Range { ack_timeout: SHORT, refusals: &[10_000, 20_000, 40_000], ..Range::PROMISED }
}

/// Like [`refusing`], but for so long that messages reach their limits. All queues are existing ones, and no message kills.
fn refusing_for_long() -> Range {
    let refusing = Range { refusals: &[60_000, 80_000], ..refusing() };
    Range { messages: 200, poisons: 0, waits: true, one_existing_in: 1, delivery_limit: (5, 7), ..refusing }
}

/// The rules of an existing queue, where the broker refuses copies.
fn refusing_rules(prefetch: u16, limit: u32, is_ordered: bool) -> Rules {
    let hold_limit = Duration::from_millis(if is_ordered { SHORT - SHORT / 20 } else { SHORT / 2 });
    Rules { prefetch, concurrency: prefetch.min(10), delivery_limit: limit, hold_limit, is_ordered, ..RULES }
}

/// For so long, in ms, copies have to be refused so that their messages exceed this limit if each return counts.
fn long_enough_to_exceed(limit: u32) -> u64 {
    (u64::from(limit) + 4) * SHORT
}

proptest! {
    #![proptest_config(worlds(10))]

    #[test]
    fn everything_ends_in_order_although_copies_are_refused_for_longer_than_the_ack_timeout(seed in any::<u64>()) {
        let range = Range { messages: 200, poisons: 3, losses: 2, waits: true, ordered: true, ..refusing() };
        let scenario = Scenario::draw(seed, range);
        let outcome = World::new(&scenario, seed).run();
        prop_assert_eq!(outcome.unfinished, 0);
        prop_assert_eq!(&outcome.overtaken, &Vec::new());
    }

    /// A message whose copy is refused again and again reaches its limit, as it should. What waits for the handlers that such copies
    /// occupy is handed back, which 3.10 and 4.0 count.
    #[test]
    fn refused_copies_park_no_other_message_and_keep_none_for_much_longer_than_the_ack_timeout(seed in any::<u64>()) {
        let scenario = Scenario::draw(seed, Range { poisons: 0, ..refusing() }).on_4_3();
        let outcome = World::new(&scenario, seed).run();
        prop_assert_eq!(outcome.unfinished, 0);
        let is_copied = |parked: &usize| scenario.is_copied(*parked);
        prop_assert!(outcome.innocents_parked.iter().all(is_copied), "{:?}", outcome.innocents_parked);
        prop_assert!(outcome.innocents_lost.iter().all(is_copied), "{:?}", outcome.innocents_lost);
        // What has waited for as long as it may can start while a subscription ends, and its handler takes half of the timeout.
        prop_assert!(outcome.longest_held <= 6_000, "{} ms", outcome.longest_held);
    }

    /// At its limit a message is handed back, uncounted, until its copy is accepted. In an ordered queue it goes back with all that the
    /// process holds, and that is counted.
    #[test]
    fn refused_copies_lose_no_message_of_an_existing_queue_without_an_order_on_4_3(seed in any::<u64>()) {
        let scenario = Scenario::draw(seed, refusing_for_long()).on_4_3().without_kills();
        let outcome = World::new(&scenario, seed).run();
        prop_assert_eq!(&outcome.innocents_lost, &Vec::<usize>::new());
        prop_assert_eq!(outcome.unfinished, 0);
    }

    #[test]
    fn a_refused_copy_loses_no_message_at_the_limit_of_an_existing_queue_on_4_3(prefetch in 3u16..=100, limit in 5u32..=12) {
        let scenario = Scenario::plain(1, refusing_rules(prefetch, limit, false), 57, 1, usize::MAX)
            .existing_and_refusing(SHORT, long_enough_to_exceed(limit), 19)
            .on_4_3();
        let outcome = World::new(&scenario, 1).run();
        prop_assert_eq!(&outcome.innocents_lost, &Vec::<usize>::new());
        prop_assert_eq!(outcome.unfinished, 0);
        prop_assert!(outcome.handed_back > 0, "no message comes to its limit");
    }

    /// On 3.10 and 4.0. A handler is always free: a message that waited for one would be handed back in the end, which they count.
    #[test]
    fn where_every_return_counts_an_existing_queue_loses_only_messages_whose_copies_are_refused(
        prefetch in 4u16..=100, limit in 5u32..=12, pause in prop::sample::select(&[0u64, 100, 300]),
    ) {
        let scenario = Scenario::plain(1, refusing_rules(prefetch, limit, false), 177, 1, usize::MAX)
            .existing_and_refusing(SHORT, long_enough_to_exceed(limit), 59)
            .published_every(pause);
        let outcome = World::new(&scenario, 1).run();
        let is_copied = |lost: &usize| scenario.is_copied(*lost);
        prop_assert!(outcome.innocents_lost.iter().all(is_copied), "{:?}", outcome.innocents_lost);
        prop_assert_eq!(outcome.unfinished, 0);
        prop_assert!(outcome.handed_back > 0, "no message comes to its limit");
    }

    /// Each time that the process gives its channel up, all that it holds is charged once: four times at most in these worlds.
    #[test]
    fn an_existing_ordered_queue_keeps_its_order_and_all_its_messages_if_copies_are_accepted_again_before_the_limit(
        processes in 1usize..=3, prefetch in 2u16..=20, keys in 2usize..=6, limit in 5u32..=12, refused_for in SHORT..=4 * SHORT,
    ) {
        let scenario = Scenario::plain(processes, refusing_rules(prefetch, limit, true), 100, keys, usize::MAX)
            .existing_and_refusing(SHORT, refused_for, 7);
        let outcome = World::new(&scenario, 1).run();
        prop_assert_eq!(&outcome.overtaken, &Vec::new());
        prop_assert_eq!(&outcome.innocents_lost, &Vec::<usize>::new());
        prop_assert_eq!(outcome.unfinished, 0);
    }
}

#[test]
fn in_many_of_these_worlds_copies_are_given_up() {
    let given_up = |seed| World::new(&Scenario::draw(seed, refusing()), seed).run().given_up;
    let worlds = (0..10).filter(|seed| given_up(*seed) > 0).count();
    assert!(worlds >= 3, "{worlds} of 10");
}

#[test]
fn in_many_worlds_that_refuse_copies_for_long_messages_are_handed_back_at_their_limits() {
    let handed_back = |seed| {
        let scenario = Scenario::draw(seed, refusing_for_long()).on_4_3().without_kills();
        World::new(&scenario, seed).run().handed_back
    };
    let worlds = (0..20).filter(|seed| handed_back(*seed) > 0).count();
    assert!(worlds >= 4, "{worlds} of 20");
}

/// Worlds in which the broker never accepts the copies of some messages. Their ack timeout is far longer than the pause before such a
/// message is rejected.
fn never_accepting() -> Range {
    let promised = Range { messages: 200, poisons: 0, ..Range::PROMISED };
    Range { ack_timeout: 200_000, unpublishable: true, one_existing_in: 2, ..promised }
}

proptest! {
    #![proptest_config(worlds(10))]

    #[test]
    fn everything_ends_in_order_although_the_broker_never_accepts_some_copies(seed in any::<u64>()) {
        let range = Range { poisons: 3, losses: 2, waits: true, ordered: true, ..never_accepting() };
        let scenario = Scenario::draw(seed, range);
        let outcome = World::new(&scenario, seed).run();
        prop_assert_eq!(outcome.unfinished, 0);
        prop_assert_eq!(&outcome.overtaken, &Vec::new());
    }

    #[test]
    fn only_what_the_broker_accepts_no_copy_of_is_lost_and_only_from_existing_queues_on_4_3(seed in any::<u64>()) {
        let scenario = Scenario::draw(seed, never_accepting()).on_4_3().without_kills();
        let outcome = World::new(&scenario, seed).run();
        prop_assert_eq!(outcome.unfinished, 0);
        prop_assert_eq!(&outcome.innocents_parked, &Vec::<usize>::new());
        let is_copied = |lost: &usize| scenario.is_copied(*lost);
        prop_assert!(outcome.innocents_lost.iter().all(is_copied), "{:?}", outcome.innocents_lost);
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
    Cancel(usize),
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
        1 => (0usize..3).prop_map(Call::Cancel),
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
                Call::Cancel(queue) => {
                    inbox.subscribed(queues[queue], 0, now);
                    for item in inbox.take_unseen(queues[queue]) {
                        prop_assert_eq!(fates.insert(item, Fate::GivenBack), Some(Fate::Waiting(queue)));
                    }
                }
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
