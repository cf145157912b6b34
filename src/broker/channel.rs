//! Opens channels that confirm, and tells when a connection has no number left for another.

use std::sync::Arc;
use std::time::Duration;

use super::client::{Channel, Connection};
use crate::error::is_used_up;

/// For how long the broker may still count a channel that it has closed. With room for one, 12 of
/// 150 channels that were opened at once after another was closed were refused (3.10; 4 on 4.3),
/// and none after 20 ms.
pub(crate) const STILL_COUNTED: Duration = Duration::from_millis(50);

/// Opens a channel that confirms what is published on it.
///
/// # Errors
///
/// As [`Connection::open_channel`].
pub async fn open_confirming(connection: &dyn Connection) -> lapin::Result<Arc<dyn Channel>> {
    let channel = connection.open_channel().await?;
    channel.confirm_select().await?;
    Ok(channel)
}

/// Whether to replace a connection that can open no more channels, because numbers of closed
/// channels are lost to it. Not if its owner uses half of what the broker allows or more: the next
/// connection would soon be full, too.
pub(crate) fn has_lost_numbers(connection: &dyn Connection, in_use: usize) -> bool {
    in_use < usize::from(connection.channel_max()) / 2
}

/// Whether a connection is to be replaced on which opening a channel has ended with this error.
/// `in_use`: how many channels its owner uses.
pub(crate) fn is_replaced(
    connection: &dyn Connection,
    error: &lapin::Error,
    in_use: usize,
) -> bool {
    is_used_up(error) && has_lost_numbers(connection, in_use)
}
