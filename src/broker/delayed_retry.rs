//! Whether the broker knows delayed retries.

use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};

use crate::broker::answer::answer;
use crate::broker::client::Connection;
use crate::broker::name::short;
use crate::error::Error;
use crate::random::random;
use crate::topology::{DELAYED_RETRY_TYPE, Names};

/// Whether the broker knows delayed retries, as RabbitMQ does from 4.3 on. There, and nowhere else,
/// a nack counts towards no delivery limit.
///
/// lapin does not tell the broker's version. So a classic queue is declared with an argument of
/// delayed retries: 4.3 accepts it for quorum queues alone, and refuses; 3.10 and 4.0 accept any
/// argument that they do not know. The queue belongs to this connection and is deleted at once.
///
/// # Errors
///
/// When the user may not configure queues of the namespace, the broker does not answer, or the
/// connection is lost.
pub async fn knows_delayed_retry(
    connection: &dyn Connection,
    names: &Names,
    limit: Duration,
) -> Result<bool, Error> {
    let channel = answer("opening a channel", limit, connection.open_channel()).await?;
    let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    let mut arguments = FieldTable::default();
    arguments.insert(DELAYED_RETRY_TYPE.into(), AMQPValue::LongString("disabled".into()));
    let name = short(&names.probe(&format!("{:012x}", random::<u64>() >> 16)))?;
    let declaring = channel.declare_queue(name.clone(), options, arguments);
    match answer("asking the broker whether it knows delayed retries", limit, declaring).await {
        Ok(_) => {
            answer("deleting a queue", limit, channel.delete_queue(name)).await?;
            let _ = answer("closing a channel", limit, channel.close("done")).await;
            Ok(false)
        }
        // A virtual host that may have no more queues refuses, too.
        Err(Error::Refused { problem, .. }) if problem.to_string().contains(DELAYED_RETRY_TYPE) => {
            Ok(true)
        }
        Err(error) => Err(error),
    }
}
