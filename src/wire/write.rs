//! Writes the properties of a copy.

use std::collections::BTreeMap;
use std::time::Duration;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use super::Contract;
use super::names::*;
use super::overflow::{Resting, make_room};
use super::priority::{original as priority_of, while_waiting};
use super::room::{HeadersTooLarge, Room, checked};
use super::values::{
    duration_value, errors_value, field_size, insert, moment_value, properties_size, table_size,
    text,
};
use crate::message::Delivery;
use crate::retry::decision::Reason;
use crate::retry::ledger::{ErrorRecord, Ledger, Replay, Wait};
use crate::timestamp::Timestamp;
use crate::wait::Path;
use crate::wait::ladder::legs;

impl Contract {
    /// The properties of a copy that waits and returns to the work queue.
    pub(crate) fn checked_wait_copy(
        &self,
        delivery: &Delivery,
        ledger: &Ledger,
        wait: Wait,
        trace: &TraceHeaders,
        room: Room,
    ) -> Result<BasicProperties, HeadersTooLarge> {
        checked(self.wait_copy(delivery, ledger, wait, trace, room), room)
    }

    /// The same without the check, for a copy that has passed it.
    pub(crate) fn wait_copy(
        &self,
        delivery: &Delivery,
        ledger: &Ledger,
        wait: Wait,
        trace: &TraceHeaders,
        room: Room,
    ) -> BasicProperties {
        let mut headers = self.carried(delivery, ledger, trace);
        insert(&mut headers, RETURN_TO, text(&self.queue));
        match wait.path {
            // The last two need no copy.
            Path::Tier | Path::Return | Path::Hold => {
                insert(&mut headers, WAIT_FOR, duration_value(wait.leg))
            }
            Path::Ladder { rung } => itinerary(&mut headers, wait.leg, rung),
            Path::Delayed => {
                insert(&mut headers, WAIT_FOR, duration_value(wait.leg));
                insert(&mut headers, X_DELAY, duration_value(wait.leg));
            }
        }
        insert(&mut headers, WAITING_SINCE, moment_value(wait.since));
        // The copy keeps its routing key, so no header repeats it. What follows from other headers
        // is left out too: the broker and the client read each header several times. The due time
        // stays where it does not follow: a ladder with a missing binding ends a wait too early,
        // and only this header tells.
        let is_known =
            matches!(wait.path, Path::Tier | Path::Delayed) && wait.due == wait.since + wait.leg;
        if !is_known {
            insert(&mut headers, DUE_AT, moment_value(wait.due));
        }
        let mut copy = properties(&delivery.properties, BTreeMap::new());
        if wait.path != Path::Delayed
            && let Some((priority, original)) = while_waiting(&delivery.properties)
        {
            copy = copy.with_priority(priority);
            insert(&mut headers, PRIORITY, original);
        }
        let limit = room.to_wait().saturating_sub(properties_size(&copy));
        let history = insert_history(&mut headers, &ledger.errors, limit);
        if history.first().map(|error| error.at) == ledger.first_failed {
            headers.remove(FIRST_FAILED_AT);
        }
        copy.with_headers(FieldTable::from(headers))
    }

    /// What goes to the parked queue. It always fits into a frame: the largest headers follow the
    /// body if they do not.
    pub(crate) fn parked_copy(
        &self,
        delivery: &Delivery,
        ledger: &Ledger,
        reason: Reason,
        now: Timestamp,
        trace: &TraceHeaders,
        room: Room,
    ) -> Resting {
        let mut headers = self.carried(delivery, ledger, trace);
        // Names its queue also where a policy dead-letters it to the stray queue.
        insert(&mut headers, RETURN_TO, text(&self.queue));
        // It is published with the queue's name as its routing key.
        insert(&mut headers, ROUTING_KEY, text(delivery.origin.routing_key.as_str()));
        insert(&mut headers, REASON, text(reason.as_str()));
        insert(&mut headers, PARKED_AT, moment_value(now));
        let copy = properties(&delivery.properties, BTreeMap::new());
        let limit = room.at_rest().saturating_sub(properties_size(&copy));
        let overflow = make_room(&mut headers, delivery.body.len(), limit);
        insert_history(&mut headers, &ledger.errors, limit);
        Resting { properties: copy.with_headers(FieldTable::from(headers)), overflow }
    }

    /// The same message without rehop's headers, for a broker that refuses the larger body of its
    /// [parked copy](Self::parked_copy). As it came, it fits into a frame.
    pub(crate) fn bare_copy(&self, delivery: &Delivery) -> BasicProperties {
        let original = &delivery.properties;
        let mut headers =
            original.headers().as_ref().map(|headers| headers.inner().clone()).unwrap_or_default();
        let is_copy = self.is_own_copy(&delivery.address);
        headers.retain(|name, _| travels(name.as_str()) || (is_copy && name.as_str() == RETURN_TO));
        properties(original, headers)
    }

    /// The producer's own headers and the ledger, except its history, without what a copy must not
    /// have.
    fn carried(
        &self,
        delivery: &Delivery,
        ledger: &Ledger,
        trace: &TraceHeaders,
    ) -> BTreeMap<ShortString, AMQPValue> {
        let properties = &delivery.properties;
        let mut headers = properties
            .headers()
            .as_ref()
            .map(|headers| headers.inner().clone())
            .unwrap_or_default();
        // Kept from an earlier copy; written again below from a first delivery's own.
        let (user_id, cc) = (headers.remove(USER_ID), headers.remove(CC));
        let (user_id, cc) =
            if self.is_own_copy(&delivery.address) { (user_id, cc) } else { (None, None) };
        let user_id =
            properties.user_id().as_ref().map(|user_id| text(user_id.as_str())).or(user_id);
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

/// What a replayed message carries until it is handled or parked again. Only the first delivery is
/// a canary's.
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

/// Adds as many of the newest failures as these headers leave room for, and returns those.
fn insert_history<'a>(
    headers: &mut BTreeMap<ShortString, AMQPValue>,
    errors: &'a [ErrorRecord],
    limit: usize,
) -> &'a [ErrorRecord] {
    let name = ShortString::from(ERRORS);
    let taken = table_size(headers);
    for oldest in 0..errors.len().max(1) {
        let kept = &errors[oldest..];
        let value = errors_value(kept);
        if taken + field_size(&name, &value) <= limit {
            headers.insert(name, value);
            return kept;
        }
    }
    &[]
}

/// Everything but `expiration`, which would bring the copy back early, and `user_id`, because the
/// broker closes the channel of any other user that publishes it (3.10, 4.0 and 4.3). Copies are
/// persistent, even if the original was not.
pub(super) fn properties(
    original: &BasicProperties,
    headers: BTreeMap<ShortString, AMQPValue>,
) -> BasicProperties {
    let mut copy =
        BasicProperties::default().with_headers(FieldTable::from(headers)).with_delivery_mode(2);
    if let Some(value) = original.content_type() {
        copy = copy.with_content_type(value.clone());
    }
    if let Some(value) = original.content_encoding() {
        copy = copy.with_content_encoding(value.clone());
    }
    if let Some(value) = priority_of(original) {
        copy = copy.with_priority(value);
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
