//! The error that a failure was made from.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

/// A function that names the class of an error, if it knows it.
pub(crate) type NameClass =
    Arc<dyn Fn(&(dyn Error + 'static)) -> Option<&'static str> + Send + Sync>;

/// The error that a failure was made from.
///
/// `anyhow::Error` and `eyre::Report` are kept as they are: converted to a `Box<dyn Error>`, they
/// hide the type of the error inside from downcasts.
#[derive(Clone)]
pub(crate) struct Cause(Arc<dyn AsRef<dyn Error + Send + Sync> + Send + Sync>);

impl Cause {
    pub(crate) fn of<E: Into<Box<dyn Error + Send + Sync>> + 'static>(error: E) -> Self {
        #[cfg(feature = "anyhow")]
        let error = match downcast::<E, anyhow::Error>(error) {
            Ok(report) => return Self(Arc::new(report)),
            Err(error) => error,
        };
        #[cfg(feature = "eyre")]
        let error = match downcast::<E, eyre::Report>(error) {
            Ok(report) => return Self(Arc::new(report)),
            Err(error) => error,
        };
        Self::boxed(error)
    }

    pub(crate) fn boxed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(Arc::new(error.into()))
    }

    pub(crate) fn error(&self) -> &(dyn Error + 'static) {
        (*self.0).as_ref()
    }

    /// The class that this function finds for the error or, if it finds none, for the first of its
    /// sources that has one.
    pub(crate) fn class(&self, classify: &NameClass) -> Option<&'static str> {
        self.chain().find_map(|error| classify(error))
    }

    /// The error and its sources.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &(dyn Error + 'static)> {
        std::iter::successors(Some(self.error()), |error| inside(*error))
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.error(), f)
    }
}

/// The error inside. An `io::Error` has the source of the error that it was made from, and not that
/// error itself.
fn inside<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

#[cfg(any(feature = "anyhow", feature = "eyre"))]
fn downcast<E: 'static, R: 'static>(error: E) -> Result<R, E> {
    let mut slot = Some(error);
    match (&mut slot as &mut dyn std::any::Any).downcast_mut::<Option<R>>().and_then(Option::take) {
        Some(report) => Ok(report),
        None => slot.map_or_else(|| unreachable!("only a report is taken out"), Err),
    }
}
