//! The arguments of queues: which are valid, and which have to be the same when a queue is declared
//! again.

use std::sync::LazyLock;

use lapin::types::{AMQPValue, FieldTable};

use crate::error::{Exception, queue_in_vhost};
use crate::headers::{integer, string};
use crate::protocol::{ConnectionId, Version};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueType {
    Quorum,
    Classic,
}

/// What a queue was declared with. It is compared when the queue is declared again.
#[derive(Debug, Clone)]
pub(crate) struct Declaration {
    pub(crate) kind: QueueType,
    pub(crate) is_durable: bool,
    pub(crate) is_auto_delete: bool,
    /// The connection to which the queue is exclusive.
    pub(crate) owner: Option<ConnectionId>,
    pub(crate) arguments: FieldTable,
}

/// Ten years, the most that any time may be (all versions).
const MAX_MILLISECONDS: i64 = 315_360_000_000;

/// What a quorum queue knows, in the order in which it is compared.
const QUORUM: &str = "x-dead-letter-exchange x-dead-letter-routing-key x-dead-letter-strategy x-expires x-max-length \
    x-max-length-bytes x-max-in-memory-length x-max-in-memory-bytes x-overflow x-single-active-consumer x-queue-type \
    x-quorum-initial-group-size x-delivery-limit x-message-ttl x-queue-leader-locator";
/// What it knows besides on 4.3.
const QUORUM_4_3: &str = "x-consumer-disconnected-timeout x-consumer-timeout x-delayed-retry-type x-delayed-retry-min \
    x-delayed-retry-max";
const CLASSIC: &str = "x-expires x-message-ttl x-dead-letter-exchange x-dead-letter-routing-key x-max-length \
    x-max-length-bytes x-max-priority x-overflow x-queue-mode x-queue-version x-single-active-consumer x-queue-type \
    x-queue-leader-locator";

/// Split once, because queues are declared again and again.
static KNOWN: LazyLock<[Vec<&str>; 3]> = LazyLock::new(|| {
    let split =
        |keys: &[&'static str]| keys.iter().flat_map(|keys| keys.split_whitespace()).collect();
    [split(&[QUORUM]), split(&[QUORUM, QUORUM_4_3]), split(&[CLASSIC])]
});

fn known(version: Version, kind: QueueType) -> &'static [&'static str] {
    match (kind, version) {
        (QueueType::Quorum, Version::V4_3) => &KNOWN[1],
        (QueueType::Quorum, _) => &KNOWN[0],
        (QueueType::Classic, _) => &KNOWN[2],
    }
}

/// The queue type that the arguments ask for.
pub(crate) fn kind_of(queue: &str, arguments: &FieldTable) -> Result<QueueType, Exception> {
    match string(arguments, "x-queue-type") {
        Some("quorum") => Ok(QueueType::Quorum),
        Some("classic") => Ok(QueueType::Classic),
        None if !arguments.contains_key("x-queue-type") => Ok(QueueType::Classic),
        Some(other) => {
            Err(invalid("x-queue-type", queue, &format!("\"unsupported queue type '{other}'\"")))
        }
        None => Err(invalid("x-queue-type", queue, "{error,queue_type_not_found}")),
    }
}

/// Checks what a new queue is declared with.
pub(crate) fn check(
    version: Version,
    queue: &str,
    declaration: &Declaration,
) -> Result<(), Exception> {
    let arguments = &declaration.arguments;
    for (key, value) in arguments {
        if let Some(problem) = problem_of(arguments, key.as_str(), value) {
            return Err(invalid(key.as_str(), queue, &problem));
        }
    }
    let other = match declaration.kind {
        QueueType::Quorum => QueueType::Classic,
        QueueType::Classic => QueueType::Quorum,
    };
    for (key, _) in arguments {
        let is_known = |kind| known(version, kind).contains(&key.as_str());
        if is_known(other) && !is_known(declaration.kind) {
            return Err(of_another_type(key.as_str(), queue, declaration.kind));
        }
    }
    let queue = queue_in_vhost(queue);
    let impossible = [
        (declaration.is_auto_delete, "auto-delete"),
        (declaration.owner.is_some(), "exclusive-owner"),
        (!declaration.is_durable, "non-durable"),
    ];
    match impossible.iter().find(|(is_set, _)| *is_set && declaration.kind == QueueType::Quorum) {
        Some((_, name)) => {
            Err(Exception::precondition_failed(&format!("invalid property '{name}' for {queue}")))
        }
        None => Ok(()),
    }
}

