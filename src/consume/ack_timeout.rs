//! The broker's ack timeout: what the settings say, until the broker shows that its own is shorter.
//!
//! 3.10 and 4.0 close the channel and name the timeout. 4.3 cancels the subscription without a word and delivers the message again,
//! uncounted, so a message that is held here for longer would come again without end. There the message itself shows it: it comes
//! again while it is still held. If the subscription has already ended, 4.3 closes the channel, too, but does not name the timeout.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::settings::settle_limit;

/// How long a delivery may stay unsettled.
#[derive(Debug)]
pub(crate) struct AckTimeout {
    /// What the settings say.
    pub(crate) configured: Duration,
    /// The shortest that is known, in milliseconds.
    known: AtomicU64,
}

impl AckTimeout {
    pub(crate) fn new(configured: Duration) -> Self {
        Self { configured, known: AtomicU64::new(millis(configured)) }
    }

    /// A little less than the timeout.
    pub(crate) fn settle_limit(&self) -> Duration {
        settle_limit(Duration::from_millis(self.known.load(Ordering::Relaxed)))
    }

    /// How long a delivery may wait for its handler. Half of [`settle_limit`](Self::settle_limit); all of it in an ordered queue, because
    /// what that holds can only go back all together.
    pub(crate) fn hold_limit(&self, is_ordered: bool) -> Duration {
        let limit = self.settle_limit();
        if is_ordered { limit } else { limit / 2 }
    }

    /// Whether the timeout may be over for a delivery that was held this long after it had waited for a handler.
    pub(crate) fn may_be_over(&self, held: Duration) -> bool {
        held > self.settle_limit() / 2
    }

    /// Whether the broker may have closed a channel over the timeout without a word, while the oldest delivery had been held this long.
    ///
    /// When several messages are late, 4.3 closes the same channel more than once, and lapin (4.12) then drops the connection. Connections are
    /// also lost for other reasons, so without one only a long hold counts.
    pub(crate) fn may_have_closed(&self, held: Duration, is_connected: bool) -> bool {
        self.may_be_over(held) || is_connected && is_credible(held)
    }

    /// Whether the broker may have cancelled a subscription over the timeout, which may be shorter than the settings say. A queue that does
    /// not exist any more was deleted.
    pub(crate) fn may_have_cancelled(&self, held: Duration, exists: bool) -> bool {
        self.may_be_over(held) || exists && is_credible(held)
    }

    /// The timeout is no longer than this if the broker has taken back what was held this long.
    pub(crate) fn at_most(&self, held: Duration) -> Duration {
        self.settle_limit().min(held)
    }

    /// Notes that the broker took back a message after this time. Returns whether this is shorter than what was known.
    pub(crate) fn shown(&self, timeout: Duration) -> bool {
        self.known.fetch_min(millis(timeout), Ordering::Relaxed) > millis(timeout)
    }
}

