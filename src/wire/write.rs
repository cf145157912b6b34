//! Writes the properties of a copy.

use std::collections::BTreeMap;
use std::time::Duration;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use super::Contract;
use super::names::*;
use super::values::{duration_value, encoded_size, errors_value, insert, moment_value, text};
use crate::message::Delivery;
use crate::retry::decision::Reason;
use crate::retry::ledger::{Ledger, Replay, Wait};
use crate::timestamp::Timestamp;
use crate::wait::Path;
use crate::wait::ladder::legs;

/// The largest content header that a copy may have. RabbitMQ's default frame limit is 131,072 bytes, and a larger one closes
/// the connection (3.10, 4.0 and 4.3). The rest is room for the death headers that the broker adds when a wait is over: it adds
/// them even if that makes the frame too large for a client.
pub(crate) const MAX_HEADER_BYTES: usize = 128 * 1024 - 4096;

impl Contract {
    /// The properties of a copy that waits and returns to the work queue.
    pub(crate) fn checked_wait_copy(
        &self,
        delivery: &Delivery,
        ledger: &Ledger,
        wait: Wait,
        trace: &TraceHeaders,
    ) -> CopyProperties {
        checked(self.wait_copy(delivery, ledger, wait, trace))
    }

    /// The same without the check, for a copy that has passed it.
    pub(crate) fn wait_copy(
        &self,
        delivery: &Delivery,
        ledger: &Ledger,
        wait: Wait,
        trace: &TraceHeaders,
    ) -> BasicProperties {
        let mut headers = self.carried(delivery, ledger, trace);
        insert(&mut headers, RETURN_TO, text(&self.queue));
        match wait.path {
            // The last two need no copy.
            Path::Tier | Path::Return | Path::Hold => insert(&mut headers, WAIT_FOR, duration_value(wait.leg)),
            Path::Ladder { rung } => itinerary(&mut headers, wait.leg, rung),
            Path::Delayed => {
                insert(&mut headers, WAIT_FOR, duration_value(wait.leg));
                insert(&mut headers, X_DELAY, duration_value(wait.leg));
            }
        }
        insert(&mut headers, WAITING_SINCE, moment_value(wait.since));
        // The copy keeps its routing key, so no header repeats it. What follows from other headers is left out too: the broker and the
        // client read each header several times. The due time stays where it does not follow: a ladder with a missing binding ends a
        // wait too early, and only this header tells.
        let is_known = matches!(wait.path, Path::Tier | Path::Delayed) && wait.due == wait.since + wait.leg;
        if !is_known {
            insert(&mut headers, DUE_AT, moment_value(wait.due));
        }
        if ledger.errors.first().map(|error| error.at) == ledger.first_failed && fits(&headers) {
            headers.remove(FIRST_FAILED_AT);
        }
        copy(&delivery.properties, headers)
    }

    /// The properties of a copy that goes to the parked queue. If the message's own headers leave no room for rehop's, it goes
    /// without them: as it came, it fits into a frame. Dead-lettering it would add death headers, and could make it a message
    /// that no client can receive (3.10, 4.0 and 4.3).
    pub(crate) fn parked_copy(
        &self,
        delivery: &Delivery,
        ledger: &Ledger,
        reason: Reason,
        now: Timestamp,
        trace: &TraceHeaders,
    ) -> BasicProperties {
        let original = &delivery.properties;
        let mut headers = self.carried(delivery, ledger, trace);
        // Names its queue also where a policy dead-letters it to the stray queue.
        insert(&mut headers, RETURN_TO, text(&self.queue));
        // It is published with the queue's name as its routing key.
        insert(&mut headers, ROUTING_KEY, text(delivery.origin.routing_key.as_str()));
        insert(&mut headers, REASON, text(reason.as_str()));
        insert(&mut headers, PARKED_AT, moment_value(now));
        checked(copy(original, headers)).unwrap_or_else(|HeadersTooLarge { .. }| {
            let mut headers = original.headers().as_ref().map(|headers| headers.inner().clone()).unwrap_or_default();
            let is_copy = self.is_own_copy(&delivery.address);
            headers.retain(|name, _| travels(name.as_str()) || (is_copy && name.as_str() == RETURN_TO));
            properties(original, headers)
        })
    }

