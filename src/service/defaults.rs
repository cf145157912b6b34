//! What is set once for all consumers of a service.

use std::error::Error;
use std::sync::Arc;

use super::Service;
#[cfg(doc)]
use crate::consumer::Consumer;
use crate::failure::{Classify, verdict_of};
use crate::handler::FailureEvent;

/// # Once for all queues
///
/// These hold for all consumers of the service, whichever is called first. A consumer's own
/// `classify`, `classes` or `on_failure` replaces the service's; its `errors` are added. There is no default decoder and no default layer: both depend on the
/// type that a handler takes, which differs from queue to queue.
impl Service {
    /// Lets errors of this type say what becomes of their message, in all queues: see
    /// [`Classify`]. Each call adds a type. Types of [`Consumer::errors`] are known in addition.
    ///
    /// ```
    /// # use rehop::{Classify, Message, Service, Settings, Verdict};
    /// #[derive(Debug, thiserror::Error)]
    /// #[error("the card was declined")]
    /// struct Declined;
    ///
    /// impl Classify for Declined {
    ///     fn classify(&self) -> Verdict {
    ///         Verdict::permanent()
    ///     }
    /// }
    ///
    /// async fn charge(_: Message<u32>) -> Result<(), Declined> {
    ///     Err(Declined)
    /// }
    ///
    /// # let settings = Settings::default();
    /// let service = Service::new(&settings).errors::<Declined>().consumer("orders", charge);
    /// # let _ = service;
    /// ```
    pub fn errors<E: Classify>(mut self) -> Self {
        self.defaults.of_failures.errors.push(verdict_of::<E>);
        self
    }

    /// Names the classes of errors in all queues, as [`Consumer::classify`] does in one, which
    /// replaces this function there.
    ///
    /// ```
    /// # use rehop::{Service, Settings};
    /// # let settings = Settings::default();
    /// let service = Service::new(&settings)
    ///     .classify(|error| error.is::<std::io::Error>().then_some("io"));
    /// # let _ = service;
    /// ```
    pub fn classify<F>(mut self, classify: F) -> Self
    where
        F: Fn(&(dyn Error + 'static)) -> Option<&'static str> + Send + Sync + 'static,
    {
        self.defaults.of_failures.classify = Some(Arc::new(classify));
        self
    }

    /// Declares all names of classes that failures have, in all queues, as [`Consumer::classes`]
    /// does in one, which replaces these there.
    ///
    /// ```
    /// # use rehop::{Service, Settings};
    /// # let settings = Settings::default();
    /// let service = Service::new(&settings).classes(["declined", "io"]);
    /// # let _ = service;
    /// ```
    pub fn classes(mut self, names: impl IntoIterator<Item = &'static str>) -> Self {
        self.defaults.classes = Some(names.into_iter().collect());
        self
    }

    /// Calls this function for each failure in all queues, as [`Consumer::on_failure`] does in one,
    /// which replaces this function there. It sees panics, timeouts, bodies that do not decode and
    /// errors of layers, too. [`FailureEvent::queue`] names the queue.
    ///
    /// ```
    /// # use rehop::{Service, Settings};
    /// # let settings = Settings::default();
    /// let service = Service::new(&settings).on_failure(|event| {
    ///     eprintln!("{}: {:?}", event.queue, event.outcome);
    /// });
    /// # let _ = service;
    /// ```
    pub fn on_failure(
        mut self,
        on_failure: impl Fn(&FailureEvent<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.defaults.of_failures.on_failure = Some(Arc::new(on_failure));
        self
    }
}
