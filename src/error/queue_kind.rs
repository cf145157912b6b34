//! Which kinds of existing queues a service cannot consume, and what the broker says of them.

use std::fmt;

/// A kind of an existing queue that a service cannot consume as its settings say.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueKind {
    /// A classic queue where the settings say `quorum`.
    Classic,
    /// A quorum queue where something was asked that it does not know.
    Quorum,
    /// A stream: it keeps each message and takes none back, so nothing could be retried.
    Stream,
    /// A queue of this type, which a plugin brings.
    Other(String),
    /// It is deleted with its messages when its last consumer ends, and each lost connection ends
    /// consumers.
    AutoDelete,
    /// It belongs to the connection that declared it.
    Exclusive,
}

impl fmt::Display for QueueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Classic => {
                "is a classic queue, and queue_type says quorum: set queue_type = \"classic\", or move to a quorum queue as \
                 \"A classic queue\" in the migration page says"
            }
            Self::Quorum => "is a quorum queue, which does not know what was asked of it",
            Self::Stream => {
                "is a stream, which takes no message back, so no message could be retried: bind a quorum queue to the same \
                 exchange, and consume that"
            }
            Self::Other(kind) => {
                return write!(
                    f,
                    "is of type {kind:?}, which rehop cannot consume: it needs a quorum or a classic queue"
                );
            }
            Self::AutoDelete => {
                "is an auto-delete queue: the broker deletes it, with its messages, when its last consumer ends, for instance \
                 with a lost connection; declare it without auto-delete"
            }
            Self::Exclusive => {
                "is an exclusive queue: it belongs to the connection that declared it, and ends with it; declare it without \
                 exclusive"
            }
        })
    }
}

/// The arguments of a consumer by which the broker tells queues of different types. Some arguments
/// of queues are refused in the same words.
const OF_CONSUMERS: [&str; 3] = ["x-priority", "x-stream-offset", "x-consumer-timeout"];

/// Reads `PRECONDITION_FAILED - invalid arg 'x-priority' for queue 'q' in vhost '/' of queue type
/// rabbit_stream_queue`, alike on 3.10, 4.0 and 4.3: the queue, and its type.
pub(super) fn of_queue_type(text: &str) -> Option<(String, QueueKind)> {
    let (argument, rest) = text.split_once("invalid arg '")?.1.split_once("' for queue '")?;
    if !OF_CONSUMERS.contains(&argument) {
        return None;
    }
    let (queue, rest) = rest.split_once("' in vhost")?;
    let module = rest.split_once(" of queue type rabbit_")?.1.trim_end();
    let kind = match module.strip_suffix("_queue").unwrap_or(module) {
        "classic" => QueueKind::Classic,
        "quorum" => QueueKind::Quorum,
        "stream" => QueueKind::Stream,
        other => QueueKind::Other(other.to_owned()),
    };
    Some((queue.to_owned(), kind))
}

/// The queue that belongs to another connection, if this says so, as 405 does on 3.10, 4.0 and 4.3.
/// A queue with a single active consumer that gives no single message has the same number.
pub(super) fn of_exclusive(text: &str) -> Option<String> {
    let rest = text.split_once("cannot obtain exclusive access to locked queue '")?.1;
    Some(rest.split_once("' in vhost")?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{QueueKind, of_exclusive, of_queue_type};

    #[test]
    fn the_type_of_a_queue_is_read_from_what_the_broker_says_of_an_argument() {
        let check = |text: &str, expected: Option<(&str, QueueKind)>| {
            let expected = expected.map(|(queue, kind)| (queue.to_owned(), kind));
            assert_eq!(of_queue_type(text), expected, "{text}");
        };
        let of = |queue: &str, module: &str| {
            format!(
                "PRECONDITION_FAILED - invalid arg 'x-priority' for queue '{queue}' in vhost '/' of queue type {module}"
            )
        };
        check(&of("a b", "rabbit_stream_queue"), Some(("a b", QueueKind::Stream)));
        check(&of("q", "rabbit_classic_queue"), Some(("q", QueueKind::Classic)));
        check(&of("q", "rabbit_quorum_queue"), Some(("q", QueueKind::Quorum)));
        let other = QueueKind::Other("mqtt_qos0".to_owned());
        check(&of("q", "rabbit_mqtt_qos0_queue"), Some(("q", other)));
        for text in [
            "PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue 'q' in vhost '/': {value_negative,-1}",
            "PRECONDITION_FAILED - invalid arg 'x-delayed-retry-type' for queue 'q' in vhost '/' of queue type rabbit_classic_queue",
            "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received 'classic' but current is 'quorum'",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn a_queue_of_another_connection_is_told_from_one_with_a_single_active_consumer() {
        let exclusive = "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be …";
        assert_eq!(of_exclusive(exclusive).as_deref(), Some("q"));
        let single = "RESOURCE_LOCKED - cannot obtain access to locked queue 'q' in vhost '/'. basic.get operations …";
        assert_eq!(of_exclusive(single), None);
    }

    #[test]
    fn each_kind_is_named_and_says_what_to_do() {
        for (kind, words) in [
            (QueueKind::Classic, ["classic queue", "queue_type = \"classic\""]),
            (QueueKind::Stream, ["is a stream", "bind a quorum queue"]),
            (QueueKind::Other("mqtt_qos0".to_owned()), ["\"mqtt_qos0\"", "needs a quorum"]),
            (QueueKind::AutoDelete, ["auto-delete queue", "declare it without"]),
            (QueueKind::Exclusive, ["exclusive queue", "declare it without"]),
        ] {
            let text = kind.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{kind:?}: {text}");
        }
        assert!(include_str!("../docs/migration.md").contains("\n## A classic queue\n"));
    }
}
