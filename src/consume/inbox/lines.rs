//! Lines: the deliveries of an ordered queue. Those with one key run one after the other, in the
//! order in which they arrived.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

/// What has one key runs in order: the first of a line runs, waits here between two attempts, or is
/// ready, and the others stay behind it until it is settled. Lines do not wait for each other.
#[derive(Debug)]
pub(super) struct Lines<T> {
    /// What is behind the first of each line.
    behind: HashMap<u64, VecDeque<(u64, T)>>,
    /// Firsts that may start, in the order of their arrival.
    ready: BTreeMap<u64, (u64, T)>,
    /// Firsts that wait between two attempts, by the time when they are due.
    held: BTreeMap<(Instant, u64), (u64, T)>,
    /// Firsts that have waited, in the order in which they were due. They start before those that
    /// are ready.
    due: VecDeque<(Place, T)>,
    /// When what is not settled arrived, in that order.
    arrivals: BTreeMap<u64, Instant>,
    next: u64,
}

/// Where a delivery stands: in the line of this key, and which of all arrivals it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) key: u64,
    number: u64,
}

impl<T> Lines<T> {
    pub(super) fn new() -> Self {
        Self {
            behind: HashMap::new(),
            ready: BTreeMap::new(),
            held: BTreeMap::new(),
            due: VecDeque::new(),
            arrivals: BTreeMap::new(),
            next: 0,
        }
    }

    /// How many have arrived and are not settled.
    pub(super) fn len(&self) -> usize {
        self.arrivals.len()
    }

