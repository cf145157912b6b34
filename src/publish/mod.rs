//! Publishes copies. Each is retried until it is confirmed, proves unpublishable, or is given up by its caller.
//!
//! [`outbox`] decides, without a broker; [`task`] does what it says and tells it what happened; [`unanswered`] judges what the broker answers on
//! one channel; [`copy_publisher`] is the handle.
//! Messages that a service publishes itself are not copies: nothing has to be acked after them, so [`crate::Publisher`] reports at
//! once what the broker does not take.

mod cause;
pub(crate) mod channel;
mod copy_publisher;
mod lane;
mod outbox;
mod outgoing;
mod report;
mod request;
mod returns;
mod session;
mod task;
mod unanswered;

pub(crate) use copy_publisher::CopyPublisher;
pub(crate) use lane::{Lane, PublishResult};
pub(crate) use outbox::{CopyId, LaneId};
pub(crate) use outgoing::Outgoing;

/// The broker rejects this copy however often it is sent.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the broker does not accept the copy: {0}")]
pub(crate) struct Unpublishable(String);
