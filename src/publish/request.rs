//! What the publishing task is asked for.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::Unpublishable;
use crate::broker::lane::{CopyId, Outgoing};

pub(super) enum Request {
    Publish(CopyId, Pending),
    Withdraw(CopyId),
}

/// A copy that somebody waits for.
pub(super) struct Pending {
    pub(super) copy: Arc<Outgoing>,
    pub(super) done: oneshot::Sender<Result<(), Unpublishable>>,
}

/// Where a task takes its requests from. It outlives a task that panics.
pub(super) type Requests = mpsc::UnboundedReceiver<Request>;
