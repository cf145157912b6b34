//! How many messages and consumers a queue has.

use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::types::{FieldTable, ShortString};

use crate::broker::answer::answer;
use crate::broker::client::{Channel, Connection, QueueCounts};
use crate::broker::name::short;
use crate::clock;
use crate::error::Error;

/// If the leader of a queue did not answer in time, the broker's answer about the queue takes 250
/// ms longer than one that needs no queue. This is well below that, because a doubt that is wrong
/// only asks again.
const DOUBTFUL: Duration = Duration::from_millis(100);

/// How long an empty queue is doubted.
pub(crate) const LONGEST: Duration = Duration::from_secs(5);

/// How many messages are ready in a queue, and how many consumers it has. `limit` is the time limit
/// for each of the broker's answers.
///
/// A quorum queue whose leader does not answer within 250 ms is said to have no message and no
/// consumer (measured on 3.10, 4.0 and 4.3). So after such an answer that took this long the queue
/// is asked again, for up to 5 s.
///
/// # Errors
///
/// When the queue does not exist, may not be looked at, its leader does not answer, or the
/// connection is lost.
pub async fn look_at(
    connection: &dyn Connection,
    queue: &str,
    limit: Duration,
) -> Result<QueueCounts, Error> {
    // A refusal closes the channel, so the look has one of its own.
    let channel = answer("opening a channel", limit, connection.open_channel()).await?;
    let seen = look_on(&*channel, queue, limit, LONGEST).await?;
    let _ = answer("closing a channel", limit, channel.close("done")).await;
    Ok(seen)
}

/// As [`look_at`], on a channel that does not consume and may have a prefetch of 1 afterwards. A
/// queue that seems to be empty is doubted for `longest`, and for 5 s at most.
///
/// # Errors
///
/// As [`look_at`]. A refusal closes the channel.
pub async fn look_on(
    channel: &dyn Channel,
    queue: &str,
    limit: Duration,
    longest: Duration,
) -> Result<QueueCounts, Error> {
    let (name, what) = (short(queue)?, format!("looking at queue {queue:?}"));
    let longest = longest.min(LONGEST).min(limit / 2);
    match (Look { channel, what: &what, limit }).counts(&name, longest).await? {
        (seen, true) => Ok(seen),
        (_, false) => Err(silent_leader(what, &name)),
    }
}

/// The error when the leader of a queue does not answer. `what` reads like "looking at queue
/// orders".
fn silent_leader(what: impl Into<String>, queue: &ShortString) -> Error {
    let command = format!("rabbitmq-queues quorum_status {:?}", queue.as_str());
    let problem = format!("its leader does not answer; `{command}` shows its nodes").into();
    Error::Unavailable { what: what.into(), problem }
}

/// A look on a channel. Each answer has a time limit of its own: a look in doubt takes several, and
/// must not pass for a slow one.
struct Look<'a> {
    channel: &'a dyn Channel,
    what: &'a str,
    limit: Duration,
}

impl Look<'_> {
    /// What the broker says of the queue, and whether this comes from the queue's leader. A queue
    /// that seems to be empty is doubted for `longest`.
    async fn counts(
        &self,
        queue: &ShortString,
        longest: Duration,
    ) -> Result<(QueueCounts, bool), Error> {
        let until = clock::now() + longest;
        loop {
            let began = clock::now();
            let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            let declaring =
                self.channel.declare_queue(queue.clone(), options, FieldTable::default());
            let seen = answer(self.what, self.limit, declaring).await?;
            let took = clock::elapsed(began);
            let is_empty = seen.messages == 0 && seen.consumers == 0;
            // A slow network is no reason to doubt.
            if !is_empty || took < DOUBTFUL || took < DOUBTFUL + self.quickest_answer().await? {
                return Ok((seen, true));
            }
            // A single answer may be held up for longer.
            if began > until {
                return Ok((seen, false));
            }
        }
    }

    /// How long the broker takes for an answer that needs no queue. One that was held up says
    /// little, so the quickest of a few counts.
    async fn quickest_answer(&self) -> Result<Duration, Error> {
        let mut quickest = Duration::MAX;
        for _ in 0..5 {
            let began = clock::now();
            answer(self.what, self.limit, self.channel.set_prefetch(1)).await?;
            quickest = quickest.min(clock::elapsed(began));
        }
        Ok(quickest)
    }
}
