//! What a handler returns when it could not handle a message.

mod cause;
pub(crate) mod class;
mod classify;

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

use cause::Cause;
pub(crate) use cause::NameClass;
use classify::AnyError;
pub use classify::{Classify, Verdict};
pub(crate) use classify::{VerdictOf, verdict_of};

/// Why an attempt failed, and what should become of the message.
///
/// A handler returns `Result<(), Failure>`, or a `Result` with any error that converts into a
/// failure: every [`Error`](std::error::Error) that is `Send`, `Sync` and `'static`, an
/// `anyhow::Error`, an `eyre::Report`, a `Box<dyn Error + Send + Sync>` and plain text. `?` makes
/// the same conversion. The queue's policy then treats the failure as transient, unless
/// `retry.errors` names its class. The constructors below decide explicitly.
///
/// A failure's text goes to the message's `rehop-errors` header, to logs and to spans. Keep
/// payloads and credentials out of it.
///
/// ```
/// use rehop::Failure;
/// use std::time::Duration;
///
/// fn charge(amount: &str) -> Result<u32, Failure> {
///     let amount: u32 = amount.parse()?; // the policy decides
///     if amount == 0 {
///         return Err(Failure::permanent("the amount is zero"));
///     }
///     if amount > 1_000 {
///         return Err(Failure::transient("limit reached").after(Duration::from_secs(60)));
///     }
///     Ok(amount)
/// }
///
/// assert_eq!(charge("x").unwrap_err().class(), "ParseIntError");
/// assert_eq!(charge("0").unwrap_err().class(), "permanent");
/// ```
///
/// # Classes
///
/// The policy's `errors`, metrics and the history of a message know a failure by its class. By
/// default it is the name of the error's type: `ParseIntError`. A type that is called `Error` is
/// named with the module or crate that defines it: `io::Error`, `sqlx_core::Error`. Types of the
/// same name share a class, and renaming one changes it. To name it yourself, use
/// [`with_class`](Self::with_class) where the failure is made, or
/// [`Consumer::classify`](crate::Consumer::classify) for all errors of a queue's handler.
///
/// An error type of your own can say for each variant what becomes of the message: [`Classify`].
///
/// `Failure` does not implement [`std::error::Error`], so that `?` can convert every error into
/// one.
#[derive(Debug, Clone)]
pub struct Failure {
    kind: Kind,
    class: Cow<'static, str>,
    /// Whether the class was set by name.
    is_named: bool,
    message: String,
    cause: Option<Cause>,
    after: Option<Duration>,
}

/// What was asked for. `Unclassified` leaves the choice to the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Unclassified,
    Transient,
    Requeue,
    Permanent,
    Discard,
    Defer,
    /// The body did not decode, so no handler saw it.
    Undecodable,
}

impl Failure {
    /// It may work later. Retried immediately while the policy's `immediate` lasts, then after the
    /// next of its `delays`. When no delay is left, treated as `on_exhausted` says.
    pub fn transient<E: Into<Box<dyn Error + Send + Sync>>>(error: E) -> Self {
        Self::new(Kind::Transient, "transient", error)
    }

    /// It may work at once, for instance after contention. Retried immediately while the policy's
    /// `immediate` lasts, then [transient](Self::transient).
    pub fn requeue<E: Into<Box<dyn Error + Send + Sync>>>(error: E) -> Self {
        Self::new(Kind::Requeue, "requeue", error)
    }

    /// It will never work. Parked now, with the error.
    pub fn permanent<E: Into<Box<dyn Error + Send + Sync>>>(error: E) -> Self {
        Self::new(Kind::Permanent, "permanent", error)
    }

    /// The message is not needed. Acked and counted as discarded; nothing keeps it.
    pub fn discard<E: Into<Box<dyn Error + Send + Sync>>>(reason: E) -> Self {
        Self::new(Kind::Discard, "discard", reason)
    }

    /// It is not the time for this message yet, and nothing failed. It waits at least this long,
    /// and then is handled as if it had not been delivered: neither an attempt nor one of the
    /// policy's waits is used up, and its history does not grow.
    ///
    /// Its deadline still holds: a message that would expire during the wait is treated as
    /// `on_expired` says. After `retry.max_defers` defers (100 by default) the next one parks it,
    /// with the reason [`DeferredTooOften`](crate::Reason::DeferredTooOften). With strategy
    /// `native`, whose waits the broker counts, a defer uses up a wait, unless `retry.after` is
    /// `ladder`. The delay is rounded as for [`after`](Self::after), and is too long at the same
    /// length.
    ///
    /// ```
    /// # use rehop::Failure;
    /// # use std::time::Duration;
    /// let closed = Failure::defer(Duration::from_secs(3600)).with_source("the shop is closed");
    /// assert_eq!((closed.class(), closed.message()), ("defer", "the shop is closed"));
    /// ```
    pub fn defer(delay: Duration) -> Self {
        let text = format!("deferred by {}", humantime::format_duration(delay));
        Self { kind: Kind::Defer, after: Some(delay), ..Self::unclassified("defer", text) }
    }

    /// Gives the failure the text of this error and its sources. The class stays.
    pub fn with_source<E: Into<Box<dyn Error + Send + Sync>>>(mut self, error: E) -> Self {
        let cause = Cause::boxed(error);
        self.message = with_sources(cause.error());
        self.cause = Some(cause);
        self
    }

