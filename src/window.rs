//! The window: how many deliveries a process may hold, so that poison dies alone.
//!
//! A crash charges one delivery to every message that the process held, not only to the one that killed it, and they all
//! come back to the head of the queue together (quorum queues of 3.10, 4.0 and 4.3). With a prefetch of 100 and a limit of 5,
//! six crashes would park a hundred innocents. So the more often a message has come back, the fewer others are held while it
//! is handled.

/// What is known of a delivery before it is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Returned {
    /// How often the broker gave it back; `None` when the queue does not count.
    pub(crate) count: Option<u32>,
}

/// The rules for one queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// The prefetch of the settings.
    pub(crate) full: u16,
    /// The queue's delivery limit.
    pub(crate) limit: u32,
    /// Given back up to so often by handlers, ours or those of other instances: nothing strange.
    pub(crate) immediate: u32,
}

impl Window {
    /// Where a consumer starts: nothing is known of what comes first.
    pub(crate) const NARROW: u16 = 1;

    /// How many deliveries may be held while this one is handled. `current` is the window that it came through.
    ///
    /// A fresh delivery opens the window fully. One that was given back no more often than handlers do keeps a full window,
    /// but opens none: after a (re)start, whatever was given back may be what crashed.
    pub(crate) fn allowed(&self, returned: Returned, current: u16) -> u16 {
        let count = returned.count.unwrap_or(1);
        if count == 0 || (count <= self.immediate && current == self.full) {
            return self.full;
        }
        if self.limit.saturating_sub(count) <= 2 {
            return Self::NARROW;
        }
        self.full.checked_shr(count.saturating_mul(2)).unwrap_or(0).max(Self::NARROW)
    }
}

/// The order in which deliveries that may be poison are handled, when several are held at once and cannot be given back
/// without a charge.
///
/// If one kills the process, those handled before it are safe and those after it come back with a higher count. Forwards at
/// one count and backwards at the next leaves a single poison message alone after two crashes.
pub(crate) fn order<T>(held: &mut [T], highest_count: u32) {
    if highest_count.is_multiple_of(2) {
        held.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::inputs;
    use proptest::prelude::*;

    const WINDOW: Window = Window { full: 100, limit: 10, immediate: 1 };

    fn allowed(window: Window, count: u32, current: u16) -> u16 {
        window.allowed(Returned { count: Some(count) }, current)
    }

    #[test]
    fn a_fresh_delivery_opens_the_window_and_a_returned_one_narrows_it() {
        assert_eq!(allowed(WINDOW, 0, 1), 100);
        assert_eq!(allowed(WINDOW, 1, 100), 100, "a handler's requeue");
        assert_eq!(allowed(WINDOW, 1, 1), 25, "after a start it may as well be a crash");
        assert_eq!(allowed(WINDOW, 2, 100), 6);
        assert_eq!(allowed(WINDOW, 3, 100), 1);
        assert_eq!(WINDOW.allowed(Returned { count: None }, 1), 25);
    }

    /// A model: instances that crash on one poison message and start again at once.
    fn innocents_parked(instances: usize, prefetch: u16, limit: u32, immediate: u32, poison_at: usize) -> usize {
        let window = Window { full: prefetch, limit, immediate };
        let messages = 300usize;
        let mut counts = vec![0u32; messages];
        let mut ready: Vec<usize> = (0..messages).collect();
        let mut sizes = vec![Window::NARROW; instances];
        let mut parked = Vec::new();
        let mut turn = 0;
        while !ready.is_empty() {
            let me = turn % instances;
            turn += 1;
            let held: Vec<usize> = ready.drain(..(sizes[me] as usize).min(ready.len())).collect();
            let allowed =
                held.iter().map(|m| window.allowed(Returned { count: Some(counts[*m]) }, sizes[me])).min().unwrap();
            let (suspects, mut batch): (Vec<_>, Vec<_>) = held
                .iter()
                .copied()
                .partition(|m| window.allowed(Returned { count: Some(counts[*m]) }, sizes[me]) < sizes[me]);
            let (mut suspects, highest) = (suspects.clone(), suspects.iter().map(|m| counts[*m]).max().unwrap_or(1));
            order(&mut suspects, highest);
            batch.extend(suspects);
            match batch.iter().position(|m| *m == poison_at) {
                None => sizes[me] = allowed,
                Some(at) => {
                    // What came before was handled; the rest is charged and comes back to the head, in its old order.
                    let mut back: Vec<usize> = batch[at..].to_vec();
                    back.sort_unstable();
                    for m in &back {
                        counts[*m] += 1;
                    }
                    parked.extend(back.iter().copied().filter(|m| counts[*m] > limit));
                    back.retain(|m| counts[*m] <= limit);
                    back.append(&mut ready);
                    ready = back;
                    sizes[me] = Window::NARROW;
                }
            }
        }
        assert!(parked.contains(&poison_at), "the poison itself was parked");
        parked.len() - 1
    }

    proptest! {
        #![proptest_config(inputs(40))]

        #[test]
        fn poison_parks_itself_and_no_innocent(
            instances in 1usize..6, prefetch in 1u16..200, immediate in 0u32..3, spare in 5u32..12, poison_at in 0usize..300,
        ) {
            let limit = immediate + spare;
            prop_assert_eq!(innocents_parked(instances, prefetch, limit, immediate, poison_at), 0);
        }
    }

    #[test]
    fn poison_dies_alone_at_a_limit_of_five_with_one_instance_and_with_three() {
        for instances in [1, 3] {
            for poison_at in 0..300 {
                assert_eq!(
                    innocents_parked(instances, 100, 5, 1, poison_at),
                    0,
                    "{instances} instances, poison at {poison_at}"
                );
            }
        }
    }

    proptest! {
        #![proptest_config(inputs(256))]

        #[test]
        fn the_window_is_never_closed_and_never_above_the_prefetch(
            full in 1u16.., limit in 1u32..1000, immediate in any::<u32>(), count in prop::option::of(any::<u32>()), current in 1u16..,
        ) {
            let allowed = Window { full, limit, immediate }.allowed(Returned { count }, current);
            prop_assert!((1..=full).contains(&allowed));
        }
    }
}
