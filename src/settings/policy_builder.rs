//! A retry policy in code.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{
    AskedDelays, Ending, Jitter, MaxAge, RetrySettings, SettingsError, Treatment, WaitQueues,
    WaitStrategy,
};
use crate::retry::backoff::Backoff;
use crate::retry::policy::RetryPolicy;

/// Builds a [`RetryPolicy`], or the [`RetrySettings`] of a queue. What is not called keeps its
/// default; for a queue, what the service's settings say.
///
/// ```
/// use rehop::{RetryPolicy, Settings};
/// use std::time::Duration;
///
/// let patient = RetryPolicy::builder().immediate(0).fixed(Duration::from_secs(30), 4).build()?;
/// assert_eq!(patient.max_attempts(), 5);
///
/// let mut settings = Settings::default();
/// settings.queue_mut("mails").retry = RetryPolicy::builder().delays([1, 60].map(Duration::from_secs)).into();
/// assert_eq!(settings.policy("mails")?.max_attempts(), 6);
/// # Ok::<(), rehop::SettingsError>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct PolicyBuilder(RetrySettings);

impl RetryPolicy {
    /// A policy in code, in plain values.
    pub fn builder() -> PolicyBuilder {
        PolicyBuilder::default()
    }
}

impl PolicyBuilder {
    /// Immediate attempts before each wait. Default 1; must be below the delivery limit.
    pub fn immediate(mut self, attempts: u32) -> Self {
        self.0.immediate = Some(attempts);
        self
    }

    /// How long each wait lasts, in order. Default 10 s, 1 min, 10 min; at most
    /// [`MAX_WAITS`](crate::MAX_WAITS) waits, and none of them longer than
    /// [`MAX_DELAY`](crate::MAX_DELAY). An empty list means no waits.
    pub fn delays(self, delays: impl IntoIterator<Item = Duration>) -> Self {
        self.backoff(Backoff::List(delays.into_iter().collect()))
    }

    /// This many waits of the same length.
    pub fn fixed(self, delay: Duration, waits: u32) -> Self {
        self.backoff(Backoff::Fixed { delay, waits })
    }

    /// This many waits, each `factor` times as long as the one before, and none longer than `max`.
    /// The factor is at least 1.
    pub fn exponential(self, initial: Duration, factor: f64, max: Duration, waits: u32) -> Self {
        self.backoff(Backoff::Exponential { initial, factor, max, waits })
    }

    fn backoff(mut self, delays: Backoff) -> Self {
        self.0.delays = Some(delays);
        self
    }

    /// How messages wait. Default [`WaitStrategy::Tiers`].
    pub fn strategy(mut self, strategy: WaitStrategy) -> Self {
        self.0.strategy = Some(strategy);
        self
    }

    /// How much of the delays is random. Default [`Jitter::None`]; any other needs a strategy that
    /// is not tied to fixed delays.
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.0.jitter = Some(jitter);
        self
    }

    /// Where asked delays wait that the strategy cannot give exactly. Default [`AskedDelays::Own`].
    pub fn asked_delays(mut self, after: AskedDelays) -> Self {
        self.0.after = Some(after);
        self
    }

    /// Whose wait queues the messages wait in. Default [`WaitQueues::Own`] for an existing queue,
    /// [`WaitQueues::Shared`] for one that rehop declares.
    pub fn wait_queues(mut self, wait_queues: WaitQueues) -> Self {
        self.0.wait_queues = Some(wait_queues);
        self
    }

    /// The queue's `x-delivery-limit`. Default 10, 1 to 1000.
    pub fn delivery_limit(mut self, limit: u32) -> Self {
        self.0.delivery_limit = Some(limit);
        self
    }

    /// How often handlers may [defer](crate::Failure::defer) a message. Default 100, 0 to 10000.
    pub fn max_defers(mut self, defers: u32) -> Self {
        self.0.max_defers = Some(defers);
        self
    }

    /// The deadline of messages that bring none, counted from the delivery before the first wait;
    /// with `in-process`, from the first delivery since a crash. By default they have none.
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.0.max_age = Some(MaxAge(Some(max_age)));
        self
    }

    /// What happens to a message when all attempts have failed. Default [`Ending::Park`].
    pub fn on_exhausted(mut self, ending: Ending) -> Self {
        self.0.on_exhausted = Some(ending);
        self
    }

    /// What happens to a message when it has expired. Default [`Ending::Park`].
    pub fn on_expired(mut self, ending: Ending) -> Self {
        self.0.on_expired = Some(ending);
        self
    }

    /// How failures of this class are treated unless the handler has classified them.
    pub fn error(mut self, class: impl Into<String>, treatment: Treatment) -> Self {
        self.0.errors.get_or_insert_with(BTreeMap::new).insert(class.into(), treatment);
        self
    }

    /// The policy.
    ///
    /// # Errors
    ///
    /// When a value is out of bounds, or two contradict each other; the error names the key.
    pub fn build(self) -> Result<RetryPolicy, SettingsError> {
        RetryPolicy::new(&self.0)
    }
}

impl From<PolicyBuilder> for RetrySettings {
    fn from(builder: PolicyBuilder) -> Self {
        builder.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same as a file would say.
    #[test]
    fn a_policy_in_code_has_every_key_that_a_file_has() {
        let seconds = Duration::from_secs;
        let built: RetrySettings = RetryPolicy::builder()
            .immediate(2)
            .exponential(seconds(1), 3.0, seconds(20), 4)
            .strategy(WaitStrategy::Ladder)
            .jitter(Jitter::Full)
            .asked_delays(AskedDelays::Ladder)
            .delivery_limit(7)
            .max_defers(3)
            .max_age(seconds(3_600))
            .on_exhausted(Ending::Discard)
            .on_expired(Ending::Discard)
            .error("http_404", Treatment::Permanent)
            .error("http_429", Treatment::Defer)
            .into();
        let built = serde_json::to_value(built).unwrap();
        let keys: Vec<_> = built.as_object().unwrap().keys().cloned().collect();
        assert_eq!(
            keys.join(" "),
            "after delays delivery_limit errors immediate jitter max_age max_defers on_exhausted on_expired strategy"
        );
        assert_eq!(
            built["errors"],
            serde_json::json!({ "http_404": "permanent", "http_429": "defer" })
        );
        assert_eq!((&built["max_age"], &built["jitter"]), (&"1h".into(), &"full".into()));
    }

    #[test]
    fn a_policy_that_contradicts_itself_is_refused_with_its_key() {
        let error = RetryPolicy::builder().immediate(10).build().unwrap_err();
        assert!(error.to_string().contains("immediate"), "{error}");
    }
}
