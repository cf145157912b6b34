//! Publishes copies. Each is retried until it is confirmed, proves unpublishable, or is given up by its caller.
//!
//! [`outbox`] decides, without a broker; [`task`] does what it says and tells it what happened; a [lane](crate::broker::lane) is one channel;
//! [`copy_publisher`] is the handle.
//! Messages that a service publishes itself are not copies: nothing has to be acked after them, so [`crate::Publisher`] reports at
//! once what the broker does not take.

mod copy_publisher;
mod outbox;
mod report;
mod request;
mod session;
mod task;

pub(crate) use copy_publisher::CopyPublisher;

/// The broker rejects this copy however often it is sent.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the broker does not accept the copy: {0}")]
pub(crate) struct Unpublishable(String);
