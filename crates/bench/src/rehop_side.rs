//! The job with rehop and everything that it does: ledgers, time limits, panic isolation, confirms.

use bytes::Bytes;
use rehop::{Consumer, Failure, Message, Raw};

use crate::Result;
use crate::job::{DELIVERY_LIMIT, Job};
use crate::task::Task;
use crate::way::Way;

pub(crate) async fn work(task: Task) -> Result<()> {
    let Task { job, corner, witness, stop, .. } = task;
    let handler = move |message: Message<Bytes>| {
        let (is_last, result) = match job {
            Job::Success => (true, Ok(())),
            Job::Wait(_) if message.hop() > 0 => (true, Ok(())),
            Job::Wait(Way::Spread) => {
                let id = message.message_id().and_then(|id| id.parse().ok()).unwrap_or(0);
                (false, Err(Failure::transient("not yet").after(Way::Spread.wait(id))))
            }
            Job::Wait(_) => (false, Err(Failure::transient("not yet"))),
            Job::Requeue => {
                (message.attempt() == DELIVERY_LIMIT, Err(Failure::requeue("contended")))
            }
        };
        witness.attempt(message.message_id(), is_last);
        std::future::ready(result)
    };
    let mut service = rehop::Service::new(&corner.settings);
    for queue in std::iter::once(&corner.queue).chain(&corner.idle) {
        service = service.with_consumer(Consumer::new(queue, handler.clone()).decode(Raw));
    }
    service
        .with_graceful_shutdown(async {
            // A dropped sender also means stop.
            let _ = stop.await;
        })
        .await?;
    Ok(())
}
