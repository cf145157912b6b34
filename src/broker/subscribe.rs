//! Subscribes to a queue.

use lapin::options::BasicConsumeOptions;
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Consumer};

use super::settle::queued;

/// Subscribes under a tag that the broker chooses. If this is dropped before the broker has answered, as by a time limit, the channel
/// is closed: lapin (4.12) would keep the subscription when the answer comes, and all that is delivered to it, until the connection ends.
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
    #[expect(clippy::disallowed_methods, reason = "the one place that may")]
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