/// Checks the arguments of a consumer: those that only queues of other types know are refused, and
/// those that none knows are ignored. Classic queues alone end a subscription on a failover.
pub(crate) fn check_consumer(
    version: Version,
    queue: &str,
    kind: QueueType,
    arguments: &FieldTable,
) -> Result<(), Exception> {
    for (key, _) in arguments {
        let is_refused = match key.as_str() {
            "x-stream-offset" => true,
            "x-consumer-timeout" => kind == QueueType::Classic && version == Version::V4_3,
            "x-cancel-on-ha-failover" => kind == QueueType::Quorum,
            _ => false,
        };
        if is_refused {
            return Err(of_another_type(key.as_str(), queue, kind));
        }
    }
    Ok(())
}

fn of_another_type(key: &str, queue: &str, kind: QueueType) -> Exception {
    let module = match kind {
        QueueType::Quorum => "rabbit_quorum_queue",
        QueueType::Classic => "rabbit_classic_queue",
    };
    let queue = queue_in_vhost(queue);
    Exception::precondition_failed(&format!(
        "invalid arg '{key}' for {queue} of queue type {module}"
    ))
}

/// What is wrong with an argument, in RabbitMQ's words.
fn problem_of(arguments: &FieldTable, key: &str, value: &AMQPValue) -> Option<String> {
    let unacceptable = || Some(format!("{{unacceptable_type,{}}}", type_name(value)));
    match (key, integer(value), string(arguments, key)) {
        ("x-expires", Some(0), _) => Some("{value_zero,0}".to_owned()),
        ("x-message-ttl" | "x-expires", Some(value), _) => out_of_range(value),
        ("x-max-length" | "x-max-length-bytes" | "x-consumer-timeout", Some(value), _) => {
            (value < 0).then(|| format!("{{value_negative,{value}}}"))
        }
        ("x-message-ttl" | "x-expires" | "x-max-length" | "x-max-length-bytes", None, _) => {
            unacceptable()
        }
        ("x-dead-letter-exchange" | "x-dead-letter-routing-key", _, None) => unacceptable(),
        ("x-dead-letter-routing-key", _, _)
            if !arguments.contains_key("x-dead-letter-exchange") =>
        {
            Some("routing_key_but_no_dlx_defined".to_owned())
        }
        ("x-dead-letter-strategy", _, Some("at-most-once" | "at-least-once")) => None,
        ("x-dead-letter-strategy", _, _) => Some("invalid_dlx_strategy".to_owned()),
        ("x-overflow", _, Some("drop-head" | "reject-publish" | "reject-publish-dlx")) => None,
        ("x-overflow", _, _) => Some("invalid_overflow".to_owned()),
        ("x-single-active-consumer", _, _) if !matches!(value, AMQPValue::Boolean(_)) => {
            unacceptable()
        }
        _ => None,
    }
}

/// What is wrong with a time in milliseconds, in RabbitMQ's words.
pub(crate) fn out_of_range(milliseconds: i64) -> Option<String> {
    match milliseconds {
        ..0 => Some(format!("{{value_negative,{milliseconds}}}")),
        0..=MAX_MILLISECONDS => None,
        _ => Some(format!("{{value_too_large,{milliseconds}}}")),
    }
}

fn invalid(key: &str, queue: &str, problem: &str) -> Exception {
    Exception::precondition_failed(&format!(
        "invalid arg '{key}' for {}: {problem}",
        queue_in_vhost(queue)
    ))
}

