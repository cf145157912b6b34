//! Finds out what kind of queue an existing queue is.

use std::time::Duration;

use lapin::options::{BasicConsumeOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};

use crate::broker::answer::answer;
use crate::broker::client::Connection;
use crate::broker::name::short;
use crate::error::{Error, Problem, QueueKind};
use crate::settings::QueueType;

/// Fails if rehop cannot consume this queue, which others have declared, as the settings say. The
/// settings may not name its type.
///
/// # Errors
///
/// When the queue is of a kind that cannot be consumed, does not exist, the broker does not answer,
/// or the connection is lost.
pub(crate) async fn check_kind(
    connection: &dyn Connection,
    queue: &str,
    expected: Option<QueueType>,
    limit: Duration,
) -> Result<(), Error> {
    let unsuitable =
        |kind, problem| Err(Error::UnsuitableQueue { queue: queue.to_owned(), kind, problem });
    match (kind_of(connection, queue, limit).await?, expected) {
        (Some((QueueKind::Classic, problem)), Some(QueueType::Quorum)) => {
            return unsuitable(QueueKind::Classic, problem);
        }
        (Some((kind @ (QueueKind::Stream | QueueKind::Other(_)), problem)), _) => {
            return unsuitable(kind, problem);
        }
        // Only a classic queue is deleted with its last consumer, or with its broker.
        (Some((QueueKind::Quorum, _)), Some(QueueType::Quorum)) => return Ok(()),
        (Some((QueueKind::Quorum, _)), None | Some(QueueType::Classic)) => {
            tracing::info!(
                queue,
                "this is a quorum queue: with queue_type = \"quorum\", its redelivered messages get immediate attempts"
            );
            return Ok(());
        }
        (None | Some(_), _) => {}
    }
    match lifetime_of(connection, queue, limit).await? {
        Lifetime::WithItsConsumers(problem) => return unsuitable(QueueKind::AutoDelete, problem),
        Lifetime::WithItsBroker => {
            tracing::warn!(
                queue,
                "the queue is not durable: a restart of the broker deletes it, with its messages"
            );
        }
        Lifetime::Unlimited => {}
    }
    Ok(())
}

/// The type of a queue, and what the broker said; `None` if it does not tell.
///
/// The broker names the type when it refuses an argument of a consumer. Streams refuse the first
/// one, and all other types the second (3.10, 4.0 and 4.3). So nothing is consumed, and the
/// question needs no other permission than consuming does.
async fn kind_of(
    connection: &dyn Connection,
    queue: &str,
    limit: Duration,
) -> Result<Option<(QueueKind, Problem)>, Error> {
    let mut arguments = FieldTable::default();
    arguments.insert("x-priority".into(), AMQPValue::LongLongInt(0));
    arguments.insert("x-stream-offset".into(), AMQPValue::LongString("next".into()));
    let channel = answer("opening a channel", limit, connection.open_channel()).await?;
    answer("setting the prefetch", limit, channel.set_prefetch(1)).await?;
    let consuming = channel.consume(short(queue)?, BasicConsumeOptions::default(), arguments);
    match answer(&format!("checking queue {queue:?}"), limit, consuming).await {
        Err(error @ Error::UnsuitableQueue { kind: QueueKind::Exclusive, .. }) => Err(error),
        Err(Error::UnsuitableQueue { kind, problem, .. }) => Ok(Some((kind, problem))),
        // Looking at the queue, and consuming it, say what is missing.
        Err(Error::Permission { .. } | Error::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
        Ok(subscription) => {
            drop(subscription);
            let _ = answer("closing a channel", limit, channel.close("done")).await;
            Ok(None)
        }
    }
}

/// How long a queue exists.
enum Lifetime {
    /// Until somebody deletes it, as far as the broker tells.
    Unlimited,
    /// Until its last consumer ends. The broker said so.
    WithItsConsumers(Problem),
    /// Until the broker stops.
    WithItsBroker,
}

/// No queue can have this type, so declaring one creates none, whether it exists or not.
const NO_TYPE: &str = "rehop-asks";

/// How long a queue exists, as far as the user may ask: this takes the configure permission.
///
/// The broker compares these properties before any argument (3.10, 4.0 and 4.3).
async fn lifetime_of(
    connection: &dyn Connection,
    queue: &str,
    limit: Duration,
) -> Result<Lifetime, Error> {
    for durable in [true, false] {
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(NO_TYPE.into()));
        let options = QueueDeclareOptions { durable, ..QueueDeclareOptions::default() };
        let channel = answer("opening a channel", limit, connection.open_channel()).await?;
        let declaring = channel.declare_queue(short(queue)?, options, arguments);
        let what = format!("asking how long queue {queue:?} exists");
        match answer(&what, limit, declaring).await {
            Err(Error::Mismatch { argument, problem, .. }) => match argument.as_str() {
                "auto_delete" => return Ok(Lifetime::WithItsConsumers(problem)),
                "durable" if durable => {}
                _ if durable => return Ok(Lifetime::Unlimited),
                _ => return Ok(Lifetime::WithItsBroker),
            },
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => return Ok(Lifetime::Unlimited),
            Ok(_) => {
                let _ = answer("closing a channel", limit, channel.close("done")).await;
                return Ok(Lifetime::Unlimited);
            }
        }
    }
    Ok(Lifetime::WithItsBroker)
}
