//! The arguments of queues: which are valid, and which have to be the same when a queue is declared again.

use lapin::types::{AMQPValue, FieldTable};

use crate::error::{Exception, queue_in_vhost};
use crate::headers::{integer, string};
use crate::protocol::Version;
use crate::queue::{Declaration, Kind};

/// Ten years, the most that any time may be (all versions).
const MAX_MILLISECONDS: i64 = 315_360_000_000;

const ONLY_QUORUM: [&str; 5] = [
    "x-dead-letter-strategy",
    "x-delivery-limit",
    "x-max-in-memory-bytes",
    "x-max-in-memory-length",
    "x-quorum-initial-group-size",
];
const ONLY_QUORUM_4_3: [&str; 5] = [
    "x-consumer-disconnected-timeout",
    "x-consumer-timeout",
    "x-delayed-retry-max",
    "x-delayed-retry-min",
    "x-delayed-retry-type",
];
const ONLY_CLASSIC: [&str; 3] = ["x-max-priority", "x-queue-mode", "x-queue-version"];

/// The queue type that the arguments ask for.
pub(crate) fn kind_of(queue: &str, arguments: &FieldTable) -> Result<Kind, Exception> {
    match arguments.inner().get("x-queue-type") {
        None => Ok(Kind::Classic),
        Some(_) => match string(arguments, "x-queue-type") {
            Some("classic") => Ok(Kind::Classic),
            Some("quorum") => Ok(Kind::Quorum),
            _ => Err(invalid("x-queue-type", queue, "{error,queue_type_not_found}")),
        },
    }
}

/// Checks what a new queue is declared with.
pub(crate) fn check(version: Version, queue: &str, declaration: &Declaration) -> Result<(), Exception> {
    let arguments = &declaration.arguments;
    for (key, value) in arguments {
        check_value(queue, arguments, key.as_str(), value)?;
    }
    let (kind, foreign) = match declaration.kind {
        Kind::Quorum => ("rabbit_quorum_queue", ONLY_CLASSIC.as_slice()),
        Kind::Classic => ("rabbit_classic_queue", ONLY_QUORUM.as_slice()),
    };
    let foreign_4_3 = version >= Version::V4_3 && declaration.kind == Kind::Classic;
    for (key, _) in arguments {
        let key = key.as_str();
        if foreign.contains(&key) || (foreign_4_3 && ONLY_QUORUM_4_3.contains(&key)) {
            let queue = queue_in_vhost(queue);
            return Err(Exception::precondition_failed(&format!(
                "invalid arg '{key}' for {queue} of queue type {kind}"
            )));
        }
    }
    if declaration.kind == Kind::Quorum {
        let properties = [
            (declaration.is_auto_delete, "auto-delete"),
            (declaration.owner.is_some(), "exclusive-owner"),
            (!declaration.is_durable, "non-durable"),
        ];
        if let Some((_, property)) = properties.into_iter().find(|(is_set, _)| *is_set) {
            let queue = queue_in_vhost(queue);
            return Err(Exception::precondition_failed(&format!("invalid property '{property}' for {queue}")));
        }
    }
    Ok(())
}

fn check_value(queue: &str, arguments: &FieldTable, key: &str, value: &AMQPValue) -> Result<(), Exception> {
    let problem = match key {
        "x-message-ttl" => milliseconds_problem(value),
        "x-expires" if integer(value) == Some(0) => Some("{value_zero,0}".to_owned()),
        "x-expires" => milliseconds_problem(value),
        "x-max-length" | "x-max-length-bytes" | "x-consumer-timeout" => match integer(value) {
            Some(value) if value < 0 => Some(format!("{{value_negative,{value}}}")),
            Some(_) => None,
            None => Some(unacceptable(value)),
        },
        "x-dead-letter-routing-key" if !arguments.contains_key("x-dead-letter-exchange") => {
            Some("routing_key_but_no_dlx_defined".to_owned())
        }
        "x-dead-letter-strategy" => match string(arguments, key) {
            Some("at-most-once" | "at-least-once") => None,
            _ => Some("invalid_dlx_strategy".to_owned()),
        },
        "x-overflow" => match string(arguments, key) {
            Some("drop-head" | "reject-publish" | "reject-publish-dlx") => None,
            _ => Some("invalid_overflow".to_owned()),
        },
        "x-dead-letter-exchange" | "x-dead-letter-routing-key" => {
            string(arguments, key).is_none().then(|| unacceptable(value))
        }
        "x-single-active-consumer" => (!matches!(value, AMQPValue::Boolean(_))).then(|| unacceptable(value)),
        _ => None,
    };
    problem.map_or(Ok(()), |problem| Err(invalid(key, queue, &problem)))
}

