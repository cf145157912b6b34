//! What a handler says when it could not handle a message.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

/// Why an attempt failed, and what the handler thinks should become of the message.
///
/// A handler returns `Result<(), Failure>`. Any error converts into a failure with `?`; the queue's policy then decides
/// (transient, unless its error classes say otherwise). The constructors below say it explicitly.
///
/// A failure's text travels in the message's `rehop-errors` header, in logs and in spans. Keep payloads and credentials
/// out of it.
///
/// ```
/// use rehop::Failure;
/// use std::time::Duration;
///
/// fn charge(amount: &str) -> Result<u32, Failure> {
///     let amount: u32 = amount.parse()?; // the policy decides
///     if amount == 0 {
///         return Err(Failure::permanent("an order of nothing"));
///     }
///     if amount > 1_000 {
///         return Err(Failure::transient("limit reached").after(Duration::from_secs(60)));
///     }
///     Ok(amount)
/// }
///
/// assert_eq!(charge("x").unwrap_err().class(), "core::num::error::ParseIntError");
/// assert_eq!(charge("0").unwrap_err().class(), "permanent");
/// ```
///
/// `Failure` is deliberately no [`std::error::Error`]: that is what lets `?` turn every error into one.
#[derive(Debug, Clone)]
pub struct Failure {
    kind: Kind,
    class: Cow<'static, str>,
    message: String,
    after: Option<Duration>,
}

/// What was asked for. `Unsaid` leaves the choice to the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Unsaid,
    Transient,
    Requeue,
    Permanent,
    Discard,
}

impl Failure {
    /// It may work later: another attempt at once while the policy's `immediate` budget lasts, then a wait along its
    /// `delays`, then whatever `on_exhausted` says.
    pub fn transient<E: Into<Box<dyn Error + Send + Sync>>>(error: E) -> Self {
        Self::new(Kind::Transient, "transient", error)
    }

    /// It may work at once, for instance after contention: back to the queue without a wait, within the policy's
    /// `immediate` budget. When that is spent it is [transient](Self::transient).
    pub fn requeue<E: Into<Box<dyn Error + Send + Sync>>>(error: E) -> Self {
        Self::new(Kind::Requeue, "requeue", error)
    }

    /// It will never work: parked now, with the error.
    pub fn permanent<E: Into<Box<dyn Error + Send + Sync>>>(error: E) -> Self {
        Self::new(Kind::Permanent, "permanent", error)
    }

    /// Nobody needs it: acked, counted as discarded, kept nowhere.
    pub fn discard<E: Into<Box<dyn Error + Send + Sync>>>(reason: E) -> Self {
        Self::new(Kind::Discard, "discard", reason)
    }

    /// Waits at least this long before the next attempt, in place of the policy's next delay. It still uses up one of the
    /// policy's waits. Delays are rounded up to what the wait queues can express, never down. Above
    /// [`MAX_DELAY`](crate::MAX_DELAY) the message is parked instead.
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = Some(delay);
        self
    }

    /// Names the class by which the policy's `errors` and the metrics know this failure. By default it is the Rust path of
    /// the error's type, or the constructor's name for plain text.
    pub fn with_class(mut self, class: impl Into<Cow<'static, str>>) -> Self {
        self.class = class.into();
        self
    }

    /// The class of this failure.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// The error's text, with the texts of its sources.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The delay that was asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        self.after
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// A handler that ran longer than its time limit: class `timeout`.
    pub(crate) fn timeout(limit: Duration) -> Self {
        let text = format!("the handler did not finish within {}", humantime::format_duration(limit));
        Self::unsaid("timeout", text)
    }

    /// A handler that panicked: class `panic`.
    pub(crate) fn panic(payload: &(dyn std::any::Any + Send)) -> Self {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a text".to_owned());
        Self::unsaid("panic", text)
    }

    /// A body that its codec refused: class `undecodable`.
    pub(crate) fn undecodable(error: &crate::codec::DecodeError) -> Self {
        Self { kind: Kind::Permanent, ..Self::unsaid("undecodable", error.to_string()) }
    }

    fn unsaid(class: &'static str, message: String) -> Self {
        Self { kind: Kind::Unsaid, class: Cow::Borrowed(class), message, after: None }
    }

    fn new<E: Into<Box<dyn Error + Send + Sync>>>(kind: Kind, plain: &'static str, error: E) -> Self {
        let class = match std::any::type_name::<E>() {
            "&str" | "alloc::string::String" => plain,
            name if name.starts_with("alloc::boxed::Box<dyn") => plain,
            name => name,
        };
        Self { kind, class: Cow::Borrowed(class), message: chain_of(error.into().as_ref()), after: None }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(Kind::Unsaid, "error", error)
    }
}

/// The text of an error and of its sources, each once: many errors already print their source.
fn chain_of(error: &dyn Error) -> String {
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
