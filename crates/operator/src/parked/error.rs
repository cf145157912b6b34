//! Why something could not be done with messages at rest.

use std::time::Duration;

use rehop::Error;
use rehop::SettingsError;
use rehop::internals::NotTaken;

/// `unwrap()`, and a `main` that returns an error, print it with `Debug`. What to do next is in its
/// text.
impl std::fmt::Debug for ParkedError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, formatter)
    }
}

/// Why something could not be done with messages at rest. None of these loses a message: what was
/// taken and not moved is back in its queue.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ParkedError {
    /// The settings, the connection or a permission.
    #[error(transparent)]
    Broker(#[from] Error),
    /// Another operator works on this queue.
    #[error("somebody else is working on queue {queue:?}; try again when they have finished")]
    Busy {
        /// The queue.
        queue: String,
    },
    /// Looking could delete messages.
    #[error(
        "not looking at queue {queue:?}: a message in it was given back {returns} times, and looking may count as one more; past \
         the limit, which is x-delivery-limit, or 20 on 4.x if nothing sets it, RabbitMQ takes the message out of the queue, and before 4.3 \
         this look counted. Run `rehop doctor`, or move the messages to a queue that rehop declares"
    )]
    NearLimit {
        /// The queue.
        queue: String,
        /// How often the broker says that the message was given back.
        returns: u32,
    },
    /// Looking would soon delete messages, so none was taken.
    #[error(
        "not looking at queue {queue:?}: its x-delivery-limit is {limit}, and before RabbitMQ 4.3 each look counts towards it (3.10 takes a \
         message out of the queue at the first return if the limit is negative). Move the messages to a queue that rehop declares"
    )]
    LowLimit {
        /// The queue.
        queue: String,
        /// Its limit.
        limit: i64,
    },
    /// The operation was told to stop while it looked at messages.
    #[error("it was told to stop; every message that it looked at is back in its place")]
    Stopped,
    /// Not all messages could be looked at that were in the queue at the start. What moves messages
    /// has moved those that it found.
    #[error(
        "only {looked_at} of {wanted} messages in queue {queue:?} could be looked at: it took longer than half of broker.consumer_timeout, \
         the queue's leader did not answer, others took some, or some expired. Run it again; if it took too long, from a host closer to the broker"
    )]
    Incomplete {
        /// The queue.
        queue: String,
        /// How many were looked at.
        looked_at: u64,
        /// How many there were to look at.
        wanted: u64,
    },
    /// No message has this id.
    #[error("no message of chain {chain:?} among the {looked_at} that were looked at")]
    NoSuchMessage {
        /// The id, or a prefix of it.
        chain: String,
        /// How many were looked at.
        looked_at: u64,
    },
    /// The ids of several chains have this prefix, and none is exactly this.
    #[error(
        "several chains begin with {prefix:?}, such as {}; give a longer prefix",
        named(chains)
    )]
    SeveralChains {
        /// The prefix.
        prefix: String,
        /// A few of the chains.
        chains: Vec<String>,
    },
    /// Several messages have this id, and only one may be edited.
    #[error(
        "{count} messages are of chain {chain:?}, at positions {}; choose one with --position",
        listed(positions, *count)
    )]
    NotOne {
        /// The id.
        chain: String,
        /// How many there are.
        count: u64,
        /// Where the first of them are.
        positions: Vec<u64>,
    },
    /// The message at this position is of another chain, or there is none.
    #[error(
        "the message at position {position} is not of chain {chain:?}; positions change when messages leave the queue: look again with \
         `rehop parked show`"
    )]
    NotAt {
        /// The id.
        chain: String,
        /// The position, from 1.
        position: u64,
    },
    /// Nothing says which work queue the message belongs to.
    #[error("the message does not say which queue it belongs to; name it with --to")]
    NoDestination,
    /// A copy's headers do not fit into a frame.
    #[error("message {chain:?} cannot be copied: {problem}")]
    TooLarge {
        /// Its chain.
        chain: String,
        /// What is too large.
        problem: String,
    },
    /// A queue refused a copy, as a full one does. The original stays where it is.
    #[error(
        "the broker refused a message to {to}: a queue is full, or something that it needs is missing"
    )]
    Refused {
        /// Where it was sent.
        to: String,
    },
    /// The broker did not confirm an edited message, after its original was copied to the discarded
    /// queue.
    #[error(
        "the edited message is not confirmed: {problem}. Its original is still in its queue, and the discarded queue has a copy of it, of \
         run {run:?}. If the broker did not refuse it, see whether it was handled before you edit it again"
    )]
    EditUnconfirmed {
        /// Names the edit.
        run: String,
        /// What went wrong.
        problem: String,
    },
    /// The parked queue, or a message in it, belongs to another namespace than the settings'. That
    /// message, and those behind it, were not moved.
    #[error(
        "queue {queue:?} belongs to namespace {other:?}, or has a message that it parked, and the settings say {namespace:?}, from where it \
         would not find its way back; it was not moved: use the service's namespace, with --namespace {other} or in the settings"
    )]
    OtherNamespace {
        /// The queue.
        queue: String,
        /// The namespace that the queue's dead-letter exchange, or the message's exchange, names.
        other: String,
        /// The namespace of the settings.
        namespace: String,
    },
    /// The namespace lacks what brings moved messages back. Nothing was moved.
    #[error(
        "{missing} does not exist, and without it moved messages would not find their way back; nothing was moved. The settings say \
         namespace {namespace:?}: if the service uses another one, name that with --namespace or in the settings; otherwise declare this one \
         again with `rehop topology declare`"
    )]
    NoSuchNamespace {
        /// The namespace of the settings.
        namespace: String,
        /// The exchange or queue.
        missing: String,
    },
    /// The broker confirmed none of the imported messages for too long.
    #[error(
        "the broker confirmed no message for queue {queue:?} in {}: {}. Import the messages again when this is over: only what is missing by \
         then is imported", humantime::format_duration(*within), unconfirmed_because(*is_blocked)
    )]
    Unconfirmed {
        /// The queue.
        queue: String,
        /// How long it was waited for.
        within: Duration,
        /// Whether the broker has said that it blocks the connection, as during an alarm.
        is_blocked: bool,
    },
    /// The broker closed the channel because of one of several copies.
    #[error(
        "the broker does not accept one of the copies that were under way, and {unconfirmed} others may exist twice: {problem}. With one copy \
         in flight at a time, such a message stays where it is and the others are moved: run it again with --in-flight 1"
    )]
    CopyNotAccepted {
        /// What the broker said.
        problem: String,
        /// How many copies were under way beside it.
        unconfirmed: u64,
    },
    /// Messages reached the stray queue during an import.
    #[error(
        "messages reached queue {stray:?} during the import: queue {queue:?} may lack a binding, which `rehop topology declare` adds. If they \
         are the imported ones (`rehop parked list --stray`), discard them there, then import again: what queue {queue:?} has is left out"
    )]
    Strayed {
        /// The queue.
        queue: String,
        /// The stray queue.
        stray: String,
    },
    /// Only discarded messages can be restored.
    #[error("messages can be restored only out of the discarded queue")]
    NotDiscarded,
    /// What is discarded already cannot be discarded again.
    #[error("messages of the discarded queue are discarded already")]
    AlreadyDiscarded,
    /// The message has changed since it was read.
    #[error("message {chain:?} is no longer what it was; look at it again")]
    Changed {
        /// Its chain.
        chain: String,
    },
    /// A line of an import cannot be imported; `problem` says why.
    #[error("line {line} cannot be imported: {problem}")]
    BadLine {
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        problem: String,
    },
}

