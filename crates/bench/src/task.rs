//! The task that a side works on.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::corner::Corner;
use crate::job::Job;
use crate::witness::Witness;

/// The task that a side works on.
pub(crate) struct Task {
    pub(crate) job: Job,
    pub(crate) url: String,
    pub(crate) corner: Corner,
    /// Records each attempt, where a handler would be called.
    pub(crate) witness: Arc<Witness>,
    /// Tells the side to settle what it has begun, and to end.
    pub(crate) stop: oneshot::Receiver<()>,
}
