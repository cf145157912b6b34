//! Opens channels that confirm, and subscribes.

use std::sync::Arc;

use lapin::options::BasicConsumeOptions;
use lapin::types::{FieldTable, ShortString};

use super::client::{Channel, Connection, Subscription};
use super::queued::queued;
use crate::error::is_used_up;

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

/// Whether to replace a connection that can open no more channels, because numbers of closed channels are lost to it. Not if its owner
/// uses half of what the broker allows or more: the next connection would soon be full, too.
pub(crate) fn has_lost_numbers(connection: &dyn Connection, in_use: usize) -> bool {
    in_use < usize::from(connection.channel_max()) / 2
}

/// Whether a connection is to be replaced on which opening a channel has ended with this error. `in_use`: how many channels its owner uses.
pub(crate) fn is_replaced(connection: &dyn Connection, error: &lapin::Error, in_use: usize) -> bool {
    is_used_up(error) && has_lost_numbers(connection, in_use)
}

/// Subscribes. If the future is dropped before the broker has answered, for instance by a time limit, the channel is closed: otherwise the
/// subscription might come into being all the same, and keep all that is delivered to it until the connection ends.
///
/// # Errors
///
/// When the broker refuses, or the channel is gone.
pub async fn subscribe(
    channel: &dyn Channel,
    queue: ShortString,
    options: BasicConsumeOptions,
    arguments: FieldTable,
) -> lapin::Result<Subscription> {
    let mut unanswered = Unanswered { channel: Some(channel) };
    let answer = channel.consume(queue, options, arguments).await;
    unanswered.channel = None;
    answer
}

/// When it is dropped, closes the channel that it still has.
struct Unanswered<'a> {
    channel: Option<&'a dyn Channel>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(channel) = self.channel {
            queued(channel.close("no answer to a subscription"));
        }
    }
}
