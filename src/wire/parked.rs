//! The headers of messages in parked, stray and discarded queues: read for an operator, and written
//! when the operator moves them.
//!
//! Any program may have put a message there, so everything is optional.

use std::collections::BTreeMap;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use super::names::*;
use super::overflow::make_room;
pub use super::overflow::{Resting, reunite};
use super::read::Reader;
use super::room::{HeadersTooLarge, Room, checked};
use super::stand_in::{MAX_SHORT_STRING, stand_in};
use super::values::{insert, moment_value, properties_size, text};
use super::write::{insert_replay, properties};

use crate::message::{Address, HeaderValue};
use crate::retry::ledger::{ErrorRecord, Replay};
use crate::timestamp::Timestamp;

/// What the headers of a message at rest say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AtRest {
    pub reason: Option<String>,
    pub chain_id: Option<String>,
    pub return_to: Option<String>,
    pub exchange: Option<String>,
    pub routing_key: Option<String>,
    pub attempts: u32,
    pub hops: u32,
    pub first_seen: Option<Timestamp>,
    pub parked_at: Option<Timestamp>,
    pub discarded_at: Option<Timestamp>,
    pub discard_run: Option<String>,
    pub discarded_from: Option<String>,
    pub deadline: Option<Timestamp>,
    pub errors: Vec<ErrorRecord>,
    pub replays: u32,
    pub replay: Option<Replay>,
    /// How often the broker gave it back, by the count that its delivery limit applies to. On 4.3 a
    /// nack does not add to it.
    pub returns: u32,
    /// The broker's records of its dead-letterings, the latest first.
    pub deaths: Vec<Death>,
    pub traceparent: Option<String>,
}

/// The broker's record of one dead-lettering, and of its repetitions.
#[derive(Debug, Clone, PartialEq)]
pub struct Death {
    pub queue: String,
    pub reason: String,
    pub exchange: String,
    pub routing_key: String,
    pub at: Option<Timestamp>,
}

/// Reads what a message's headers say. Whatever is malformed counts as missing.
pub fn read(properties: &BasicProperties, expiry_header: &str) -> AtRest {
    let mut reader = Reader::new(properties);
    let replay = reader.replay();
    AtRest {
        reason: reader.text(REASON),
        chain_id: reader.text(CHAIN_ID).filter(|id| !id.is_empty()),
        return_to: reader.text(RETURN_TO),
        exchange: reader.text(EXCHANGE),
        routing_key: reader.text(ROUTING_KEY),
        attempts: reader.count(ATTEMPT),
        hops: reader.count(HOP),
        first_seen: reader.moment(FIRST_SEEN_AT),
        parked_at: reader.moment(PARKED_AT),
        discarded_at: reader.moment(DISCARDED_AT),
        discard_run: reader.text(DISCARD_RUN),
        discarded_from: reader.text(DISCARDED_FROM),
        deadline: reader.moment(expiry_header),
        errors: reader.errors(),
        replays: reader.count(REPLAYS),
        replay,
        returns: reader.count("x-delivery-count"),
        deaths: reader.header(DEATHS).map(deaths).unwrap_or_default(),
        traceparent: reader.text(TRACEPARENT),
    }
}

/// The exchange to which a message was published that came to its queue by this one: not one of
/// those through which the broker only moved it on. The latest of its dead-letterings that was not
/// from a queue in which messages rest tells; older ones may be a producer's invention (3.10).
pub fn published_to<'a>(
    deaths: &'a [Death],
    exchange: &'a str,
    is_resting: impl Fn(&str) -> bool,
) -> &'a str {
    let moved = deaths.iter().find(|death| !is_resting(&death.exchange));
    moved.or(deaths.last()).map_or(exchange, |death| &death.exchange)
}

/// A message's properties without the headers that have rehop's names. Its deadline is the
/// producer's to set, whatever its header is called. The connection needs [`BYTES`] to restore the
/// originals.
pub fn without_own(properties: &BasicProperties, expiry_header: &str) -> BasicProperties {
    let Some(headers) = properties.headers() else { return properties.clone() };
    let mut headers = headers.inner().clone();
    headers.retain(|name, _| {
        !is_own(name.as_str()) || [expiry_header, BYTES].contains(&name.as_str())
    });
    properties.clone().with_headers(FieldTable::from(headers))
}

/// More dead-letterings tell nothing new.
const MAX_DEATHS: usize = 8;

/// The broker puts the latest dead-lettering first, and counts repetitions in it.
fn deaths(value: &AMQPValue) -> Vec<Death> {
    let AMQPValue::FieldArray(deaths) = value else { return Vec::new() };
    deaths.as_slice().iter().take(MAX_DEATHS).map_while(death).collect()
}

