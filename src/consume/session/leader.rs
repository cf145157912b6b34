//! Whether the leader of a queue answers, before it is consumed.

use crate::broker::client::Connection;
use crate::broker::look::{LONGEST, look, silent_leader};
use crate::consume::session::WorkQueue;
use crate::error::Error;

/// Fails if the leader of the queue hangs. The broker would carry a subscription out when the
/// leader goes on, although nobody waits for it any more, and would charge the messages that it
/// delivers.
pub(super) async fn check_leader(
    queue: &WorkQueue,
    connection: &dyn Connection,
) -> Result<(), Error> {
    let name = &queue.context.addresses.queue;
    let looking = async {
        let channel = connection.open_channel().await?;
        let (_, answers) = look(&*channel, name, LONGEST.min(queue.answer_timeout / 2)).await?;
        channel.close("done").await.map(|()| answers)
    };
    match queue.shutdown.answer("asking the leader of a queue", queue.answer_timeout, looking).await
    {
        // The queue may be consumed all the same: some versions require more permissions to look at
        // a queue than to consume it, and what has timed out may only be slow.
        Ok(true) | Err(Error::Permission { .. } | Error::Timeout { .. }) => Ok(()),
        Ok(false) => Err(silent_leader(format!("consuming queue {:?}", name.as_str()), name)),
        Err(error) => Err(error),
    }
}