fn milliseconds_problem(value: &AMQPValue) -> Option<String> {
    match integer(value) {
        Some(value) => out_of_range(value),
        None => Some(unacceptable(value)),
    }
}

/// What is wrong with a time in milliseconds, in RabbitMQ's words.
pub(crate) fn out_of_range(milliseconds: i64) -> Option<String> {
    if milliseconds < 0 {
        Some(format!("{{value_negative,{milliseconds}}}"))
    } else if milliseconds > MAX_MILLISECONDS {
        Some(format!("{{value_too_large,{milliseconds}}}"))
    } else {
        None
    }
}

fn unacceptable(value: &AMQPValue) -> String {
    format!("{{unacceptable_type,{}}}", type_name(value))
}

fn invalid(key: &str, queue: &str, problem: &str) -> Exception {
    Exception::precondition_failed(&format!("invalid arg '{key}' for {}: {problem}", queue_in_vhost(queue)))
}

/// Checks that a queue is declared again as it is. Only arguments that the version knows are compared, in its order.
pub(crate) fn check_equivalence(
    version: Version,
    queue: &str,
    current: &Declaration,
    received: &Declaration,
) -> Result<(), Exception> {
    let queue = queue_in_vhost(queue);
    compare_flag(&queue, "durable", current.is_durable, received.is_durable)?;
    compare_flag(&queue, "auto_delete", current.is_auto_delete, received.is_auto_delete)?;
    for key in compared(version, current.kind) {
        // From 4.0 on a declaration without a type gets the default one before it is compared.
        let classic = AMQPValue::LongString("classic".into());
        let value_of = |arguments: &'_ FieldTable| {
            let value = arguments.inner().get(*key).cloned();
            if *key == "x-queue-type" && version >= Version::V4_0 { value.or(Some(classic.clone())) } else { value }
        };
        let (current, received) = (value_of(&current.arguments), value_of(&received.arguments));
        compare(&queue, key, current.as_ref(), received.as_ref())?;
    }
    Ok(())
}

fn compared(version: Version, kind: Kind) -> impl Iterator<Item = &'static &'static str> {
    const QUORUM: &[&str] = &[
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-dead-letter-strategy",
        "x-expires",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-overflow",
        "x-single-active-consumer",
        "x-queue-type",
        "x-quorum-initial-group-size",
        "x-delivery-limit",
        "x-message-ttl",
        "x-queue-leader-locator",
    ];
    const QUORUM_4_3: &[&str] = &[
        "x-consumer-disconnected-timeout",
        "x-consumer-timeout",
        "x-delayed-retry-type",
        "x-delayed-retry-min",
        "x-delayed-retry-max",
    ];
    const CLASSIC: &[&str] = &[
        "x-expires",
        "x-message-ttl",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-priority",
        "x-overflow",
        "x-queue-mode",
        "x-queue-version",
        "x-single-active-consumer",
        "x-queue-type",
    ];
    let (keys, more): (&[&str], &[&str]) = match (kind, version) {
        (Kind::Quorum, Version::V4_3) => (QUORUM, QUORUM_4_3),
        (Kind::Quorum, _) => (QUORUM, &[]),
        (Kind::Classic, _) => (CLASSIC, &[]),
    };
    keys.iter().chain(more)
}

/// Compares one argument of something that is declared again.
pub(crate) fn compare(
    what: &str,
    key: &str,
    current: Option<&AMQPValue>,
    received: Option<&AMQPValue>,
) -> Result<(), Exception> {
    let is_classic = |value: Option<&AMQPValue>| {
        value.is_none_or(|value| matches!(value, AMQPValue::LongString(text) if text.as_bytes() == b"classic"))
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
pub(crate) fn compare_flag(what: &str, key: &str, current: bool, received: bool) -> Result<(), Exception> {
    if current == received {
        return Ok(());
    }
    Err(inequivalent(key, what, &format!("'{received}'"), &format!("'{current}'")))
}

pub(crate) fn inequivalent(key: &str, what: &str, received: &str, current: &str) -> Exception {
    let text = format!("inequivalent arg '{key}' for {what}: received {received} but current is {current}");
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
