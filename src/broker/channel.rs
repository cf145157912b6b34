//! Opens channels, subscribes and publishes, around two faults of lapin (4.12) that show only in the long run.

use lapin::options::{BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions};
use lapin::protocol::AMQPErrorKind;
use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, Consumer, ErrorKind};

use super::queued::queued;

/// Opens a channel.
///
/// lapin keeps the error with which the broker has closed a channel. Some 2,000 channels later the number of that channel is due again:
/// lapin then returns the old error instead of a new channel, and never uses the number again. RabbitMQ itself refuses no new channel with
/// such an error (3.10, 4.0 and 4.3), so the error is taken for an old one, and the next number is tried.
///
/// # Errors
///
/// When the connection is lost, or has no number left. `is_used_up` in `error` recognises the latter; the connection
/// then has to be replaced.
pub async fn open_channel(connection: &Connection) -> lapin::Result<Channel> {
    loop {
        #[expect(clippy::disallowed_methods, reason = "only here are old errors recognised")]
        match connection.create_channel().await {
            // Each try takes a number out of use, so this ends.
            Err(error) if is_soft(&error) => {}
            opened => return opened,
        }
    }
}

/// Opens a channel that confirms what is published on it.
///
/// # Errors
///
/// As [`open_channel`].
pub async fn open_confirming(connection: &Connection) -> lapin::Result<Channel> {
    let channel = open_channel(connection).await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}

/// Sends a message when it is first polled, and ends with its confirm.
///
/// # Errors
///
/// When the channel is gone before the broker has answered.
pub async fn publish(
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

/// Whether to replace a connection that can open no more channels, because numbers of closed channels are lost to it. Not if its owner
/// uses half of what the broker allows or more: the next connection would soon be full, too.
pub(crate) fn has_lost_numbers(connection: &Connection, in_use: usize) -> bool {
    in_use < usize::from(connection.configuration().channel_max()) / 2
}

/// Whether it is an error for which the broker closes only a channel, not the connection.
fn is_soft(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(answer) if matches!(answer.kind(), AMQPErrorKind::Soft(_)))
}

/// Subscribes under a tag that the broker chooses. If the future is dropped before the broker has answered, for instance by a time limit,
/// the channel is closed: otherwise lapin would keep the subscription when the answer comes, and all that is delivered to it, until the
/// connection ends.
///
/// # Errors
///
/// When the broker refuses, or the channel is gone.
pub async fn subscribe(
    channel: &Channel,
    queue: ShortString,
    options: BasicConsumeOptions,
    arguments: FieldTable,
) -> lapin::Result<Consumer> {
    let mut unanswered = Unanswered { channel: Some(channel) };
    #[expect(clippy::disallowed_methods, reason = "the channel is closed if the answer is not waited for")]
    let answer = channel.basic_consume(queue, ShortString::default(), options, arguments).await;
    unanswered.channel = None;
    answer
}

/// When it is dropped, closes the channel that it still has.
struct Unanswered<'a> {
    channel: Option<&'a Channel>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(channel) = self.channel {
            queued(channel.close(200, "no answer to a subscription".into()));
        }
    }
}
