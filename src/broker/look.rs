//! How many messages and consumers a queue has.

use std::time::{Duration, Instant};

use lapin::options::{BasicQosOptions, QueueDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Queue};

/// How much longer than an answer about nothing an answer about a queue takes at least if the queue's leader did not answer in time.
const DOUBTFUL: Duration = Duration::from_millis(200);

/// How many messages are ready in a queue, and how many consumers it has. The channel must not be one that consumes.
///
/// A quorum queue whose leader does not answer within 250 ms is said to have no message and no consumer (measured on 3.10, 4.0 and 4.3). So
/// such an answer is believed only if it came quickly, and the queue is asked again until then. The caller limits the time.
///
/// # Errors
///
/// When the queue does not exist, may not be looked at, or the channel is lost.
pub(crate) async fn look_at(channel: &Channel, queue: &ShortString) -> lapin::Result<Queue> {
    loop {
        let began = Instant::now();
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let seen = channel.queue_declare(queue.clone(), options, FieldTable::default()).await?;
        let took = began.elapsed();
        if seen.message_count() > 0 || seen.consumer_count() > 0 || took < DOUBTFUL {
            return Ok(seen);
        }
        // A slow network or a busy machine is no reason to doubt.
        let began = Instant::now();
        channel.basic_qos(1, BasicQosOptions::default()).await?;
        if took.saturating_sub(began.elapsed()) < DOUBTFUL {
            return Ok(seen);
        }
    }
}