    /// The producer's own headers and the ledger, without what a copy must not have.
    fn carried(&self, delivery: &Delivery, ledger: &Ledger, trace: &TraceHeaders) -> BTreeMap<ShortString, AMQPValue> {
        let properties = &delivery.properties;
        let mut headers = properties.headers().as_ref().map(|headers| headers.inner().clone()).unwrap_or_default();
        // Kept from an earlier copy; written again below from a first delivery's own.
        let (user_id, cc) = (headers.remove(USER_ID), headers.remove(CC));
        let (user_id, cc) = if self.is_own_copy(&delivery.address) { (user_id, cc) } else { (None, None) };
        let user_id = properties.user_id().as_ref().map(|user_id| text(user_id.as_str())).or(user_id);
        let cc = headers.get("CC").cloned().or(cc);
        headers.retain(|name, _| travels(name.as_str()) && !trace.replaces(name.as_str()));
        for (name, value) in [(USER_ID, user_id), (CC, cc)] {
            if let Some(value) = value {
                insert(&mut headers, name, value);
            }
        }
        for (name, value) in &trace.0 {
            insert(&mut headers, name, text(value));
        }
        insert(&mut headers, ATTEMPT, AMQPValue::LongLongInt(i64::from(ledger.attempts)));
        insert(&mut headers, HOP, AMQPValue::LongLongInt(i64::from(ledger.hop)));
        if ledger.defers > 0 {
            insert(&mut headers, DEFERS, AMQPValue::LongLongInt(i64::from(ledger.defers)));
        }
        insert(&mut headers, FIRST_SEEN_AT, moment_value(ledger.first_seen));
        if let Some(first_failed) = ledger.first_failed {
            insert(&mut headers, FIRST_FAILED_AT, moment_value(first_failed));
        }
        if let Some(deadline) = ledger.deadline {
            insert(&mut headers, &self.expiry_header, moment_value(deadline));
        }
        insert(&mut headers, EXCHANGE, text(delivery.origin.exchange.as_str()));
        if let Some(chain_id) = &ledger.chain_id {
            insert(&mut headers, CHAIN_ID, text(chain_id));
        }
        if let Some(replay) = &ledger.replay {
            insert_replay(&mut headers, replay);
        }
        insert(&mut headers, ERRORS, errors_value(&ledger.errors));
        headers
    }
}

/// Which rung comes first, and which after each.
fn itinerary(headers: &mut BTreeMap<ShortString, AMQPValue>, sum: Duration, rung: Duration) {
    let mut name = WAIT_FOR.to_owned();
    for leg in legs(sum, rung) {
        insert(headers, &name, duration_value(leg));
        name = then(leg.as_millis());
    }
}

/// What a replayed message carries until it is handled or parked again. Only the first delivery is a canary's.
pub(super) fn insert_replay(headers: &mut BTreeMap<ShortString, AMQPValue>, replay: &Replay) {
    insert(headers, REPLAYS, AMQPValue::LongLongInt(i64::from(replay.count)));
    insert(headers, REPLAY_RUN, text(&replay.run));
    insert(headers, REPLAY_NUMBER, AMQPValue::LongLongInt(i64::from(replay.number)));
}

/// Trace context to write into a copy. Each of its headers is replaced, never appended.
#[derive(Debug, Clone, Default)]
pub(crate) struct TraceHeaders(pub(crate) Vec<(&'static str, String)>);

impl TraceHeaders {
    /// Whether a header belongs to another trace context, which must not stay beside this one.
    fn replaces(&self, name: &str) -> bool {
        !self.0.is_empty() && is_trace_context(name)
    }
}

/// The properties of a copy, unless its headers do not fit into a frame.
pub(crate) type CopyProperties = Result<BasicProperties, HeadersTooLarge>;

/// The message's own headers leave no room for rehop's, so it cannot wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message's headers take {bytes} bytes, and a copy may have {MAX_HEADER_BYTES}")]
pub struct HeadersTooLarge {
    pub(super) bytes: usize,
}

/// Without the history, if that is what makes the headers too large.
fn copy(original: &BasicProperties, mut headers: BTreeMap<ShortString, AMQPValue>) -> BasicProperties {
    if !fits(&headers) {
        headers.remove(ERRORS);
    }
    properties(original, headers)
}

fn fits(headers: &BTreeMap<ShortString, AMQPValue>) -> bool {
    encoded_size(headers) <= MAX_HEADER_BYTES
}

pub(super) fn checked(copy: BasicProperties) -> CopyProperties {
    let bytes = copy.headers().as_ref().map_or(0, |headers| encoded_size(headers.inner()));
    if bytes > MAX_HEADER_BYTES { Err(HeadersTooLarge { bytes }) } else { Ok(copy) }
}

/// Everything but `expiration`, which would bring the copy back early, and `user_id`, because the broker closes the channel of
/// any other user that publishes it (3.10, 4.0 and 4.3). Copies are persistent, even if the original was not.
pub(super) fn properties(original: &BasicProperties, headers: BTreeMap<ShortString, AMQPValue>) -> BasicProperties {
    let mut copy = BasicProperties::default().with_headers(FieldTable::from(headers)).with_delivery_mode(2);
    if let Some(value) = original.content_type() {
        copy = copy.with_content_type(value.clone());
    }
    if let Some(value) = original.content_encoding() {
        copy = copy.with_content_encoding(value.clone());
    }
    if let Some(value) = original.priority() {
        copy = copy.with_priority(*value);
    }
    if let Some(value) = original.correlation_id() {
        copy = copy.with_correlation_id(value.clone());
    }
    if let Some(value) = original.reply_to() {
        copy = copy.with_reply_to(value.clone());
    }
    if let Some(value) = original.message_id() {
        copy = copy.with_message_id(value.clone());
    }
    if let Some(value) = original.timestamp() {
        copy = copy.with_timestamp(*value);
    }
    if let Some(value) = original.kind() {
        copy = copy.with_type(value.clone());
    }
    if let Some(value) = original.app_id() {
        copy = copy.with_app_id(value.clone());
    }
    if let Some(value) = original.cluster_id() {
        copy = copy.with_cluster_id(value.clone());
    }
    copy
}
