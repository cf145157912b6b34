//! Publishes copies. Each is retried until it is confirmed, proves unpublishable, or is given up by its caller.
//!
//! [`copy_publisher`] is the flow of one copy; [`retries`] decides what the broker's answers mean for it, without I/O; an [`exchange`] knows whether
//! it takes copies; a [`running_lane`] is one channel, and a [`session`] one connection.
//! Messages that a service publishes itself are not copies: nothing has to be acked after them, so [`crate::Publisher`] reports at
//! once what the broker does not take.

mod copy_publisher;
mod exchange;
mod retries;
mod running_lane;
mod session;
#[cfg(test)]
mod tests;
mod trouble;

pub(crate) use copy_publisher::CopyPublisher;

/// The broker rejects this copy however often it is sent.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the broker does not accept the copy: {0}")]
pub(crate) struct Unpublishable(String);
