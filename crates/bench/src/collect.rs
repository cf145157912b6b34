//! Takes all messages out of a run's queues, to see which are there.

use std::time::Duration;

use futures_util::future::try_join_all;
use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use tokio::time::{Instant, timeout};

use crate::Result;
use crate::audit::Audit;
use crate::corner::Corner;
use crate::job::{Fate, Job};
use crate::way::Way;
use crate::witness::Seen;

/// A queue that delivers nothing for this long is empty.
const SILENCE: Duration = Duration::from_millis(300);
/// A message that is not found may be on its way between two queues. It is lost if it has not
/// appeared after this time.
const UNDER_WAY: Duration = Duration::from_secs(10);

/// What happened to each message of a run. Empties its queues.
pub(crate) async fn audit(url: &str, job: Job, corner: &Corner, seen: &[Seen]) -> Result<Audit> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    let mut found = Vec::new();
    let deadline =
        Instant::now() + job.way().map(Way::longest_wait).unwrap_or_default() + UNDER_WAY;
    let audit = loop {
        let queues = corner.queues.iter().map(|(queue, role)| async {
            let ids = take_all(&connection, queue, seen.len()).await?;
            Ok::<_, crate::lab::Failed>(ids.into_iter().map(|id| (Fate::In(*role), id)))
        });
        found.extend(try_join_all(queues).await?.into_iter().flatten());
        let audit = Audit::of(job, seen, &found);
        if audit.lost.is_empty() || Instant::now() > deadline {
            break audit;
        }
    };
    connection.close(200, "done".into()).await?;
    Ok(audit)
}

pub(crate) async fn take_all(
    connection: &Connection,
    queue: &str,
    messages: usize,
) -> Result<Vec<usize>> {
    let channel = connection.create_channel().await?;
    let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    let mut consumer =
        channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?;
    let mut ids = Vec::new();
    while let Ok(Some(delivery)) = timeout(SILENCE, consumer.next()).await {
        ids.push(id(&delivery?, messages)?);
    }
    channel.basic_cancel(consumer.tag(), BasicCancelOptions::default()).await?;
    while let Some(Some(delivery)) = consumer.next().now_or_never() {
        ids.push(id(&delivery?, messages)?);
    }
    channel.close(200, "done".into()).await?;
    Ok(ids)
}

fn id(delivery: &Delivery, messages: usize) -> Result<usize> {
    let text = delivery.properties.message_id().as_ref().map_or("", |id| id.as_str());
    let id = text.parse().ok().filter(|id| *id < messages);
    id.ok_or_else(|| format!("a message that was never sent is in a queue: id {text:?}").into())
}