    /// All that is not running.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let first = self.ready.values().chain(self.held.values()).map(|(_, item)| item);
        let due = self.due.iter().map(|(_, item)| item);
        let behind = self.behind.values().flatten().map(|(_, item)| item);
        first.chain(due).chain(behind)
    }

    /// When the oldest of them arrived.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.arrivals.first_key_value().map(|(_, arrived)| *arrived)
    }

    pub(super) fn arrive(&mut self, key: u64, item: T, now: Instant) {
        let number = self.next;
        self.next += 1;
        self.arrivals.insert(number, now);
        match self.behind.get_mut(&key) {
            Some(line) => line.push_back((number, item)),
            None => {
                self.behind.insert(key, VecDeque::new());
                self.ready.insert(number, (key, item));
            }
        }
    }

    /// Whether anything could start now.
    pub(super) fn has_heads(&self) -> bool {
        !self.due.is_empty() || !self.ready.is_empty()
    }

    /// All that could start now: at most one of each line.
    pub(super) fn heads(&self) -> impl Iterator<Item = (Place, &T)> {
        let due = self.due.iter().map(|(place, item)| (*place, item));
        due.chain(
            self.ready
                .iter()
                .map(|(number, (key, item))| (Place { key: *key, number: *number }, item)),
        )
    }

    /// Starts this one of the heads. Its line stands still until it is finished.
    pub(super) fn take(&mut self, place: Place) -> Option<T> {
        if let Some(at) = self.due.iter().position(|(other, _)| *other == place) {
            return self.due.remove(at).map(|(_, item)| item);
        }
        self.ready.remove(&place.number).map(|(_, item)| item)
    }

    /// Starts the next. Its line stands still until it is finished.
    pub(super) fn start(&mut self) -> Option<(Place, T)> {
        self.due.pop_front().or_else(|| {
            let (number, (key, item)) = self.ready.pop_first()?;
            Some((Place { key, number }, item))
        })
    }

    /// What was started gets another attempt when it is due. Its line stands still.
    pub(super) fn hold(&mut self, place: Place, item: T, due: Instant) {
        self.held.insert((due, place.number), (place.key, item));
    }

    /// When the next of what is held is due.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.held.first_key_value().map(|((due, _), _)| *due)
    }

    /// What is due by now may start.
    pub(super) fn wake(&mut self, now: Instant) {
        while let Some(first) = self.held.first_entry().filter(|first| first.key().0 <= now) {
            let number = first.key().1;
            let (key, item) = first.remove();
            self.due.push_back((Place { key, number }, item));
        }
    }

    /// What was started is settled: the next of its line may start.
    pub(super) fn finish(&mut self, place: Place) {
        self.arrivals.remove(&place.number);
        let Some(line) = self.behind.get_mut(&place.key) else { return };
        match line.pop_front() {
            Some((number, item)) => {
                self.ready.insert(number, (place.key, item));
            }
            None => {
                self.behind.remove(&place.key);
            }
        }
    }

    /// Takes all that is not running, in the order of its arrival, and forgets what is.
    pub(super) fn take_all(&mut self) -> Vec<T> {
        let ready =
            std::mem::take(&mut self.ready).into_iter().map(|(number, (_, item))| (number, item));
        let held = std::mem::take(&mut self.held)
            .into_iter()
            .map(|((_, number), (_, item))| (number, item));
        let due =
            std::mem::take(&mut self.due).into_iter().map(|(place, item)| (place.number, item));
        let behind = std::mem::take(&mut self.behind).into_values().flatten();
        let all: BTreeMap<u64, T> = ready.chain(held).chain(due).chain(behind).collect();
        self.arrivals.clear();
        all.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::inputs::inputs;

    #[derive(Debug, Clone)]
    enum Call {
        Arrive(u64),
        Start,
        Finish(usize),
        Hold(usize, u64),
        Pass(u64),
    }

    fn calls() -> impl Strategy<Value = Vec<Call>> {
        let call = prop_oneof![
            3 => (0u64..4).prop_map(Call::Arrive),
            3 => Just(Call::Start),
            2 => any::<usize>().prop_map(Call::Finish),
            2 => (any::<usize>(), 0u64..50).prop_map(|(which, delay)| Call::Hold(which, delay)),
            1 => (0u64..50).prop_map(Call::Pass),
        ];
        prop::collection::vec(call, 1..200)
    }

    /// What a caller of the lines sees: the items are numbered within their key.
    #[derive(Default)]
    struct Seen {
        arrived: HashMap<u64, u64>,
        finished: HashMap<u64, u64>,
        running: Vec<(Place, (u64, u64))>,
    }

    impl Seen {
        fn start(&mut self, lines: &mut Lines<(u64, u64)>) -> Result<bool, TestCaseError> {
            let expected = lines.heads().next().map(|(_, item)| *item);
            let Some((place, item)) = lines.start() else {
                prop_assert_eq!(expected, None);
                return Ok(false);
            };
            prop_assert_eq!(expected, Some(item));
            let (key, index) = item;
            prop_assert!(
                self.running.iter().all(|(_, (other, _))| *other != key),
                "one of a key runs at a time"
            );
            prop_assert_eq!(index, self.finished.get(&key).copied().unwrap_or(0), "in their order");
            self.running.push((place, item));
            Ok(true)
        }

        fn finish(&mut self, lines: &mut Lines<(u64, u64)>, which: usize) {
            if !self.running.is_empty() {
                let (place, (key, _)) = self.running.remove(which % self.running.len());
                *self.finished.entry(key).or_default() += 1;
                lines.finish(place);
            }
        }
    }

    proptest! {
        #![proptest_config(inputs(1_000))]

        #[test]
        fn a_line_keeps_its_order_and_nothing_is_lost_or_starved(calls in calls()) {
            let (mut lines, mut seen, mut now) = (Lines::new(), Seen::default(), Instant::now());
            for call in calls {
                match call {
                    Call::Arrive(key) => {
                        let index = seen.arrived.entry(key).or_default();
                        lines.arrive(key, (key, *index), now);
                        *index += 1;
                    }
                    Call::Start => {
                        seen.start(&mut lines)?;
                    }
                    Call::Finish(which) => seen.finish(&mut lines, which),
                    Call::Hold(which, delay) if !seen.running.is_empty() => {
                        let (place, item) = seen.running.remove(which % seen.running.len());
                        lines.hold(place, item, now + Duration::from_millis(delay));
                    }
                    Call::Hold(..) => {}
                    Call::Pass(millis) => {
                        now += Duration::from_millis(millis);
                        lines.wake(now);
                        prop_assert!(lines.due_at().is_none_or(|due| due > now));
                    }
                }
                let (arrived, finished) = (seen.arrived.values().sum::<u64>(), seen.finished.values().sum::<u64>());
                prop_assert_eq!(lines.len() as u64, arrived - finished);
                prop_assert_eq!(lines.oldest().is_some(), lines.len() > 0);
            }
            lines.wake(now + Duration::from_secs(1));
            while lines.len() > 0 {
                while seen.start(&mut lines)? {}
                prop_assert!(!seen.running.is_empty(), "something can run as long as something is left");
                seen.finish(&mut lines, 0);
            }
            prop_assert_eq!(seen.arrived, seen.finished);
        }

        #[test]
        fn what_is_taken_is_all_that_does_not_run_in_the_order_of_its_arrival(keys in prop::collection::vec(0u64..3, 0..40), starts in 0usize..4) {
            let (mut lines, now) = (Lines::new(), Instant::now());
            for (number, key) in keys.iter().enumerate() {
                lines.arrive(*key, number, now);
            }
            let running: Vec<_> = std::iter::from_fn(|| lines.start()).take(starts).map(|(_, number)| number).collect();
            let expected: Vec<_> = (0..keys.len()).filter(|number| !running.contains(number)).collect();
            prop_assert_eq!(lines.take_all(), expected);
            prop_assert_eq!(lines.len(), 0);
        }
    }

    #[test]
    fn what_is_due_starts_before_what_is_ready() {
        let (mut lines, now) = (Lines::new(), Instant::now());
        for key in 0..3 {
            lines.arrive(key, key, now);
        }
        let (place, item) = lines.start().unwrap();
        lines.hold(place, item, now);
        assert_eq!(lines.due_at(), Some(now));
        assert_eq!(
            lines.heads().next().map(|(_, item)| *item),
            Some(1),
            "nothing is due before time has passed"
        );
        lines.wake(now);
        let heads: Vec<_> = lines.heads().map(|(place, item)| (place, *item)).collect();
        assert_eq!(heads.iter().map(|(_, item)| *item).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!([2, 0].map(|head: usize| lines.take(heads[head].0)), [Some(2), Some(0)]);
        assert_eq!((lines.take(heads[0].0), lines.start().map(|(_, item)| item)), (None, Some(1)));
    }
}
