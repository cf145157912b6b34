//! Whether the leader of a queue answers, before it is consumed.

use std::sync::Arc;

use crate::broker::client::Connection;
use crate::broker::look::{LONGEST, look, silent_leader};
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
        let looking = async {
            let channel = connection.open_channel().await?;
            let longest = LONGEST.min(queue.answer_timeout / 2);
            let (_, answers) = look(&*channel, name, longest).await?;
            channel.close("done").await.map(|()| answers)
        };
        let what = "asking the leader of a queue";
        queue.shutdown.answer(what, queue.answer_timeout, looking).await
    };
    let looked = queue.keeper.scout().visit(Some(consuming), look).await;
    match looked {
        // The queue may be consumed all the same: some versions require more permissions to look at
        // a queue than to consume it, and what has timed out may only be slow.
        Ok(true) | Err(Error::Permission { .. } | Error::Timeout { .. }) => Ok(()),
        Ok(false) => Err(silent_leader(format!("consuming queue {:?}", name.as_str()), name)),
        Err(error) => Err(error),
    }
}
