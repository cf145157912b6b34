//! A service's own errors, which say what becomes of their message.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

use super::class;
use super::{Failure, Kind};

/// An error type of your own that says what becomes of a message, variant by variant.
///
/// [`Service::errors`](crate::Service::errors) makes it known to all queues of a service, and
/// [`Consumer::errors`](crate::Consumer::errors) to one. From then on every failure that comes from
/// such an error is treated as it says, whichever way it came: the handler returns it, `?` makes a
/// [`Failure`] of it, or it is the source of another error, such as an `anyhow::Error` with a
/// context.
///
/// ```
/// use rehop::{Classify, Consumer, Failure, Message, Verdict};
/// use std::time::Duration;
///
/// #[derive(Debug, thiserror::Error)]
/// enum OrderError {
///     #[error("the card was declined")]
///     Declined,
///     #[error("the bank asks for a break of {0:?}")]
///     Busy(Duration),
///     #[error("the order was cancelled")]
///     Cancelled,
///     #[error("the amount is not a number")]
///     Amount(#[from] std::num::ParseIntError),
/// }
///
/// impl Classify for OrderError {
///     fn classify(&self) -> Verdict {
///         match self {
///             Self::Declined => Verdict::permanent().with_class("declined"),
///             Self::Busy(pause) => Verdict::transient().after(*pause),
///             Self::Cancelled => Verdict::discard(),
///             Self::Amount(_) => Verdict::by_policy(),
///         }
///     }
/// }
///
/// fn pay(amount: &str) -> Result<(), OrderError> {
///     let amount: u32 = amount.parse()?;
///     Err(if amount == 0 { OrderError::Cancelled } else { OrderError::Declined })
/// }
///
/// async fn charge(amount: Message<String>) -> Result<(), Failure> {
///     Ok(pay(&amount.body)?)
/// }
///
/// let consumer = Consumer::new("orders", charge).errors::<OrderError>();
/// # let _ = consumer;
/// ```
///
/// An `anyhow::Error` or `eyre::Report` without a context needs the feature `anyhow` or `eyre`.
///
/// What the handler says itself comes first: `Failure::transient(OrderError::Declined)` stays
/// transient, and a class or a delay that was set by hand stays, too.
///
/// # Why not `From`
///
/// `impl From<OrderError> for Failure` does not compile (E0119), because every
/// [`Error`](std::error::Error) converts into a [`Failure`] already: that is why `?` works on the
/// errors of all libraries. A conversion cannot ask whether the type also implements a trait, so
/// the service names the type once. In a test of the handler alone, and where the service should
/// not name it, use [`Failure::of`].
pub trait Classify: Error + Send + Sync + 'static {
    /// What becomes of a message whose attempt failed with this error. A panic in it counts as a
    /// panic of the handler.
    fn classify(&self) -> Verdict;
}

/// What an error of a service's own says about its message: see [`Classify`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "it says what becomes of a message when `Classify::classify` returns it"]
pub struct Verdict {
    kind: Kind,
    class: Option<&'static str>,
    after: Option<Duration>,
}

impl Verdict {
    /// The queue's policy decides, by `retry.errors`, as for any other error.
    pub const fn by_policy() -> Self {
        Self::new(Kind::Unclassified)
    }

    /// As [`Failure::transient`].
    pub const fn transient() -> Self {
        Self::new(Kind::Transient)
    }

    /// As [`Failure::requeue`].
    pub const fn requeue() -> Self {
        Self::new(Kind::Requeue)
    }

    /// As [`Failure::permanent`].
    pub const fn permanent() -> Self {
        Self::new(Kind::Permanent)
    }

    /// As [`Failure::discard`].
    pub const fn discard() -> Self {
        Self::new(Kind::Discard)
    }

    /// As [`Failure::defer`].
    pub const fn defer(delay: Duration) -> Self {
        Self { after: Some(delay), ..Self::new(Kind::Defer) }
    }

    /// Waits at least this long, as [`Failure::after`].
    pub const fn after(mut self, delay: Duration) -> Self {
        self.after = Some(delay);
        self
    }

    /// The class, as [`Failure::with_class`]. By default it is the name of the error's type, the
    /// same for all variants.
    pub const fn with_class(mut self, class: &'static str) -> Self {
        self.class = Some(class);
        self
    }

    const fn new(kind: Kind) -> Self {
        Self { kind, class: None, after: None }
    }
}

/// An error that converts into a [`Failure`]. The compiler reports this bound with the text below,
/// where that of the standard library's conversion would explain only `Box`. It also quotes the path
/// of this trait to those who write a conversion of their own for an error, and the path leads to
/// [`Classify`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not convert into a `Failure`",
    label = "a `Failure` is made from an `Error + Send + Sync`, such as `Box<dyn Error + Send + Sync>`",
    note = "in place of `Box<dyn Error>`, return `Failure` or `Box<dyn Error + Send + Sync>`",
    note = "an error of your own converts if it implements `std::error::Error`"
)]
pub trait AnyError: Into<Box<dyn Error + Send + Sync>> {}

#[diagnostic::do_not_recommend]
impl<E: Into<Box<dyn Error + Send + Sync>>> AnyError for E {}

