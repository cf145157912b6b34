//! Properties of the inbox, under any calls. `crates/worlds/` runs it in whole services.

mod flow;
mod gets;
mod ordered;
mod returned;
mod subscriptions;
mod suspects;
mod waits;
mod windows;

use std::collections::HashMap;

use proptest::prelude::*;

use super::isolation::{ACK_FLUSH_TIME, SETTLED_WITHIN};
use super::proof::CRASHES_WITHIN;
use super::starting::ENDED_WITHIN;
use super::suspicion::Redeliveries;
use super::*;
use crate::consume::line::Line;
use crate::inputs::inputs;

const RULES: Rules = Rules {
    prefetch: 100,
    concurrency: 10,
    delivery_limit: 10,
    immediate: 1,
    start_limit: Duration::from_secs(900),
    handler_timeout: Duration::from_secs(60),
    line: Line::Free,
    counts_deliveries: true,
    can_get: true,
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

/// How many deliveries may be under way: by subscriptions or, if a single one is asked for, one.
fn window(inbox: &Inbox<impl Sized>, queue: QueueIndex, now: Instant) -> u16 {
    match inbox.take(queue, now) {
        Take::Window(prefetch) => prefetch,
        Take::One => 1,
    }
}

impl<T> Inbox<T> {
    fn has_late(&self, queue: QueueIndex, now: Instant) -> bool {
        self.late(queue, now).is_some()
    }
}

/// Whether anything that is here may have killed a process.
fn has_suspects(inbox: &Inbox<u64>) -> bool {
    inbox.queues.iter().any(QueueInbox::has_suspects)
}

/// Settles `times` fresh deliveries, one after the other.
fn prove(inbox: &mut Inbox<u64>, queue: QueueIndex, times: u64, now: Instant) {
    for item in 0..times {
        inbox.arrive(queue, Some(0), now, item);
        let (ticket, _) = inbox.start(now).expect("a handler is free");
        inbox.finish(ticket, now);
    }
}

/// Starts one handler.
fn started(inbox: &mut Inbox<u64>, now: Instant) -> (Ticket, u64) {
    inbox.start(now).expect("a handler may start")
}

#[derive(Debug, Clone)]
enum Call {
    Arrive(usize, Option<u32>),
    Answer(usize, Option<Option<u32>>),
    Start,
    Finish(usize),
    Hold(usize, u64),
    Lose(usize),
    GiveBack(usize),
    Cancel(usize),
    Empty(usize),
    Subscribe(usize),
    Flow(usize, u8),
    Concurrency(usize, u16),
    Pass(u64),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let count =
        prop::option::weighted(0.9, prop_oneof![3 => Just(0u32), 1 => 1u32..4, 1 => any::<u32>()]);
    let got = prop::option::of(count.clone());
    let call = prop_oneof![
        8 => (0usize..3, got).prop_map(|(queue, got)| Call::Answer(queue, got)),
        8 => (0usize..3, count).prop_map(|(queue, count)| Call::Arrive(queue, count)),
        8 => Just(Call::Start),
        6 => any::<usize>().prop_map(Call::Finish),
        3 => (any::<usize>(), 0u64..1_000).prop_map(|(which, millis)| Call::Hold(which, millis)),
        1 => (0usize..3).prop_map(Call::Lose),
        1 => (0usize..3).prop_map(Call::GiveBack),
        1 => (0usize..3).prop_map(Call::Cancel),
        1 => (0usize..3).prop_map(Call::Empty),
        4 => (0usize..3).prop_map(Call::Subscribe),
        1 => (0usize..3, 0u8..4).prop_map(|(queue, flow)| Call::Flow(queue, flow)),
        1 => (0usize..3, 1u16..5).prop_map(|(queue, handlers)| Call::Concurrency(queue, handlers)),
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

    /// In any order of calls that a session can make, each delivery is started, given back or lost,
    /// once.
    #[test]
    fn every_delivery_has_one_fate_and_the_bounds_hold(
        calls in calls(), draw in any::<u64>(), prefetch in 1u16.., concurrency in 1u16..5, limit in 1u32..20, immediate in 0u32..20,
    ) {
        let rules = Rules { prefetch, concurrency: concurrency.min(prefetch), delivery_limit: limit, immediate, ..RULES };
        let mut inbox = Inbox::new(draw);
        // The last queue is ordered.
        let queues: Vec<_> = (0..3).map(|queue| inbox.add(match queue {
            2 => Rules { line: Line::Ordered, can_get: false, ..rules },
            _ => rules,
        })).collect();
        let mut now = Instant::now();
        queues.iter().for_each(|queue| inbox.opened(*queue, now));
        let mut fates: HashMap<u64, Fate> = HashMap::new();
        let mut running: Vec<(usize, Ticket, bool, u64)> = Vec::new();
        let mut emptied = [false; 3];
        let (mut flows, mut concurrencies) = ([Flow::On; 3], [rules.concurrency; 3]);
        // The prefetch of each queue after each subscription that was added to others.
        let mut widths: [Vec<u16>; 3] = Default::default();
        for call in calls {
            match call {
                Call::Arrive(queue, count) => {
                    let item = fates.len() as u64;
                    inbox.arrive(queues[queue], count, now, item);
                    fates.insert(item, Fate::Waiting(queue));
                }
                Call::Answer(queue, got) => if inbox.take(queues[queue], now) == Take::One {
                    let item = fates.len() as u64;
                    inbox.got(queues[queue], got.map(|count| (count, item)), now);
                    got.map(|_| fates.insert(item, Fate::Waiting(queue)));
                },
                Call::Start => if let Some((ticket, item)) = inbox.start(now) {
                    let queue = ticket.queue;
                    prop_assert_eq!(fates.insert(item, Fate::Started), Some(Fate::Waiting(queue)));
                    let mut same_line = running.iter().filter(|(of, _, counts, other)| (*of, other % 3, *counts) == (2, item % 3, true));
                    prop_assert!(queue != 2 || same_line.next().is_none(), "one of a key runs at a time");
                    running.push((queue, ticket, true, item));
                    let of_queue = running.iter().filter(|(of, _, counts, _)| *of == queue && *counts).count();
                    prop_assert!(of_queue <= usize::from(concurrencies[queue]));
                    prop_assert!(!flows[queue].is_paused());
                },
                Call::Finish(which) => if !running.is_empty() {
                    let (_, ticket, ..) = running.swap_remove(which % running.len());
                    inbox.finish(ticket, now);
                },
                Call::Hold(which, millis) => if !running.is_empty() {
                    let (queue, ticket, counts, item) = running.swap_remove(which % running.len());
                    let not_held = inbox.hold(ticket, item, now + Duration::from_millis(millis), now);
                    prop_assert_eq!(not_held.is_some(), counts && emptied[queue]);
                    if let Some((ticket, item)) = not_held {
                        fates.insert(item, Fate::GivenBack);
                        inbox.finish(ticket, now);
                    } else if counts {
                        fates.insert(item, Fate::Waiting(queue));
                    }
                },
                Call::Lose(queue) => {
                    inbox.lost(queues[queue], false, now);
                    inbox.opened(queues[queue], now);
                    fates.values_mut().filter(|fate| **fate == Fate::Waiting(queue)).for_each(|fate| *fate = Fate::Lost);
                    running.iter_mut().filter(|(of, ..)| *of == queue).for_each(|(_, _, counts, _)| *counts = false);
                }
                Call::GiveBack(queue) => for item in inbox.take_late(queues[queue], now) {
                    prop_assert_eq!(fates.insert(item, Fate::GivenBack), Some(Fate::Waiting(queue)));
                },
                Call::Cancel(queue) => {
                    inbox.subscribed(queues[queue], 0, now);
                }
                // An ordered queue is emptied only when nothing is started any more.
                Call::Empty(2) => {}
                Call::Empty(queue) => {
                    emptied[queue] = true;
                    for item in inbox.empty(queues[queue], now) {
                        prop_assert_eq!(fates.insert(item, Fate::GivenBack), Some(Fate::Waiting(queue)));
                    }
                    prop_assert!(!fates.values().any(|fate| *fate == Fate::Waiting(queue)));
                }
                Call::Subscribe(queue) => if let Take::Window(wide) = inbox.take(queues[queue], now) {
                    let widths = &mut widths[queue];
                    if !inbox.queues[queue].is_subscribed() || widths.last().is_some_and(|last| wide < *last) {
                        widths.clear();
                    }
                    if wide > 0 && widths.last() != Some(&wide) {
                        widths.push(wide);
                    }
                    // As the page "Sizing" says.
                    let most = if queue == 2 { 1 } else { 2 + prefetch.ilog2() as usize };
                    prop_assert!(widths.len() <= most, "{widths:?} are too many consumers");
                    inbox.subscribed(queues[queue], wide, now);
                },
                Call::Flow(queue, wanted) => {
                    flows[queue] = match wanted {
                        0 => Flow::Paused { since: now },
                        1 => Flow::Draining,
                        _ => Flow::On,
                    };
                    inbox.set_flow(queues[queue], flows[queue], now);
                }
                Call::Concurrency(queue, handlers) => {
                    inbox.set_concurrency(queues[queue], handlers, now);
                    concurrencies[queue] = handlers.min(prefetch);
                }
                Call::Pass(ms) => now += Duration::from_millis(ms),
            }
            prop_assert!(queues.iter().all(|queue| window(&inbox, *queue, now) <= prefetch));
        }
        // A queue whose handlers have ended rests in a pause, and gives back what it holds in time.
        let pause = Flow::Paused { since: now };
        queues.iter().for_each(|queue| inbox.set_flow(*queue, pause, now));
        for (_, ticket, ..) in running.drain(..) {
            inbox.finish(ticket, now);
        }
        for queue in &queues {
            if inbox.take(*queue, now) == Take::One {
                inbox.got(*queue, None, now);
            }
            if queue.0 != 2 {
                prop_assert_eq!(inbox.take(*queue, now), Take::Window(0));
                inbox.subscribed(*queue, 0, now);
            }
            prop_assert_eq!(inbox.rest(*queue), Rest::Rests);
        }
        prop_assert!(inbox.start(now).is_none(), "nothing starts in a pause");
        now += RULES.start_limit + RULES.handler_timeout;
        prop_assert!(inbox.start(now).is_none());
        for queue in &queues {
            for item in inbox.take_late(*queue, now) {
                prop_assert_eq!(fates.insert(item, Fate::GivenBack), Some(Fate::Waiting(queue.0)));
            }
            if queue.0 == 2 && inbox.has_late(*queue, now) {
                inbox.lost(*queue, false, now);
                inbox.opened(*queue, now);
                fates.values_mut().filter(|fate| **fate == Fate::Waiting(2)).for_each(|fate| *fate = Fate::Lost);
            }
            prop_assert!(!fates.values().any(|fate| *fate == Fate::Waiting(queue.0)));
            prop_assert_eq!(inbox.take(*queue, now), Take::Window(0));
            prop_assert!(!inbox.has_late(*queue, now));
        }
        // In the end all that is left starts or has waited too long, and each queue is taken from
        // again.
        queues.iter().for_each(|queue| inbox.set_flow(*queue, Flow::On, now));
        let mut open = [false; 3];
        let mut is_busy = true;
        for _ in 0..10_000 {
            if inbox.has_late(queues[2], now) {
                inbox.lost(queues[2], false, now);
                inbox.opened(queues[2], now);
                fates.values_mut().filter(|fate| **fate == Fate::Waiting(2)).for_each(|fate| *fate = Fate::Lost);
            }
            for queue in &queues {
                for item in inbox.take_late(*queue, now) {
                    fates.insert(item, Fate::GivenBack);
                }
            }
            while let Some((ticket, item)) = inbox.start(now) {
                fates.insert(item, Fate::Started);
                running.push((0, ticket, true, item));
            }
            is_busy = !running.is_empty();
            for (_, ticket, ..) in running.drain(..) {
                inbox.finish(ticket, now);
            }
            for queue in &queues {
                match inbox.take(*queue, now) {
                    Take::One => {
                        is_busy = true;
                        inbox.got(*queue, None, now);
                    }
                    Take::Window(prefetch) => {
                        // Nothing is taken from a queue that was emptied.
                        open[queue.0] |= prefetch > 0 || emptied[queue.0];
                        // Without subscriptions it is asked for a message next.
                        is_busy |= prefetch == 0 && inbox.queues[queue.0].is_subscribed();
                        inbox.subscribed(*queue, prefetch, now);
                    }
                }
            }
            match inbox.wake_at(now) {
                _ if is_busy => {}
                Some(at) => now = at,
                // What can start or is late at this time is dealt with in the next round.
                None if fates.values().any(|fate| matches!(fate, Fate::Waiting(_))) => {}
                None => break,
            }
        }
        prop_assert!(!is_busy, "what is taken goes on changing");
        prop_assert!(!fates.values().any(|fate| matches!(fate, Fate::Waiting(_))));
        prop_assert_eq!(open, [true; 3]);
    }
}
