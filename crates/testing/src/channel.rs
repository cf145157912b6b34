//! Channels of the client, around a fault of lapin, and how many messages a queue has.

use std::time::{Duration, Instant};

use lapin::options::QueueDeclareOptions;
use lapin::protocol::AMQPErrorKind;
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Connection, ErrorKind};

/// A quorum queue whose leader does not answer within 250 ms is said to have no message and no
/// consumer (3.10, 4.0 and 4.3).
const DOUBTFUL: Duration = Duration::from_millis(200);
/// How long an empty queue is doubted. It is less than the 30 s that a call of the client has.
const DOUBTED_FOR: Duration = Duration::from_secs(20);

/// Opens a channel.
///
/// lapin (4.12) gives the error that closed a channel once more to a later channel with the same
/// number. RabbitMQ itself refuses no new channel with such an error, so the next number is tried.
pub(super) async fn open_channel(connection: &Connection) -> lapin::Result<Channel> {
    loop {
        #[expect(clippy::disallowed_methods, reason = "old errors are recognised here")]
        match connection.create_channel().await {
            // Each try takes a number out of use, so this ends.
            Err(error) if is_soft(&error) => {}
            opened => return opened,
        }
    }
}

/// Whether it is an error for which the broker closes only a channel, not the connection.
fn is_soft(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(answer) if matches!(answer.kind(), AMQPErrorKind::Soft(_)))
}

/// How many messages are ready in a queue and how many consumers it has, and `None` if its leader
/// does not answer.
pub(super) async fn counts(
    channel: &Channel,
    queue: &ShortString,
) -> lapin::Result<Option<(u32, u32)>> {
    let until = Instant::now() + DOUBTED_FOR;
    loop {
        let began = Instant::now();
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let seen = channel.queue_declare(queue.clone(), options, FieldTable::default()).await?;
        let is_empty = seen.message_count() == 0 && seen.consumer_count() == 0;
        if !is_empty || began.elapsed() < DOUBTFUL {
            return Ok(Some((seen.message_count(), seen.consumer_count())));
        }
        // A single look may be held up for longer.
        if began > until {
            return Ok(None);
        }
    }
}
