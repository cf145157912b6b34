//! Subscribes on a channel that is used for nothing else.

use lapin::options::BasicConsumeOptions;
use lapin::types::{FieldTable, ShortString};
use rehop::internals::client::{Channel, Subscription};
use rehop::internals::queued;

/// Subscribes. If the future is dropped before the broker has answered, for instance by a time
/// limit, the channel is closed: otherwise the subscription might come into being all the same, and
/// keep all that is delivered to it until the connection ends.
///
/// # Errors
///
/// When the broker refuses, or the channel is gone.
pub(crate) async fn subscribe(
    channel: &dyn Channel,
    queue: ShortString,
    options: BasicConsumeOptions,
    arguments: FieldTable,
) -> lapin::Result<Subscription> {
    let mut unanswered = CloseWhenDropped(Some(channel));
    let answer = channel.consume(queue, options, arguments).await;
    unanswered.0 = None;
    answer
}

struct CloseWhenDropped<'a>(Option<&'a dyn Channel>);

impl Drop for CloseWhenDropped<'_> {
    fn drop(&mut self) {
        if let Some(channel) = self.0 {
            queued(channel.close("no answer to a subscription"));
        }
    }
}
