//! Publishes copies. Each is retried until it is confirmed, proves unpublishable, or is given up:
//! by its caller or, if its queue stops, when it is refused or cannot be sent.
//!
//! Each exchange has a lane (`broker/lane/`) that all its copies share. If the broker closes it
//! over the exchange, the exchange is *in doubt*: its copies wait, and after a pause one of them
//! finds out whether it takes copies again. A copy that was refused, or that may have closed its
//! lane, is retried on a lane of its own, after growing pauses, so that it neither delays nor
//! duplicates others. One that may have broken the connection is sent with nothing beside it.
//!
//! [`copy_publisher`] is the flow of one copy; [`retries`] decides what the broker's answers mean
//! for it, without I/O; [`upkeep`] keeps the connection and the topology. Messages that a service
//! publishes itself are not copies: nothing has to be acked after them, so [`crate::Publisher`]
//! reports at once what the broker does not take.

mod copy_publisher;
mod exchange;
mod publishing_connection;
mod retries;
mod shared;
#[cfg(test)]
mod tests;
mod trouble;
mod upkeep;

pub(crate) use copy_publisher::CopyPublisher;

use crate::broker::client::Connection;
use crate::error::{Error, Limit, Problem};

/// Whether each of the exchanges that copies go to can have its lane on this connection, and refused
/// copies one besides. Copies use no other connection, so those without a lane would wait for as
/// long as it lasts.
pub(crate) fn lanes_fit(connection: &dyn Connection, exchanges: usize) -> Result<(), Error> {
    let most = connection.channel_max();
    // 0: the broker sets no limit.
    if most == 0 || exchanges < usize::from(most) {
        return Ok(());
    }
    Err(Error::Limit {
        what: format!(
            "opening a channel for each of the {exchanges} exchanges that copies go to, and one for refused copies,"
        ),
        limit: Limit::ConnectionChannels,
        problem: Problem::from(format!("A connection may have {most}")),
    })
}

/// Why a copy was not published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotPublished {
    /// The broker closes the channel or the connection over this copy each time.
    #[error("the broker does not accept the copy: {0}")]
    Unpublishable(String),
    /// Its queue stops, and the broker has refused it, or it could not be sent. It may have been
    /// stored if a channel or a connection ended before the broker answered.
    #[error("the broker had not accepted the copy at the stop")]
    Stopped { may_be_stored: bool },
}