    /// Waits at least this long before the next attempt, in place of the policy's next delay. It
    /// still uses up one of the policy's waits; [`defer`](Self::defer) does not. A delay is rounded
    /// up, never down, to what the policy's strategy can express.
    ///
    /// With strategy `tiers`, it waits for the shortest of the policy's `delays` that is long
    /// enough: by default, 12 s becomes one minute. A delay above the longest takes several legs, at
    /// most eight. Above [`RetryPolicy::longest_wait`](crate::RetryPolicy::longest_wait), the
    /// message is parked instead, with the reason
    /// [`DelayTooLong`](crate::Reason::DelayTooLong). If a remote service chooses this delay, set
    /// `retry.after = "ladder"`, or give the policy a longer one.
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = Some(delay);
        self
    }

    /// Sets the class that the policy's `errors` and the metrics know this failure by. By default
    /// it is the name of the error's type. For plain text, and for errors whose type says nothing
    /// (`anyhow::Error`, `eyre::Report`, `Box<dyn Error>`), it is the constructor's name, or
    /// `error` if the failure comes from `?`.
    ///
    /// Each class is a value of a metric's attribute, so there should be few. Never put an id or a
    /// text of the message in it. A name such as `stripe::Declined` is taken for the path of a
    /// type, so `retry.errors` cannot contain it.
    ///
    /// ```
    /// # use rehop::Failure;
    ///  // The policy decides, by `retry.errors.card_declined`.
    /// let failure = Failure::from("the card was declined").with_class("card_declined");
    /// assert_eq!((failure.class(), failure.message()), ("card_declined", "the card was declined"));
    /// ```
    pub fn with_class(mut self, class: impl Into<Cow<'static, str>>) -> Self {
        self.class = class.into();
        self.is_named = true;
        self
    }

    /// The class of this failure.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// The error's text, followed by those of its sources.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The error that this failure was made from, for a downcast. `None` for a panic, a timeout and
    /// a body that did not decode.
    ///
    /// An `anyhow::Error` that was converted by `?` or `From` can be downcast to the error inside
    /// if the feature `anyhow` is enabled, and an `eyre::Report` if the feature `eyre` is.
    /// Otherwise, only its sources can.
    ///
    /// ```
    /// # use rehop::Failure;
    /// let failure = Failure::from("x".parse::<u32>().unwrap_err());
    /// assert!(failure.source().unwrap().is::<std::num::ParseIntError>());
    /// ```
    pub fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref().map(Cause::error)
    }

    /// The delay that was asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        self.after
    }

    /// Whether nothing failed, and the handler deferred the message.
    pub(crate) fn is_defer(&self) -> bool {
        self.kind == Kind::Defer
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The handler exceeded its time limit: class `timeout`.
    pub(crate) fn timeout(limit: Duration) -> Self {
        let text =
            format!("the handler did not finish within {}", humantime::format_duration(limit));
        Self::unclassified("timeout", text)
    }

    /// The handler panicked: class `panic`.
    pub(crate) fn panic(payload: &(dyn std::any::Any + Send)) -> Self {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a text".to_owned());
        Self::unclassified("panic", text)
    }

    /// The body did not decode: class `undecodable`.
    pub(crate) fn undecodable(error: &impl std::fmt::Display) -> Self {
        Self { kind: Kind::Undecodable, ..Self::unclassified("undecodable", error.to_string()) }
    }

    /// Puts before its text why the message is parked and does not wait as long as this failure
    /// asks. `because` names the settings that bound a wait.
    pub(crate) fn asks_more_than(self, because: &str) -> Self {
        let asked = humantime::format_duration(self.after.unwrap_or_default());
        let message = format!("asked to wait {asked}, but {because}: {}", self.message);
        Self { message, ..self }
    }

    /// Puts before its text why the message is parked and not deferred again.
    pub(crate) fn defers_more_than(self, max_defers: u32) -> Self {
        let message = format!(
            "deferred once more than retry.max_defers allows, which is {max_defers}: {}",
            self.message
        );
        Self { message, ..self }
    }

    /// Gives the failure the class that this function finds for its error, or for one of the
    /// error's sources. A class that was set by name stays.
    pub(crate) fn classified(mut self, classify: &NameClass) -> Self {
        if !self.is_named
            && let Some(class) = self.cause.as_ref().and_then(|cause| cause.class(classify))
        {
            self.class = Cow::Borrowed(class);
        }
        self
    }

    fn unclassified(class: &'static str, message: String) -> Self {
        let class = Cow::Borrowed(class);
        Self { kind: Kind::Unclassified, class, is_named: false, message, cause: None, after: None }
    }

    fn new<E: Into<Box<dyn Error + Send + Sync>>>(
        kind: Kind,
        plain: &'static str,
        error: E,
    ) -> Self {
        Self::with_cause(kind, class::of_type::<E>(plain), Cause::boxed(error))
    }

    fn with_cause(kind: Kind, class: Cow<'static, str>, cause: Cause) -> Self {
        let message = with_sources(cause.error());
        Self { kind, class, is_named: false, message, cause: Some(cause), after: None }
    }
}

/// `AnyError`: every error that is `Send`, `Sync` and `'static`, and text. An error type of your own
/// says by [`Classify`] what becomes of the message, not by a conversion of its own.
impl<E: AnyError + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::with_cause(Kind::Unclassified, class::of_type::<E>("error"), Cause::of(error))
    }
}

/// The text of an error and of its sources, each only once: many errors print their source already.
pub(crate) fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
