//! A channel that confirms what is published on it.

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation, Connection};

use crate::broker::channel::open_channel;

pub(crate) async fn open(connection: &Connection) -> lapin::Result<Channel> {
    let channel = open_channel(connection).await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}

/// Sends a message when it is first polled, and ends with its confirm.
pub(crate) async fn publish(
    channel: &Channel,
    exchange: ShortString,
    routing_key: ShortString,
    body: &[u8],
    properties: BasicProperties,
    mandatory: bool,
) -> lapin::Result<Confirmation> {
    let options = BasicPublishOptions { mandatory, ..BasicPublishOptions::default() };
    channel.basic_publish(exchange, routing_key, options, body, properties).await?.await
}
