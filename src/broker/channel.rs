//! Opens channels and subscribes, where lapin (4.12) alone would go wrong in the long run.

use lapin::options::BasicConsumeOptions;
use lapin::protocol::AMQPErrorKind;
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Connection, Consumer, ErrorKind};

use super::settle::queued;

/// Opens a channel.
///
/// lapin keeps the error with which the broker closed a channel, gives it to the next channel with the same number, some 2,000 channels
/// later, and never uses that number again. RabbitMQ refuses no new channel with such an error (3.10, 4.0 and 4.3), so the next number is
/// tried.
///
/// # Errors
///
/// When the connection is lost, or no number is left, which [`is_used_up`] tells: then the connection has to be replaced.
pub(crate) async fn open_channel(connection: &Connection) -> lapin::Result<Channel> {
    loop {
        #[expect(clippy::disallowed_methods, reason = "the one place that may")]
        match connection.create_channel().await {
            // Each try takes a number out of use, so this ends.
            Err(error) if is_soft(&error) => {}
            opened => return opened,
        }
    }
}

/// Whether the connection has no number left for a channel: the broker allows few, or has closed many.
pub(crate) fn is_used_up(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ChannelsLimitReached)
}

/// Whether the error is one with which the broker closes a channel, and not a connection.
fn is_soft(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(answer) if matches!(answer.kind(), AMQPErrorKind::Soft(_)))
}

/// Subscribes under a tag that the broker chooses. If this is dropped before the broker has answered, as by a time limit, the channel
/// is closed: lapin would keep the subscription when the answer comes, and all that is delivered to it, until the connection ends.
///
/// # Errors
///
/// When the broker refuses, or the channel is gone.
pub(crate) async fn subscribe(
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

/// Closes the channel when it is dropped with one.
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
