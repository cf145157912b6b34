//! What holds for all consumers of a service that do not say otherwise.

use std::collections::BTreeSet;

use super::AnyConsumer;
use crate::handler::OfFailures;

/// What holds for all consumers of a service that do not say otherwise.
#[derive(Default)]
pub(crate) struct Defaults {
    pub(crate) of_failures: OfFailures,
    pub(crate) classes: Option<BTreeSet<&'static str>>,
}

impl Defaults {
    /// Applied when the service starts, so it does not matter which was set first.
    pub(crate) fn apply(&self, consumers: &mut [AnyConsumer]) {
        for consumer in consumers {
            consumer.handler.default_to(&self.of_failures);
            if consumer.classes.is_none() {
                consumer.classes.clone_from(&self.classes);
            }
        }
    }
}
