//! How many messages and consumers queues have, by passive declares.

use std::collections::BTreeMap;

use lapin::Channel;

use crate::broker::answer::answer;
use crate::broker::channel::open_channel;
use crate::broker::connection::Link;
use crate::broker::look::look_at;
use crate::broker::name::short;
use crate::error::Error;

/// What a passive declare tells of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Depth {
    /// It exists, with so many messages that no consumer holds.
    There {
        ready: u64,
        consumers: u64,
    },
    Missing,
    /// Why it cannot be looked at.
    Hidden(String),
}

/// The depths of these queues.
///
/// # Errors
///
/// When the broker is unreachable or the connection is lost.
pub(super) async fn look(link: &Link, queues: &[String]) -> Result<BTreeMap<String, Depth>, Error> {
    let connection = link.get().await?;
    let limit = link.answer_timeout();
    let open = async || answer("opening a channel", limit, open_channel(&connection)).await;
    let open = async || {
        open().await.inspect_err(|error| {
            if error.is_used_up() {
                link.retire(&connection)
            }
        })
    };
    let (mut depths, mut channel) = (BTreeMap::new(), open().await?);
    for queue in queues {
        let depth = match passive(&channel, queue, link).await {
            Ok(depth) => depth,
            Err(Error::Lost { what, problem }) => return Err(Error::Lost { what, problem }),
            Err(error @ Error::Timeout { .. }) => {
                link.abandon(&connection);
                return Err(error);
            }
            Err(error) => {
                // Any refusal closes the channel.
                channel = open().await?;
                match error {
                    Error::Missing { .. } => Depth::Missing,
                    error => Depth::Hidden(error.to_string()),
                }
            }
        };
        depths.insert(queue.clone(), depth);
    }
    let _ = answer("closing a channel", limit, channel.close(200, "done".into())).await;
    Ok(depths)
}

async fn passive(channel: &Channel, queue: &str, link: &Link) -> Result<Depth, Error> {
    let name = short(queue)?;
    let queue = answer(&format!("looking at queue {queue:?}"), link.answer_timeout(), look_at(channel, &name)).await?;
    Ok(Depth::There { ready: queue.message_count().into(), consumers: queue.consumer_count().into() })
}