/// Checks that a queue is declared again as it is. Only arguments that the version knows are
/// compared.
pub(crate) fn check_again(
    version: Version,
    queue: &str,
    current: &Declaration,
    received: &Declaration,
) -> Result<(), Exception> {
    let queue = queue_in_vhost(queue);
    compare_flag(&queue, "durable", current.is_durable, received.is_durable)?;
    compare_flag(&queue, "auto_delete", current.is_auto_delete, received.is_auto_delete)?;
    // From 4.0 on a declaration without a type gets the default one before it is compared.
    let classic = AMQPValue::LongString("classic".into());
    for key in known(version, current.kind) {
        let default = (*key == "x-queue-type" && version >= Version::V4_0).then_some(&classic);
        let current = current.arguments.inner().get(*key).or(default);
        let received = received.arguments.inner().get(*key).or(default);
        compare(&queue, key, current, received)?;
    }
    Ok(())
}

/// Compares one argument of something that is declared again.
pub(crate) fn compare(
    what: &str,
    key: &str,
    current: Option<&AMQPValue>,
    received: Option<&AMQPValue>,
) -> Result<(), Exception> {
    let is_classic = |value: Option<&AMQPValue>| {
        value.is_none_or(
            |value| matches!(value, AMQPValue::LongString(text) if text.as_bytes() == b"classic"),
        )
    };
    let (received, current) = match (received, current) {
        (Some(received), Some(current)) => {
            if is_equivalent(received, current) {
                return Ok(());
            }
            (format!("'{}'", plain(received)), format!("'{}'", plain(current)))
        }
        (None, None) => return Ok(()),
        _ if key == "x-queue-type" && is_classic(current) && is_classic(received) => return Ok(()),
        (received, current) => (described(received), described(current)),
    };
    Err(inequivalent(key, what, &received, &current))
}

/// Compares a property of something that is declared again.
pub(crate) fn compare_flag(
    what: &str,
    key: &str,
    current: bool,
    received: bool,
) -> Result<(), Exception> {
    if current == received {
        return Ok(());
    }
    Err(inequivalent(key, what, &format!("'{received}'"), &format!("'{current}'")))
}

pub(crate) fn inequivalent(key: &str, what: &str, received: &str, current: &str) -> Exception {
    let text = format!(
        "inequivalent arg '{key}' for {what}: received {received} but current is {current}"
    );
    Exception::precondition_failed(&text)
}

/// Integers of different widths are the same, a number and a string are not.
fn is_equivalent(left: &AMQPValue, right: &AMQPValue) -> bool {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

fn described(value: Option<&AMQPValue>) -> String {
    value.map_or_else(
        || "none".to_owned(),
        |value| format!("the value '{}' of type '{}'", plain(value), type_name(value)),
    )
}

fn plain(value: &AMQPValue) -> String {
    match (value, integer(value)) {
        (_, Some(number)) => number.to_string(),
        (AMQPValue::LongString(text), _) => text.to_string(),
        (AMQPValue::ShortString(text), _) => text.to_string(),
        (AMQPValue::Boolean(flag), _) => flag.to_string(),
        (value, _) => format!("{value:?}"),
    }
}

/// RabbitMQ's names of AMQP's types.
fn type_name(value: &AMQPValue) -> &'static str {
    match value {
        AMQPValue::Boolean(_) => "bool",
        AMQPValue::ShortShortInt(_) => "byte",
        AMQPValue::ShortShortUInt(_) => "unsignedbyte",
        AMQPValue::ShortInt(_) => "short",
        AMQPValue::ShortUInt(_) => "unsignedshort",
        AMQPValue::LongInt(_) => "signedint",
        AMQPValue::LongUInt(_) => "unsignedint",
        AMQPValue::LongLongInt(_) => "long",
        AMQPValue::Float(_) => "float",
        AMQPValue::Double(_) => "double",
        AMQPValue::DecimalValue(_) => "decimal",
        AMQPValue::ShortString(_) | AMQPValue::LongString(_) => "longstr",
        AMQPValue::FieldArray(_) => "array",
        AMQPValue::Timestamp(_) => "timestamp",
        AMQPValue::FieldTable(_) => "table",
        AMQPValue::ByteArray(_) => "binary",
        AMQPValue::Void => "void",
    }
}
