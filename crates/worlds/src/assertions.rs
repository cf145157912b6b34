//! What a test asserts of a world. A failure prints the whole history of the message.

use std::fmt::{self, Write as _};
use std::time::Duration;

use rehop::{Outcome, Reason};

use crate::attempt::{Attempt, rounded};
use crate::stage::{Fate, MessageId, World};

/// By how much a wait may seem too short, at most: a wait is counted from the decision, and its
/// outcome is settled once the broker has confirmed the copy.
const EARLY_TOLERANCE: Duration = Duration::from_millis(100);

/// The assertions. Each panics if it does not hold, with what happened to the message.
impl World {
    /// Every message comes to an end within this time: handled, parked or gone. Time passes until
    /// then.
    ///
    /// # Panics
    ///
    /// When a message is still in its queue or waits, with the queues that hold any.
    #[track_caller]
    pub fn assert_settles(&mut self, within: Duration) {
        if self.settle(within) {
            return;
        }
        let queues = self.unsettled_queues().into_iter();
        let queues: Vec<_> = queues.map(|(queue, count)| format!("{count} in {queue}")).collect();
        let mut text = format!("not settled within {within:?}: {}", queues.join(", "));
        text.push_str(&self.notes());
        for message in self.unsettled() {
            let _ = write!(text, "\n{}", self.history(&message));
        }
        panic!("{text}");
    }

    /// The handler handled the message, and it is in no queue any more.
    ///
    /// # Panics
    ///
    /// When it did not, or the message is elsewhere.
    #[track_caller]
    pub fn assert_handled(&self, message: &MessageId) {
        let is_handled = self.outcome(message) == Some(Outcome::Ack);
        self.check(is_handled && self.fate(message) == Fate::Gone, message, "was not handled");
    }

    /// The message is parked for this [`Reason`]. A message that the broker has parked has the
    /// broker's word as its reason, such as `"delivery_limit"`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rehop::{Failure, Message, Reason, Settings};
    /// use rehop_worlds::{Stop, World};
    ///
    /// async fn serve(stop: Stop) -> Result<(), rehop::Error> {
    ///     let charge = |_: Message<u32>| async { Err(Failure::transient("no card service")) };
    ///     let service = rehop::Service::new(&Settings::default()).consumer("orders", charge);
    ///     service.with_graceful_shutdown(stop).await.map(drop)
    /// }
    ///
    /// let mut world = World::new(7);
    /// world.start(serve);
    /// let order = world.publish("orders", &42);
    /// world.assert_settles(Duration::from_secs(3600));
    /// world.assert_parked(&order, Reason::Exhausted);
    /// world.assert_attempts(&order, 8);
    /// world.assert_waited(&order, &[10, 60, 600].map(Duration::from_secs));
    /// ```
    ///
    /// # Panics
    ///
    /// When the message is not parked, or for another reason.
    #[track_caller]
    pub fn assert_parked(&self, message: &MessageId, reason: impl fmt::Display) {
        let found = self.parked_for(message);
        let wanted = reason.to_string();
        let but = match &found {
            Some(other) => {
                format!("was expected to be parked as {wanted}; it was parked as {other}")
            }
            None => format!("was expected to be parked as {wanted}; it is not parked"),
        };
        self.check(found.is_some_and(|found| found == wanted), message, &but);
    }

    /// The message was discarded for this reason, and it is in no queue any more.
    ///
    /// # Panics
    ///
    /// When it was not discarded, or for another reason.
    #[track_caller]
    pub fn assert_discarded(&self, message: &MessageId, reason: Reason) {
        let is_discarded = self.outcome(message) == Some(Outcome::Discard(reason));
        let but = format!("was not discarded as {reason}");
        self.check(is_discarded && self.fate(message) == Fate::Gone, message, &but);
    }

    /// The message is in this queue now, ready or delivered.
    ///
    /// # Panics
    ///
    /// When it is not.
    #[track_caller]
    pub fn assert_in(&self, message: &MessageId, queue: &str) {
        let is_in = self.fate(message) == Fate::In(queue.to_owned());
        self.check(is_in, message, &format!("is not in {queue}"));
    }

    /// The handler has begun this often with the message, in all processes together. Unlike
    /// [`deliveries`](Self::deliveries), this leaves out what no handler has seen: a message that
    /// had expired, or whose body could not be decoded.
    ///
    /// # Panics
    ///
    /// When it has begun more often or less often, or nobody knows the message.
    #[track_caller]
    pub fn assert_attempts(&self, message: &MessageId, attempts: usize) {
        self.assert_known(message);
        let found = self.attempts(message).len();
        let but = format!("had {found} attempts instead of {attempts}");
        self.check(found == attempts, message, &but);
    }

