//! Publishes copies. Each is retried until it is confirmed, proves unpublishable, or is given up:
//! by its caller or, if its queue stops, when it is refused or cannot be sent.
//!
//! Each exchange has a lane (`broker/lane/`) that all its copies share. If the broker closes it
//! over the exchange, the exchange is *in doubt*: its copies wait, and after a pause one of them
//! finds out whether it takes copies again. A copy that was refused, or that may have closed its
//! lane, is retried on a lane of its own, after growing pauses, so that it neither delays nor
//! duplicates others. One that may have broken the connection is sent with nothing beside it.
//!
//! [`copy_publisher`] is the flow of one copy; [`admission`] sends it once; [`retries`] decides what
//! the broker's answers mean for it, without I/O; [`upkeep`] keeps the connection and the topology.
//! Messages that a service publishes itself are not copies: nothing has to be acked after them, so
//! [`crate::Publisher`] reports at once what the broker does not take.

mod admission;
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
pub(crate) use retries::GivenUp;

use crate::broker::client::Connection;
use crate::error::{Error, Limit, Problem};

/// What else a connection for copies needs channels for: refused copies, the receipts of replays,
/// and the look whether it is alive.
const OTHER_CHANNELS: usize = 3;

/// Checks that this connection has room for one lane per exchange that copies go to, and for
/// [`OTHER_CHANNELS`]. Copies use no other connection, so those without a lane would wait until it
/// is replaced.
pub(crate) fn lanes_fit(connection: &dyn Connection, exchanges: usize) -> Result<(), Error> {
    let most = connection.channel_max();
    // 0: the broker sets no limit.
    let needed = exchanges + OTHER_CHANNELS;
    if most == 0 || needed <= usize::from(most) {
        return Ok(());
    }
    Err(Error::Limit {
        what: format!(
            "opening {needed} channels for copies (one for each of {exchanges} exchanges, {OTHER_CHANNELS} for other purposes)"
        ),
        limit: Limit::ConnectionChannels,
        problem: Problem::from(format!("A connection may have {most} channels")),
    })
}
