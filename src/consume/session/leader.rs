//! Whether the leader of a queue answers, before it is consumed.

use std::sync::Arc;

use crate::broker::client::Connection;
use crate::broker::look::look_at;
use crate::consume::session::WorkQueue;
use crate::error::Error;

/// Fails if the leader of the queue hangs. The broker would carry a subscription out when the
/// leader goes on, although nobody waits for it any more, and would charge the messages that it
/// delivers.
pub(super) async fn check_leader(
    queue: &WorkQueue,
    consuming: &Arc<dyn Connection>,
) -> Result<(), Error> {
    let name = &queue.context.addresses.queue;
    let look = |connection: Arc<dyn Connection>| async move {
        look_at(&*connection, name.as_str(), queue.answer_timeout).await
    };
    match queue.keeper.scout().visit(Some(consuming), look).await {
        // The queue may be consumed all the same: some versions require more permissions to look at
        // a queue than to consume it, and what gives no answer at all may only be slow.
        Ok(_) | Err(Error::Permission { .. } | Error::Timeout { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