    /// The message waited this often between two attempts, and about this long each time.
    ///
    /// A wait is counted after each attempt that ended with [`Outcome::Wait`] or
    /// [`Outcome::Defer`], if another attempt has followed. It lasts from the settlement of the one
    /// attempt to the beginning of the other. Requeues are not counted, nor is a wait that goes on
    /// or has ended without an attempt.
    ///
    /// A wait may be longer than expected by a tenth and a second. It may be shorter by a quarter,
    /// but by no more than 100 ms, because the service counts it from its decision.
    ///
    /// # Panics
    ///
    /// When it waited more often or less often, or for another time, or nobody knows the message.
    #[track_caller]
    pub fn assert_waited(&self, message: &MessageId, waits: &[Duration]) {
        self.assert_known(message);
        let found = waits_between(&self.attempts(message));
        let is_about = |(found, wait): (&Duration, &Duration)| {
            let early = EARLY_TOLERANCE.min(*wait / 4);
            *found + early >= *wait && *found <= *wait + *wait / 10 + Duration::from_secs(1)
        };
        let hold = found.len() == waits.len() && found.iter().zip(waits).all(is_about);
        let found: Vec<_> = found.into_iter().map(rounded).collect();
        let but = format!("waited [{}] instead of {waits:?}", found.join(", "));
        self.check(hold, message, &but);
    }

    /// Each message [was handled](Self::assert_handled), and its last attempt ended before the
    /// first of the next message began.
    ///
    /// # Panics
    ///
    /// When two are in another order or overlap, or one was not handled.
    #[track_caller]
    pub fn assert_in_order(&self, messages: &[MessageId]) {
        for message in messages {
            self.assert_handled(message);
        }
        for pair in messages.windows(2) {
            let [first, second] = pair else { continue };
            let ended = self.attempts(first).last().and_then(|attempt| attempt.settled_seq);
            let began = self.attempts(second).first().map(|attempt| attempt.began_seq);
            let is_before = ended.zip(began).is_some_and(|(ended, began)| ended < began);
            let but = format!("did not end before {} began", second.as_str());
            assert!(is_before, "{}", self.failure(first, &but) + "\n" + &self.history(second));
        }
    }

    /// What happened to a message: one line for each attempt, and where it is. For the text of an
    /// assertion.
    pub fn history(&self, message: &MessageId) -> String {
        let mut text = format!("message {}:", message.as_str());
        if let Some((at, queue)) = self.published(message) {
            let _ = write!(text, "\n  {:>10}  published to {queue}", rounded(at));
        }
        text.push_str(&self.told.lines(message.as_str(), self.queue_published_to(message)));
        let place = match (self.fate(message), self.parked_for(message)) {
            (Fate::In(queue), Some(reason)) => format!("in {queue}, for {reason}"),
            (Fate::In(queue), None) => format!("in {queue}"),
            (Fate::Gone, _) => "in no queue".to_owned(),
        };
        let (now, count) = (rounded(self.now()), self.deliveries(message).len());
        let _ = write!(text, "\n  {now:>10}  now: {place}; delivered {count} times");
        text
    }

    /// Otherwise an assertion that something did not happen would hold of any id.
    #[track_caller]
    fn assert_known(&self, message: &MessageId) {
        let is_known = self.published(message).is_some()
            || self.told.knows(message.as_str())
            || self.fate(message) != Fate::Gone
            || !self.deliveries(message).is_empty();
        let (id, notes) = (message.as_str(), self.notes());
        assert!(
            is_known,
            "this test did not publish message {id}, and no service told of it{notes}"
        );
    }

    #[track_caller]
    fn check(&self, holds: bool, message: &MessageId, but: &str) {
        assert!(holds, "{}", self.failure(message, but));
    }

    fn failure(&self, message: &MessageId, but: &str) -> String {
        let (id, notes) = (message.as_str(), self.notes());
        format!("message {id} {but}{notes}\n{}", self.history(message))
    }
}

/// The times between an attempt after which the message waited, and the next one.
fn waits_between(attempts: &[Attempt]) -> Vec<Duration> {
    let pairs = attempts.windows(2).filter_map(|pair| match pair {
        [Attempt { outcome: Some(outcome), settled: Some(settled), .. }, next]
            if outcome.delay().is_some() =>
        {
            Some(next.began.saturating_sub(*settled))
        }
        _ => None,
    });
    pairs.collect()
}