/// What an error of a type that the service has named says. `None`: it is of another type.
pub(crate) type VerdictOf = fn(&(dyn Error + 'static)) -> Option<Said>;

/// What an error says, and the class of its type.
pub(crate) struct Said {
    verdict: Verdict,
    of_type: Cow<'static, str>,
}

pub(crate) fn verdict_of<E: Classify>(error: &(dyn Error + 'static)) -> Option<Said> {
    let error = error.downcast_ref::<E>()?;
    Some(Said { verdict: error.classify(), of_type: class::of_type::<E>("error") })
}

impl Failure {
    /// What this error says of itself: see [`Classify`]. For a failure of a service that has not
    /// named the type by [`Service::errors`](crate::Service::errors), as in a test of the handler
    /// alone.
    ///
    /// ```
    /// use rehop::{Classify, Failure, Verdict};
    ///
    /// #[derive(Debug, thiserror::Error)]
    /// #[error("the card was declined")]
    /// struct Declined;
    ///
    /// impl Classify for Declined {
    ///     fn classify(&self) -> Verdict {
    ///         Verdict::permanent().with_class("declined")
    ///     }
    /// }
    ///
    /// fn charge() -> Result<(), Failure> {
    ///     Err(Declined).map_err(Failure::of)
    /// }
    ///
    /// assert_eq!(charge().unwrap_err().class(), "declined");
    /// ```
    pub fn of<E: Classify>(error: E) -> Self {
        Self::from(error).judged(&[verdict_of::<E>])
    }

    /// The failure as its error says, or the first of the error's sources whose type is one of
    /// these. What was said by hand stays.
    pub(crate) fn judged(mut self, types: &[VerdictOf]) -> Self {
        let said = self.cause.as_ref().and_then(|cause| {
            cause.chain().find_map(|error| types.iter().find_map(|verdict_of| verdict_of(error)))
        });
        let Some(Said { verdict, of_type }) = said else { return self };
        if self.kind == Kind::Unclassified {
            self.kind = verdict.kind;
            self.after = self.after.or(verdict.after);
            if !self.is_named {
                self.class = of_type;
            }
        }
        if let Some(class) = verdict.class.filter(|_| !self.is_named) {
            self = self.with_class(class);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, thiserror::Error)]
    #[error("{self:?}")]
    enum OrderError {
        Declined,
        Busy,
        Unknown,
        Early,
    }

    const PAUSE: Duration = Duration::from_secs(7);

    impl Classify for OrderError {
        fn classify(&self) -> Verdict {
            match self {
                Self::Declined => Verdict::permanent().with_class("declined"),
                Self::Busy => Verdict::transient().after(PAUSE),
                Self::Unknown => Verdict::by_policy().with_class("unknown"),
                Self::Early => Verdict::defer(PAUSE),
            }
        }
    }

    #[cfg(all(feature = "anyhow", feature = "eyre"))]
    #[derive(Debug, thiserror::Error)]
    #[error("a library's error")]
    struct Outer(#[source] OrderError);

    fn judged(failure: Failure) -> (Kind, String, Option<Duration>) {
        let failure = failure.judged(&[verdict_of::<OrderError>]);
        (failure.kind(), failure.class().to_owned(), failure.retry_after())
    }

    fn said(kind: Kind, class: &str, after: Option<Duration>) -> (Kind, String, Option<Duration>) {
        (kind, class.to_owned(), after)
    }

    #[test]
    fn each_variant_becomes_what_it_says() {
        use OrderError::{Busy, Declined, Early, Unknown};
        for (error, expected) in [
            (Declined, said(Kind::Permanent, "declined", None)),
            (Busy, said(Kind::Transient, "OrderError", Some(PAUSE))),
            (Unknown, said(Kind::Unclassified, "unknown", None)),
            (Early, said(Kind::Defer, "OrderError", Some(PAUSE))),
        ] {
            assert_eq!(judged(Failure::from(error)), expected);
            let of = Failure::of(error);
            assert_eq!((of.kind(), of.class().to_owned(), of.retry_after()), expected);
            assert_eq!(of.message(), format!("{error:?}"));
        }
        for (verdict, kind) in
            [(Verdict::requeue(), Kind::Requeue), (Verdict::discard(), Kind::Discard)]
        {
            assert_eq!(verdict.kind, kind);
        }
    }

    #[cfg(all(feature = "anyhow", feature = "eyre"))]
    #[test]
    fn an_error_is_found_inside_others() {
        let declined = || said(Kind::Permanent, "declined", None);
        let error = OrderError::Declined;
        let boxed: Box<dyn Error + Send + Sync> = Box::new(error);
        assert_eq!(judged(Failure::from(boxed)), declined());
        assert_eq!(judged(Failure::from(Outer(error))), declined());
        assert_eq!(judged(Failure::from(std::io::Error::other(error))), declined());
        assert_eq!(judged(anyhow::Error::from(error).context("order 7").into()), declined());
        assert_eq!(judged(eyre::Report::from(Outer(error)).into()), declined());
        assert_eq!(
            judged(Failure::from(Outer(OrderError::Busy))),
            said(Kind::Transient, "OrderError", Some(PAUSE)),
            "the class is the name of the type that has spoken"
        );
    }

    #[test]
    fn what_was_said_by_hand_stays() {
        assert_eq!(
            judged(Failure::transient(OrderError::Declined)),
            said(Kind::Transient, "declined", None)
        );
        assert_eq!(
            judged(Failure::from(OrderError::Declined).with_class("card")),
            said(Kind::Permanent, "card", None)
        );
        let longer = PAUSE * 2;
        assert_eq!(
            judged(Failure::from(OrderError::Busy).after(longer)),
            said(Kind::Transient, "OrderError", Some(longer))
        );
    }

    #[test]
    fn other_errors_are_left_to_the_policy() {
        assert_eq!(judged(Failure::from("no")), said(Kind::Unclassified, "error", None));
        assert_eq!(
            judged(Failure::timeout(PAUSE)),
            said(Kind::Unclassified, "timeout", None),
            "it has no error"
        );
    }
}
