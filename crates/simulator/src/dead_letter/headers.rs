//! What dead-lettering writes into a message: `x-death` and its companions, and how they end a
//! cycle.
//!
//! 3.10 keeps the history in the `x-death` header and nowhere else, so one that a client left in a
//! copy counts. 4.x keeps a history of its own, which the header only shows: there, what a client
//! sends is replaced.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapin::types::{AMQPValue, FieldArray, FieldTable, ShortString};

use super::Target;
use crate::death::{Death, Reason};
use crate::headers::{integer_of, long_string, string, strings, with_headers};
use crate::message::Message;
use crate::names::Name;
use crate::protocol::{Time, Version};
use crate::queue::Entry;

/// The message as it is published to the dead-letter exchange.
pub(super) fn dead_letter(
    version: Version,
    date: Time,
    entry: &Entry,
    reason: Reason,
    queue: &Name,
    target: &Target,
) -> Message {
    let mut dead = if version == Version::V3_10 {
        record_in_header(date, &entry.message, reason, queue, target)
    } else {
        record_in_history(date, entry, reason, queue)
    };
    dead.ttl = None;
    dead.exchange = target.exchange.clone();
    if let Some(key) = &target.routing_key {
        dead.routing_keys = vec![key.clone()];
        dead.bcc = 0;
    }
    dead
}

/// Whether publishing to the queue would close a cycle that no consumer took part in. Such a
/// message is not published.
pub(super) fn is_cycle(version: Version, message: &Message, reason: Reason, queue: &str) -> bool {
    if reason == Reason::Rejected {
        return false;
    }
    if version == Version::V3_10 {
        return is_cycle_in_header(message, queue);
    }
    let Some(position) = message.deaths.iter().position(|death| *death.queue == *queue) else {
        return false;
    };
    message.deaths.iter().take(position + 1).all(|death| death.reason != Reason::Rejected)
}

fn record_in_history(date: Time, entry: &Entry, reason: Reason, queue: &Name) -> Message {
    let message = &entry.message;
    let mut dead = (**message).clone();
    let is_first = dead.deaths.is_empty();
    let known =
        dead.deaths.iter().position(|death| death.queue == *queue && death.reason == reason);
    let death = match known {
        Some(position) => {
            let mut death = dead.deaths.remove(position);
            death.count += 1;
            death
        }
        None => Death {
            queue: queue.clone(),
            reason,
            exchange: message.exchange.clone(),
            routing_keys: message.shown_routing_keys().to_vec(),
            count: 1,
            time: date,
            original_expiration: message.ttl,
        },
    };
    dead.deaths.insert(0, death);
    dead.delivery_count = entry.counts.delivery().or(message.delivery_count);
    let deaths: Vec<_> =
        dead.deaths.iter().map(|death| AMQPValue::FieldTable(death.table())).collect();
    let properties = with_headers(&message.properties, false, |headers| {
        headers.insert("x-death".into(), AMQPValue::FieldArray(FieldArray::from(deaths)));
        if is_first {
            set(headers, FIRST_DEATH, reason, queue, &message.exchange);
        }
        set(headers, LAST_DEATH, reason, queue, &message.exchange);
    });
    dead.properties = Arc::new(properties);
    dead
}

const FIRST_DEATH: [&str; 3] =
    ["x-first-death-reason", "x-first-death-queue", "x-first-death-exchange"];
/// Only on 4.x.
const LAST_DEATH: [&str; 3] =
    ["x-last-death-reason", "x-last-death-queue", "x-last-death-exchange"];

fn set(
    headers: &mut BTreeMap<ShortString, AMQPValue>,
    names: [&str; 3],
    reason: Reason,
    queue: &str,
    exchange: &str,
) {
    for (name, value) in names.into_iter().zip([reason.as_str(), queue, exchange]) {
        headers.insert(name.into(), long_string(value));
    }
}

fn record_in_header(
    date: Time,
    message: &Message,
    reason: Reason,
    queue: &Name,
    target: &Target,
) -> Message {
    let mut dead = message.clone();
    let properties = with_headers(&message.properties, false, |headers| {
        let mut routing_keys = vec![Name::from(message.routing_key())];
        routing_keys.extend(headers.get("CC").map(strings).unwrap_or_default());
        let death = Death {
            queue: queue.clone(),
            reason,
            exchange: message.exchange.clone(),
            routing_keys,
            count: 1,
            time: date,
            original_expiration: message.ttl,
        };
        let former = headers.get("x-death").cloned();
        let deaths = match &former {
            // A header of another type is replaced.
            Some(AMQPValue::FieldArray(former)) => add_to_former(death, former),
            _ => vec![AMQPValue::FieldTable(death.table())],
        };
        headers.insert("x-death".into(), AMQPValue::FieldArray(FieldArray::from(deaths)));
        if former.is_none() {
            set(headers, FIRST_DEATH, reason, queue, &message.exchange);
        }
        if target.routing_key.is_some() {
            headers.remove("CC");
        }
    });
    dead.properties = Arc::new(properties);
    dead
}

/// Counts a death that is among the former ones, and puts it first. Seen in the source of 3.10.8:
/// each time, the former ones change to the reverse of their order, and of two for the same queue
/// and reason one is left.
fn add_to_former(death: Death, former: &FieldArray) -> Vec<AMQPValue> {
    let key_of = |value: &AMQPValue| match value {
        AMQPValue::FieldTable(table) => Some((
            string(table, "queue")?.to_owned(),
            string(table, "reason")?.to_owned(),
            table.clone(),
        )),
        _ => None,
    };
    let mut others = Vec::new();
    let mut first = death.table();
    let mut seen = Vec::new();
    for (queue, reason, table) in former.as_slice().iter().filter_map(key_of) {
        if seen.contains(&(queue.clone(), reason.clone())) {
            continue;
        }
        if *queue == *death.queue && reason == death.reason.as_str() {
            let mut fields = table.inner().clone();
            let count = integer_of(&table, "count").unwrap_or_default() + 1;
            fields.insert("count".into(), AMQPValue::LongLongInt(count));
            first = FieldTable::from(fields);
        } else {
            others.insert(0, AMQPValue::FieldTable(table));
        }
        seen.push((queue, reason));
    }
    others.insert(0, AMQPValue::FieldTable(first));
    others
}

fn is_cycle_in_header(message: &Message, queue: &str) -> bool {
    let deaths =
        message.properties.headers().as_ref().and_then(|headers| headers.inner().get("x-death"));
    let Some(AMQPValue::FieldArray(deaths)) = deaths else { return false };
    let deaths: Vec<_> = deaths
        .as_slice()
        .iter()
        .map(|death| match death {
            AMQPValue::FieldTable(table) => Some(table),
            _ => None,
        })
        .collect();
    let is_of_queue =
        |table: Option<&FieldTable>| table.and_then(|table| string(table, "queue")) == Some(queue);
    let Some(position) = deaths.iter().position(|death| is_of_queue(*death)) else { return false };
    let is_automatic = |table: Option<&FieldTable>| {
        table.is_some_and(|table| string(table, "reason") != Some(Reason::Rejected.as_str()))
    };
    deaths.iter().take(position + 1).all(|death| is_automatic(*death))
}