fn millis(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a delivery may wait here for an attempt that ends at this time, if the broker takes it back soon after `until`. In an ordered
/// queue it would be overtaken if it went back alone, so there it waits in any case, and all that the queue holds is given up in time.
pub(crate) fn can_be_held(is_ordered: bool, ends: Instant, until: Instant) -> bool {
    is_ordered || ends <= until
}

/// Whether the broker has closed a channel over its timeout. 3.10 and 4.0 always do; 4.3 does if the subscription that brought the message
/// has ended.
pub(crate) fn is_ack_timeout(problem: &str) -> bool {
    problem.contains(ACK_TIMEOUT)
}

/// The timeout that the broker names when it closes a channel over it (3.10 and 4.0). 4.3 names -1.
pub(crate) fn named_in(problem: &str) -> Option<Duration> {
    let (_, rest) = problem.split_once(ACK_TIMEOUT)?;
    let (_, rest) = rest.split_once("Timeout value used: ")?;
    let digits = rest.split(|it: char| !it.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|millis| *millis > 0).map(Duration::from_millis)
}

/// What the broker says of it.
const ACK_TIMEOUT: &str = "delivery acknowledgement on channel";

/// A shorter time is more likely that of another delivery than a timeout.
const SHORTEST_UNNAMED: Duration = Duration::from_secs(5);

fn is_credible(held: Duration) -> bool {
    held >= SHORTEST_UNNAMED
}

/// The deliveries of a channel that are not settled, the oldest first.
#[derive(Debug)]
pub(crate) struct Unsettled {
    /// An ordered queue closes its channel when the subscription is cancelled, and gives back no single message. So one that the
    /// broker has taken back comes again on the next channel with the count that it had, and all others with one more.
    is_ordered: bool,
    held: Vec<Held>,
    /// What the broker has probably taken back, and how long it was held by then.
    taken_back: Option<(Held, Duration)>,
}

#[derive(Debug)]
struct Held {
    fingerprint: u64,
    redeliveries: Option<u32>,
    since: Instant,
    /// Dead once the delivery is settled.
    token: Weak<()>,
}

impl Held {
    fn is_held(&self) -> bool {
        self.token.strong_count() > 0
    }
}

impl Unsettled {
    pub(crate) fn new(is_ordered: bool) -> Self {
        Self { is_ordered, held: Vec::new(), taken_back: None }
    }

    /// The next delivery is that of another channel.
    pub(crate) fn lose_channel(&mut self) {
        self.held.clear();
        self.taken_back.take_if(|_| !self.is_ordered);
    }

    /// Notes a delivery, which counts as unsettled for as long as the token is kept.
    pub(crate) fn add(&mut self, fingerprint: u64, redeliveries: Option<u32>, now: Instant) -> Arc<()> {
        if self.held.len() == self.held.capacity() {
            self.held.retain(Held::is_held);
            // Room for as many as are held, so that this is seldom done.
            self.held.reserve(self.held.len().max(4));
        }
        let token = Arc::new(());
        self.held.push(Held { fingerprint, redeliveries, since: now, token: Arc::downgrade(&token) });
        token
    }

    /// How long the oldest delivery has been held, also if the broker has probably taken it back.
    pub(crate) fn oldest(&self, now: Instant) -> Option<Duration> {
        let mut held = self.taken_back.iter().map(|(held, _)| held).chain(&self.held);
        let oldest = held.find(|held| held.is_held())?;
        Some(now.saturating_duration_since(oldest.since))
    }

    /// The timeout over which the broker has closed the channel, if it has not named it. What was settled at the last moment may have been
    /// the cause, so a short time is not believed.
    pub(crate) fn unnamed(&self, now: Instant) -> Option<Duration> {
        self.oldest(now).filter(|age| is_credible(*age))
    }

    /// The broker has cancelled the subscription. If that was over a message, it was the oldest one.
    pub(crate) fn cancelled(&mut self, now: Instant) {
        self.held.retain(Held::is_held);
        if !self.held.is_empty() {
            let oldest = self.held.remove(0);
            let age = now.saturating_duration_since(oldest.since);
            self.taken_back = Some((oldest, age));
        }
    }

    /// A delivery is handed back, and comes again. If another one with its content was taken for the cause of a cancel, the two could not
    /// be told apart, so nothing is concluded.
    pub(crate) fn hand_back(&mut self, fingerprint: impl FnOnce() -> u64) {
        if let Some((held, _)) = &self.taken_back
            && held.fingerprint == fingerprint()
        {
            self.taken_back = None;
        }
    }

    /// A message came again. If it is the one that was taken back, with the count that it had, returns how long it was held by then.
    /// It must still be held, unless its channel was closed over it: otherwise it was given back by this process. Without a count
    /// nothing tells the two apart.
    pub(crate) fn came_again(&mut self, fingerprint: u64, redeliveries: Option<u32>) -> Option<Duration> {
        redeliveries?;
        let is_ordered = self.is_ordered;
        let is_it = |(held, _): &mut (Held, Duration)| {
            held.fingerprint == fingerprint && held.redeliveries == redeliveries && (is_ordered || held.is_held())
        };
        self.taken_back.take_if(is_it).map(|(_, age)| age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn only_a_shorter_timeout_is_news_and_a_little_of_it_is_kept_free() {
        let timeout = AckTimeout::new(seconds(1_800));
        assert_eq!(timeout.settle_limit(), seconds(1_770));
        assert_eq!([1_800, 3_600].map(|long| timeout.shown(seconds(long))), [false, false]);
        assert_eq!([10, 10, 20].map(|short| timeout.shown(seconds(short))), [true, false, false]);
        assert_eq!(timeout.settle_limit(), Duration::from_millis(9_500));
    }

    #[test]
    fn a_delivery_may_wait_for_half_of_the_timeout_and_in_an_ordered_queue_for_nearly_all_of_it() {
        let timeout = AckTimeout::new(seconds(200));
        assert_eq!([true, false].map(|is_ordered| timeout.hold_limit(is_ordered).as_secs()), [190, 95]);
    }

    #[test]
    fn a_short_hold_explains_nothing_and_a_longer_one_only_what_has_no_other_reason() {
        let timeout = AckTimeout::new(seconds(200));
        for (held, is_believed, is_over) in [(4, false, false), (5, true, false), (95, true, false), (96, true, true)] {
            let asked = |may_be: fn(&AckTimeout, Duration, bool) -> bool| {
                [true, false].map(|has_no_other_reason| may_be(&timeout, seconds(held), has_no_other_reason))
            };
            assert_eq!(asked(AckTimeout::may_have_closed), [is_believed, is_over], "{held}");
            assert_eq!(asked(AckTimeout::may_have_cancelled), [is_believed, is_over], "{held}");
        }
        assert_eq!([5, 1_000].map(|held| timeout.at_most(seconds(held)).as_secs()), [5, 190]);
    }

    #[test]
    fn the_timeout_may_be_over_half_of_it_after_a_handler_has_begun() {
        let timeout = AckTimeout::new(seconds(200));
        assert_eq!([95, 96].map(|lasted| timeout.may_be_over(seconds(lasted))), [false, true]);
        timeout.shown(seconds(20));
        assert_eq!([9, 10].map(|lasted| timeout.may_be_over(seconds(lasted))), [false, true]);
    }

    #[test]
    fn what_would_end_too_late_is_not_held_unless_others_would_overtake_it() {
        let until = Instant::now();
        let may_wait = |ends| [true, false].map(|is_ordered| can_be_held(is_ordered, ends, until));
        assert_eq!(may_wait(until), [true, true]);
        assert_eq!(may_wait(until + Duration::from_nanos(1)), [true, false]);
    }

    #[test]
    fn the_timeout_is_read_from_what_the_broker_says() {
        let said = |value: &str| {
            format!(
                "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: {value}"
            )
        };
        let rest = " ms. This timeout value can be configured, see consumers doc guide to learn more";
        assert_eq!(named_in(&(said("10000") + rest)), Some(seconds(10)));
        assert_eq!(named_in(&(said("-1") + rest)), None);
        assert_eq!(named_in(&(said("0") + rest)), None);
        assert_eq!(named_in(&said("99999999999999999999999999")), None);
        assert_eq!(named_in("Timeout value used: 10000 ms"), None);
        assert_eq!(named_in("CONNECTION_FORCED - broker forced connection closure"), None);
        assert!(["10000", "-1"].iter().all(|value| is_ack_timeout(&(said(value) + rest))));
        assert!(!is_ack_timeout("CONNECTION_FORCED - broker forced connection closure"));
    }

    #[test]
    fn a_timeout_that_is_not_named_is_as_long_as_the_oldest_delivery_was_held() {
        let (start, mut unsettled) = (Instant::now(), Unsettled::new(false));
        assert_eq!(unsettled.oldest(start), None);
        let settled = unsettled.add(1, Some(0), start);
        let _held = [1, 2].map(|after| unsettled.add(2, Some(0), start + seconds(after)));
        drop(settled);
        assert_eq!(unsettled.oldest(start + seconds(11)), Some(seconds(10)));
        assert_eq!([5, 6].map(|after| unsettled.unnamed(start + seconds(after))), [None, Some(seconds(5))]);
        unsettled.cancelled(start + seconds(11));
        assert_eq!(unsettled.oldest(start + seconds(12)), Some(seconds(11)), "it is held here all the same");
        unsettled.lose_channel();
        assert_eq!(unsettled.oldest(start + seconds(11)), None);
    }

    #[test]
    fn the_oldest_delivery_shows_the_timeout_if_it_comes_again_while_it_is_held() {
        let (start, mut unsettled) = (Instant::now(), Unsettled::new(false));
        let settled = unsettled.add(1, Some(0), start);
        let (first, _second) =
            (unsettled.add(2, Some(0), start + seconds(1)), unsettled.add(3, Some(0), start + seconds(2)));
        drop(settled);
        unsettled.cancelled(start + seconds(11));
        assert_eq!(unsettled.came_again(3, Some(0)), None, "it is not the oldest");
        assert_eq!(unsettled.came_again(2, Some(1)), None, "it was given back, which the broker counts");
        assert_eq!(unsettled.came_again(2, Some(0)), Some(seconds(10)));
        assert_eq!(unsettled.came_again(2, Some(0)), None);
        unsettled.cancelled(start + seconds(12));
        assert_eq!(unsettled.came_again(3, Some(0)), Some(seconds(10)));
        drop(first);
    }

    #[test]
    fn nothing_is_shown_without_a_cancel_or_after_the_delivery_was_settled() {
        let (start, mut unsettled) = (Instant::now(), Unsettled::new(false));
        let token = unsettled.add(1, Some(0), start);
        assert_eq!(unsettled.came_again(1, Some(0)), None);
        unsettled.cancelled(start + seconds(10));
        drop(token);
        assert_eq!(unsettled.came_again(1, Some(0)), None);
        unsettled.cancelled(start + seconds(20));
        assert_eq!(unsettled.came_again(1, Some(0)), None);
    }

    #[test]
    fn nothing_is_shown_if_one_with_the_same_content_was_handed_back() {
        for (handed_back, shown) in [(1, None), (2, Some(seconds(10)))] {
            let (start, mut unsettled) = (Instant::now(), Unsettled::new(false));
            let _held = unsettled.add(1, Some(0), start);
            unsettled.cancelled(start + seconds(10));
            unsettled.hand_back(|| handed_back);
            assert_eq!(unsettled.came_again(1, Some(0)), shown);
        }
    }

    #[test]
    fn a_message_of_an_ordered_queue_shows_the_timeout_on_the_next_channel() {
        for is_ordered in [true, false] {
            let (start, mut unsettled) = (Instant::now(), Unsettled::new(is_ordered));
            let tokens = [1, 2].map(|number| unsettled.add(number, Some(0), start));
            unsettled.cancelled(start + seconds(10));
            drop(tokens);
            unsettled.lose_channel();
            assert_eq!(unsettled.came_again(2, Some(1)), None, "the closed channel has charged it");
            assert_eq!(unsettled.came_again(1, Some(0)), is_ordered.then_some(seconds(10)));
        }
    }

    #[test]
    fn what_is_settled_takes_no_memory() {
        let mut unsettled = Unsettled::new(false);
        for number in 0..10_000 {
            drop(unsettled.add(number, Some(0), Instant::now()));
        }
        assert!(unsettled.held.capacity() <= 8, "{}", unsettled.held.capacity());
    }
}
