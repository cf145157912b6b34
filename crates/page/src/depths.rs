//! How many messages and consumers queues have, by passive declares.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rehop::Error;
use rehop::internals::Link;
use rehop::internals::answer;
use rehop::internals::client::Channel;
use rehop::internals::look_on;

/// How long queues that seem to be empty are doubted, all together: a request has a time limit, and
/// the leaders of many queues may be silent.
const DOUBTED_FOR: Duration = Duration::from_secs(5);

/// And each of them for this long, so that one slow answer is not enough.
const DOUBTED_AT_LEAST: Duration = Duration::from_millis(500);

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
    let open = async || answer("opening a channel", limit, connection.open_channel()).await;
    let open = async || {
        open().await.inspect_err(|error| {
            if error.is_used_up() {
                link.retire(&connection)
            }
        })
    };
    let (mut depths, mut channel) = (BTreeMap::new(), open().await?);
    let doubted_until = Instant::now() + DOUBTED_FOR;
    for queue in queues {
        let longest = doubted_until.saturating_duration_since(Instant::now()).max(DOUBTED_AT_LEAST);
        let depth = match passive(&*channel, queue, link, longest).await {
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
    let _ = answer("closing a channel", limit, channel.close("done")).await;
    Ok(depths)
}

async fn passive(
    channel: &dyn Channel,
    queue: &str,
    link: &Link,
    longest: Duration,
) -> Result<Depth, Error> {
    let queue = look_on(channel, queue, link.answer_timeout(), longest).await?;
    Ok(Depth::There { ready: queue.messages.into(), consumers: queue.consumers.into() })
}