fn death(value: &AMQPValue) -> Option<Death> {
    let AMQPValue::FieldTable(table) = value else { return None };
    let field = |name: &str| table.inner().get(name).map(HeaderValue::of);
    // A client may have written it (3.10), so names may be longer than AMQP allows.
    let name_of = |value: &HeaderValue<'_>| match value {
        HeaderValue::Bytes(bytes) => original_name(bytes).and_then(stand_in),
        value => value.as_text().filter(|text| text.len() <= MAX_SHORT_STRING).map(str::to_owned),
    };
    let text = |name: &str| field(name).as_ref().and_then(name_of);
    let routing_key = match field("routing-keys") {
        Some(HeaderValue::List(keys)) => keys.first().and_then(name_of),
        _ => None,
    };
    let at = match field("time") {
        Some(HeaderValue::Timestamp(seconds @ 0..)) => {
            seconds.checked_mul(1000).map(Timestamp::from_millis)
        }
        _ => None,
    };
    Some(Death {
        queue: text("queue")?,
        reason: text("reason")?,
        exchange: text("exchange").unwrap_or_default(),
        routing_key: routing_key.unwrap_or_default(),
        at,
    })
}

/// A routing key or an exchange that is not UTF-8.
fn original_name(bytes: &[u8]) -> Option<&[u8]> {
    (bytes.len() <= MAX_SHORT_STRING).then_some(bytes)
}

/// For which bytes the names in `origin` stand, by the broker's records. A message that the broker
/// parked has them nowhere else, and a copy does not keep the records.
fn originals(
    headers: &BTreeMap<ShortString, AMQPValue>,
    origin: &Address,
) -> BTreeMap<ShortString, AMQPValue> {
    let mut originals = match headers.get(BYTES) {
        Some(AMQPValue::FieldTable(table)) => table.inner().clone(),
        _ => BTreeMap::new(),
    };
    let Some(AMQPValue::FieldArray(deaths)) = headers.get(DEATHS) else { return originals };
    for death in deaths.as_slice().iter().take(MAX_DEATHS) {
        let AMQPValue::FieldTable(death) = death else { continue };
        let routing_key = match death.inner().get("routing-keys") {
            Some(AMQPValue::FieldArray(keys)) => keys.as_slice().first(),
            _ => None,
        };
        let names = [
            ("routing_key", &origin.routing_key, routing_key),
            ("exchange", &origin.exchange, death.inner().get("exchange")),
        ];
        for (place, shown, recorded) in names {
            let Some(HeaderValue::Bytes(bytes)) = recorded.map(HeaderValue::of) else { continue };
            if original_name(bytes).and_then(stand_in).is_some_and(|text| text == shown.as_str()) {
                originals.insert(place.into(), AMQPValue::ByteArray(bytes.to_vec().into()));
            }
        }
    }
    originals
}

/// What every copy of a message at rest states, whatever is done with it.
#[derive(Debug, Clone)]
pub struct Identity<'a> {
    pub chain_id: &'a str,
    pub origin: &'a Address,
}

/// A message at rest that is copied.
#[derive(Debug, Clone, Copy)]
pub struct Original<'a> {
    pub properties: &'a BasicProperties,
    pub body_bytes: usize,
}

impl Original<'_> {
    fn resting(self, mut headers: BTreeMap<ShortString, AMQPValue>, room: Room) -> Resting {
        let copy = properties(self.properties, BTreeMap::new());
        let limit = room.at_rest().saturating_sub(properties_size(&copy));
        let overflow = make_room(&mut headers, self.body_bytes, limit);
        Resting { properties: copy.with_headers(FieldTable::from(headers)), overflow }
    }
}

/// The properties of a replayed message: it starts again, with its history, and with its chain's id
/// and trace.
///
/// # Errors
///
/// When the headers do not fit into a frame.
pub fn replayed(
    original: &BasicProperties,
    identity: &Identity<'_>,
    queue: &str,
    replay: &Replay,
    (expiry_header, deadline): (&str, Option<Timestamp>),
    room: Room,
) -> Result<BasicProperties, HeadersTooLarge> {
    const KEPT: [&str; 6] = [ERRORS, FIRST_SEEN_AT, FIRST_FAILED_AT, TRACED_SINCE, USER_ID, CC];
    let mut headers = kept(original, identity, |name| KEPT.contains(&name));
    headers.remove(expiry_header);
    if let Some(deadline) = deadline {
        insert(&mut headers, expiry_header, moment_value(deadline));
    }
    insert(&mut headers, RETURN_TO, text(queue));
    insert_replay(&mut headers, replay);
    if replay.is_canary {
        insert(&mut headers, CANARY, AMQPValue::Boolean(true));
    }
    checked(properties(original, headers), room)
}

