//! Tells a test of each attempt. A service that runs outside a test tells nobody.

use std::future::Future;
use std::sync::Arc;

use crate::failure::Failure;
use crate::retry::outcome::Outcome;

/// A function that is told of each attempt.
pub(crate) type Onlooker = Arc<dyn Fn(&Sighting<'_>) + Send + Sync>;

/// A handler begins, or what becomes of a delivery is settled.
#[derive(Debug, Clone, Copy)]
pub struct Sighting<'a> {
    /// The queue that the message was consumed from.
    pub queue: &'a str,
    pub message_id: Option<&'a str>,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// `None`: the handler begins.
    pub outcome: Option<Outcome>,
    pub failure: Option<&'a Failure>,
}

tokio::task_local! {
    static ONLOOKER: Onlooker;
}

/// Runs a future whose services tell this function of their attempts.
pub async fn watched<F: Future>(onlooker: Onlooker, future: F) -> F::Output {
    ONLOOKER.scope(onlooker, future).await
}

/// What a service that starts in the current future tells of its attempts.
pub(super) fn onlooker() -> Option<Onlooker> {
    ONLOOKER.try_with(Arc::clone).ok()
}