/// Ids come from outside, so they are quoted and escaped.
fn named(chains: &[String]) -> String {
    chains.iter().map(|chain| format!("{chain:?}")).collect::<Vec<_>>().join(" and ")
}

fn listed(positions: &[u64], count: u64) -> String {
    let listed = positions.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    if (positions.len() as u64) < count { format!("{listed}, …") } else { listed }
}

/// The likely reason why nothing is confirmed.
pub(crate) fn unconfirmed_because(is_blocked: bool) -> &'static str {
    if is_blocked {
        "it blocks publishers because of a memory or disk alarm"
    } else {
        "there may be a memory or disk alarm, or a queue without a majority of its members"
    }
}

impl ParkedError {
    /// Why a copy does not count as kept. Unless it was refused, the broker may keep it all the
    /// same. `to` reads like "exchange x", and `what` like "publishing to exchange x".
    pub(crate) fn not_taken(why: NotTaken, to: String, what: String) -> Self {
        match why {
            NotTaken::Nacked | NotTaken::Returned => Self::Refused { to },
            NotTaken::NotSent => {
                let problem = "its channel ended before it was sent".to_owned().into();
                Error::Lost { what, problem }.into()
            }
            NotTaken::LaneClosed(cause)
            | NotTaken::Disconnected(cause)
            | NotTaken::NoLane(cause) => cause.of_operation(what).into(),
        }
    }

    /// What the log says of it: all of it, but for what a line of an import may quote of its
    /// message.
    pub(crate) fn in_log(&self) -> String {
        match self {
            Self::BadLine { line, .. } => {
                format!(
                    "line {line} cannot be imported; the reason is left out of the log, because it may quote the message"
                )
            }
            other => other.to_string(),
        }
    }
}

impl From<SettingsError> for ParkedError {
    fn from(error: SettingsError) -> Self {
        Self::Broker(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_that_nothing_confirms_says_why_and_that_it_can_be_repeated() {
        for (is_blocked, why) in
            [(true, "because of a memory or disk alarm"), (false, "without a majority")]
        {
            let within = Duration::from_secs(900);
            let text =
                ParkedError::Unconfirmed { queue: "orders.parked".to_owned(), within, is_blocked }
                    .to_string();
            for part in ["orders.parked", "15m", why, "only what is missing"] {
                assert!(text.contains(part), "{part:?} is missing: {text}");
            }
        }
    }

    #[test]
    fn the_first_positions_of_several_messages_are_named() {
        let not_one = |positions: &[u64]| {
            let (chain, positions) = ("a".to_owned(), positions.to_vec());
            ParkedError::NotOne { chain, count: 2, positions }.to_string()
        };
        assert!(not_one(&[1, 4]).contains("at positions 1, 4; choose one with --position"));
        assert!(not_one(&[1]).contains("at positions 1, …; "));
    }

    #[test]
    fn the_log_says_which_line_is_bad_and_quotes_nothing_of_it() {
        let bad = ParkedError::BadLine {
            line: 7,
            problem: "invalid type: string \"hunter2\"".to_owned(),
        };
        let logged = bad.in_log();
        assert!(
            logged.starts_with("line 7 cannot be imported") && !logged.contains("hunter2"),
            "{logged}"
        );
        let refused = ParkedError::Refused { to: "queue orders.parked".to_owned() };
        assert_eq!(refused.in_log(), refused.to_string());
    }
}