/// A replayed message with these trace headers too. It waits nowhere on its way, so they are within
/// what its frame reserves for waits.
pub fn traced(replayed: BasicProperties, trace: &[(&'static str, String)]) -> BasicProperties {
    let mut headers =
        replayed.headers().as_ref().map(|headers| headers.inner().clone()).unwrap_or_default();
    for (name, value) in trace {
        insert(&mut headers, name, text(value));
    }
    replayed.with_headers(FieldTable::from(headers))
}

/// Who discards a message, and from where.
#[derive(Debug, Clone)]
pub struct Discard<'a> {
    pub at: Timestamp,
    pub why: &'a str,
    pub run: &'a str,
    pub from: &'a str,
}

/// The properties of a message that goes from one resting queue to another: with everything that
/// rehop has written, and without what the broker has, except its reason and its time.
pub fn moved(
    original: Original<'_>,
    identity: &Identity<'_>,
    reason: &str,
    parked_at: Option<Timestamp>,
    room: Room,
) -> Resting {
    original.resting(headers_at_rest(original.properties, identity, reason, parked_at), room)
}

/// The properties of a message that goes to the discarded queue: as [`moved`], with who discards
/// it.
pub fn discarded(
    original: Original<'_>,
    identity: &Identity<'_>,
    reason: &str,
    parked_at: Option<Timestamp>,
    Discard { at, why, run, from }: &Discard<'_>,
    room: Room,
) -> Resting {
    let mut headers = headers_at_rest(original.properties, identity, reason, parked_at);
    insert(&mut headers, DISCARDED_AT, moment_value(*at));
    for (name, value) in [(DISCARDED_WHY, why), (DISCARD_RUN, run), (DISCARDED_FROM, from)] {
        insert(&mut headers, name, text(value));
    }
    original.resting(headers, room)
}

/// The properties of a message that comes to a parked or stray queue, from the discarded queue or
/// from an export: those that it had before it was discarded. A copy in the stray queue was
/// published to the stray exchange, so only `rehop-return-to` tells which work queue it belongs to.
pub fn restored(
    original: Original<'_>,
    identity: &Identity<'_>,
    reason: &str,
    parked_at: Option<Timestamp>,
    return_to: Option<&str>,
    room: Room,
) -> Resting {
    let mut headers = headers_at_rest(original.properties, identity, reason, parked_at);
    if let Some(queue) = return_to.filter(|_| !headers.contains_key(RETURN_TO)) {
        insert(&mut headers, RETURN_TO, text(queue));
    }
    for name in [DISCARDED_AT, DISCARDED_WHY, DISCARD_RUN, DISCARDED_FROM] {
        headers.remove(name);
    }
    original.resting(headers, room)
}

fn headers_at_rest(
    original: &BasicProperties,
    identity: &Identity<'_>,
    reason: &str,
    parked_at: Option<Timestamp>,
) -> BTreeMap<ShortString, AMQPValue> {
    let mut headers = kept(original, identity, |name| !is_then(name));
    insert(&mut headers, REASON, text(reason));
    if let Some(parked_at) = parked_at {
        insert(&mut headers, PARKED_AT, moment_value(parked_at));
    }
    headers
}

/// The producer's headers, and those of rehop's that `is_kept` names.
fn kept(
    original: &BasicProperties,
    identity: &Identity<'_>,
    is_kept: impl Fn(&str) -> bool,
) -> BTreeMap<ShortString, AMQPValue> {
    let mut headers =
        original.headers().as_ref().map(|headers| headers.inner().clone()).unwrap_or_default();
    // A message that the broker parked still has what no copy may have.
    let user_id = original.user_id().as_ref().map(|user_id| text(user_id.as_str()));
    let cc = headers.get("CC").cloned();
    let originals = originals(&headers, identity.origin);
    headers.retain(|name, _| {
        travels(name.as_str()) || (is_own(name.as_str()) && is_kept(name.as_str()))
    });
    for (name, value) in [(USER_ID, user_id), (CC, cc)] {
        if let Some(value) = value {
            insert(&mut headers, name, value);
        }
    }
    if !originals.is_empty() {
        insert(&mut headers, BYTES, AMQPValue::FieldTable(originals.into()));
    }
    insert(&mut headers, CHAIN_ID, text(identity.chain_id));
    insert(&mut headers, EXCHANGE, text(identity.origin.exchange.as_str()));
    insert(&mut headers, ROUTING_KEY, text(identity.origin.routing_key.as_str()));
    headers
}
