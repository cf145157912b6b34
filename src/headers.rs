//! The wire contract: the headers that a message carries through its waits.
//!
//! Other versions of rehop, and other programs, read these from the queue. Whatever is read here may come from anybody:
//! nothing panics, wrong types and absurd numbers are ignored or bounded.

use std::collections::BTreeMap;
use std::time::Duration;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldArray, FieldTable, ShortString};

use crate::backoff::MAX_DELAY;
use crate::ledger::{ErrorRecord, Ledger, MAX_ERRORS, Wait};
use crate::message::{Arrival, Envelope, HeaderValue};
use crate::policy::Reason;
use crate::timestamp::Timestamp;

/// Where the return exchange sends the message: the work queue's name. Its name, and the next, do not begin with `x-`:
/// a headers exchange ignores such names when it matches (3.10, 4.0 and 4.3).
pub(crate) const RETURN_TO: &str = "return-to";
/// Which wait queue takes the message: the tier's TTL in milliseconds.
pub(crate) const WAIT_FOR: &str = "wait-for";
/// Attempts so far.
pub(crate) const ATTEMPT: &str = "rehop-attempt";
/// Waits so far.
pub(crate) const HOP: &str = "rehop-hop";
/// When the chain's first delivery was seen.
pub(crate) const FIRST_SEEN_AT: &str = "rehop-first-seen-at";
/// When an attempt first failed.
pub(crate) const FIRST_FAILED_AT: &str = "rehop-first-failed-at";
/// When the message entered its last wait queue.
pub(crate) const WAITING_SINCE: &str = "rehop-waiting-since";
/// When it was due back.
pub(crate) const DUE_AT: &str = "rehop-due-at";
/// From when on it is expired. Producers may set it; settings can give it another name.
pub(crate) const EXPIRES_AT: &str = "rehop-expires-at";
/// The exchange that it was first published to.
pub(crate) const EXCHANGE: &str = "rehop-exchange";
/// The routing key that it was first published with.
pub(crate) const ROUTING_KEY: &str = "rehop-routing-key";
/// The last failures, oldest first.
pub(crate) const ERRORS: &str = "rehop-errors";
/// Names the chain on every span.
pub(crate) const CHAIN_ID: &str = "rehop-chain-id";
/// Why it was parked.
pub(crate) const REASON: &str = "rehop-reason";
/// The `user_id` property that had to be removed.
pub(crate) const USER_ID: &str = "rehop-user-id";
/// The `CC` header that had to be removed.
pub(crate) const CC: &str = "rehop-cc";

const PREFIX: &str = "rehop-";

/// Removed from every copy. Left in, they loop, drop, duplicate or miscount messages: `x-death` makes later hops vanish on
/// 3.10, a stale count is shown on the first delivery on all versions, and `CC` is routed again.
const STRIPPED: [&str; 5] = ["x-death", "x-delivery-count", "x-acquired-count", "CC", "BCC"];
const STRIPPED_PREFIXES: [&str; 2] = ["x-first-death-", "x-last-death-"];

/// The largest content header that a copy may have. RabbitMQ's default frame limit is 131,072 bytes, and a larger one closes
/// the connection (3.10, 4.0 and 4.3). The rest is room for the death headers that the broker adds when a wait is over: it sends
/// them on even where they make the frame too large, and a client need not take that.
const MAX_HEADER_BYTES: usize = 128 * 1024 - 4096;

/// No message is due later than this: the longest delay, and as much again for the rounding up to whole tiers. A due date
/// beyond it is not ours, and would keep its message waiting for years.
const LONGEST_WAIT: Duration = MAX_DELAY.saturating_mul(2);

/// Numbers above this are absurd as a count.
const MAX_COUNT: u32 = 1_000_000;
/// Moments outside of 1973 to 5138 are absurd, and seconds mistaken for milliseconds are outside.
const SANE_MILLIS: std::ops::Range<i64> = 100_000_000_000..100_000_000_000_000;

/// A header whose value was ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ignored {
    pub(crate) header: String,
    pub(crate) because: &'static str,
}

/// What it takes to read and write one queue's messages.
#[derive(Debug, Clone)]
pub(crate) struct Contract {
    /// The work queue.
    pub(crate) queue: String,
    /// A message is our own copy if it comes by this exchange: then, and only then, is its ledger read.
    pub(crate) return_exchange: String,
    /// The name of the expiry header.
    pub(crate) expiry_header: String,
    /// The deadline of messages that bring none, counted from their first delivery.
    pub(crate) max_age: Option<Duration>,
    /// Whether the queue counts deliveries, as quorum queues do. On a classic queue the count's header would be a producer's.
    pub(crate) counts_deliveries: bool,
}

impl Contract {
    /// Reads a delivery's ledger, and says what had to be ignored.
    pub(crate) fn read(&self, envelope: Envelope, now: Timestamp) -> (Arrival, Vec<Ignored>) {
        let mut reader = Reader { envelope: &envelope, ignored: Vec::new() };
        let home = envelope.exchange.as_str() == self.return_exchange;
        let wait = if home { reader.wait(now) } else { None };
        let first_seen =
            if home { reader.moment(FIRST_SEEN_AT) } else { None }.filter(|seen| *seen <= now).unwrap_or(now);
        let deadline = reader
            .moment(&self.expiry_header)
            .or_else(|| if home { None } else { reader.expiration(now) })
            .or_else(|| self.max_age.map(|max_age| first_seen + max_age));
        let ledger = Ledger {
            attempts: if home { reader.count(ATTEMPT) } else { 0 },
            hop: if home { reader.count(HOP).max(1) } else { 0 },
            redeliveries: self.redeliveries(&mut reader),
            first_seen,
            first_failed: if home { reader.moment(FIRST_FAILED_AT) } else { None },
            deadline,
            wait,
            wait_unfinished: wait
                .filter(|wait| !wait.is_whole() && wait.due <= now + LONGEST_WAIT)
                .map(|wait| wait.due),
            errors: if home { reader.errors() } else { Vec::new() },
            chain_id: if home { reader.text(CHAIN_ID) } else { None },
        };
        let origin = |header, actual: &ShortString, reader: &mut Reader<'_>| {
            let original =
                if home { reader.text(header).and_then(|text| ShortString::try_new(text).ok()) } else { None };
            original.unwrap_or_else(|| actual.clone())
        };
        let exchange = origin(EXCHANGE, &envelope.exchange, &mut reader);
        let routing_key = origin(ROUTING_KEY, &envelope.routing_key, &mut reader);
        let ignored = reader.ignored;
        (Arrival { envelope, ledger, exchange, routing_key }, ignored)
    }

    /// The broker's count is another's word unless the message was given back: a producer's own `x-delivery-count` is shown
    /// on the first delivery (3.10, 4.0 and 4.3). On 4.3 a message that was only handed back has just an `x-acquired-count`.
    fn redeliveries(&self, reader: &mut Reader<'_>) -> Option<u32> {
        if !reader.envelope.redelivered {
            return Some(0);
        }
        if !self.counts_deliveries {
            return None;
        }
        match reader.envelope.header("x-delivery-count") {
            Some(_) => Some(reader.count("x-delivery-count")),
            None => reader.envelope.header("x-acquired-count").map(|_| 0),
        }
    }

    /// The properties of a copy that goes through the wait queue of `tier` and comes home.
    pub(crate) fn wait_copy(
        &self,
        arrival: &Arrival,
        ledger: &Ledger,
        wait: Wait,
        trace: &TraceHeaders,
    ) -> CopyProperties {
        let mut headers = self.carried(arrival, ledger, trace);
        insert(&mut headers, RETURN_TO, text(&self.queue));
        insert(&mut headers, WAIT_FOR, duration_value(wait.tier));
        insert(&mut headers, WAITING_SINCE, moment_value(wait.since));
        insert(&mut headers, DUE_AT, moment_value(wait.due));
        copy(&arrival.envelope.properties, headers)
    }

    /// The properties of a copy that goes to the parked queue. Where the message's own headers leave no room for ours, it goes
    /// without them: as it came it fits into a frame. Left to the broker, which adds its death headers, it would become a
    /// message that no client can receive (3.10, 4.0 and 4.3).
    pub(crate) fn parked_copy(
        &self,
        arrival: &Arrival,
        ledger: &Ledger,
        reason: Reason,
        trace: &TraceHeaders,
    ) -> BasicProperties {
        let original = &arrival.envelope.properties;
        let mut headers = self.carried(arrival, ledger, trace);
        insert(&mut headers, REASON, text(reason.as_str()));
        copy(original, headers).unwrap_or_else(|HeadersTooLarge { .. }| {
            let mut headers = original.headers().as_ref().map(|headers| headers.inner().clone()).unwrap_or_default();
            headers.retain(|name, _| travels(name.as_str()));
            properties(original, headers)
        })
    }

    /// The producer's own headers and the ledger, without what must not travel.
    fn carried(&self, arrival: &Arrival, ledger: &Ledger, trace: &TraceHeaders) -> BTreeMap<ShortString, AMQPValue> {
        let properties = &arrival.envelope.properties;
        let mut headers = properties.headers().as_ref().map(|headers| headers.inner().clone()).unwrap_or_default();
        // Kept from an earlier copy; written anew below from a first delivery's own.
        let (user_id, cc) = (headers.remove(USER_ID), headers.remove(CC));
        let (user_id, cc) = if ledger_is_ours(arrival, self) { (user_id, cc) } else { (None, None) };
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
        insert(&mut headers, FIRST_SEEN_AT, moment_value(ledger.first_seen));
        if let Some(first_failed) = ledger.first_failed {
            insert(&mut headers, FIRST_FAILED_AT, moment_value(first_failed));
        }
        if let Some(deadline) = ledger.deadline {
            insert(&mut headers, &self.expiry_header, moment_value(deadline));
        }
        insert(&mut headers, EXCHANGE, text(arrival.exchange.as_str()));
        insert(&mut headers, ROUTING_KEY, text(arrival.routing_key.as_str()));
        if let Some(chain_id) = &ledger.chain_id {
            insert(&mut headers, CHAIN_ID, text(chain_id));
        }
        let errors = ledger.errors.iter().map(error_value).collect::<Vec<_>>();
        insert(&mut headers, ERRORS, AMQPValue::FieldArray(FieldArray::from(errors)));
        headers
    }
}

fn ledger_is_ours(arrival: &Arrival, contract: &Contract) -> bool {
    arrival.envelope.exchange.as_str() == contract.return_exchange
}

/// Trace context to write into a copy. Each of its headers is replaced, never appended.
#[derive(Debug, Clone, Default)]
pub(crate) struct TraceHeaders(pub(crate) Vec<(&'static str, String)>);

impl TraceHeaders {
    /// A header of another trace context does not survive beside ours.
    fn replaces(&self, name: &str) -> bool {
        !self.0.is_empty() && ["traceparent", "tracestate", "baggage"].contains(&name)
    }
}

/// Whether a copy keeps a header of the original's. No others are ours, or harm.
pub(crate) fn travels(name: &str) -> bool {
    let stripped = STRIPPED.contains(&name) || STRIPPED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    !stripped && !name.starts_with(PREFIX)
}

/// The properties of a copy, or the news that its headers do not fit into a frame.
pub(crate) type CopyProperties = Result<BasicProperties, HeadersTooLarge>;

/// The message's own headers leave no room for ours, so it cannot wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message's headers take {bytes} bytes, and a copy may have {MAX_HEADER_BYTES}")]
pub(crate) struct HeadersTooLarge {
    bytes: usize,
}

fn copy(original: &BasicProperties, mut headers: BTreeMap<ShortString, AMQPValue>) -> CopyProperties {
    if encoded_size(&headers) > MAX_HEADER_BYTES {
        headers.remove(ERRORS);
    }
    let bytes = encoded_size(&headers);
    if bytes > MAX_HEADER_BYTES {
        return Err(HeadersTooLarge { bytes });
    }
    Ok(properties(original, headers))
}

/// Everything but `expiration`, which would bring the copy home early, and `user_id`, which only its own user may publish:
/// anybody else's channel is closed (3.10, 4.0 and 4.3). Copies are persistent, whatever the original was.
fn properties(original: &BasicProperties, headers: BTreeMap<ShortString, AMQPValue>) -> BasicProperties {
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

/// Reads one delivery's headers and remembers what it could not use.
struct Reader<'a> {
    envelope: &'a Envelope,
    ignored: Vec<Ignored>,
}

impl Reader<'_> {
    fn ignore(&mut self, header: &str, because: &'static str) {
        self.ignored.push(Ignored { header: header.to_owned(), because });
    }

    fn integer(&mut self, header: &str) -> Option<i64> {
        let value = HeaderValue::of(self.envelope.header(header)?);
        let number = match &value {
            HeaderValue::Int(number) => Some(*number),
            HeaderValue::Timestamp(seconds) => {
                i64::try_from(*seconds).ok().and_then(|seconds| seconds.checked_mul(1000))
            }
            other => other.as_text().and_then(|text| text.trim().parse().ok()),
        };
        if number.is_none() {
            self.ignore(header, "it is no whole number");
        }
        number
    }

    fn count(&mut self, header: &str) -> u32 {
        let Some(number) = self.integer(header) else { return 0 };
        let count = u32::try_from(number.max(0)).unwrap_or(u32::MAX).min(MAX_COUNT);
        if i64::from(count) != number {
            self.ignore(header, "it is out of range; the nearest possible count is taken");
        }
        count
    }

    fn moment(&mut self, header: &str) -> Option<Timestamp> {
        let millis = self.integer(header)?;
        if !SANE_MILLIS.contains(&millis) {
            self.ignore(header, "it is no moment in milliseconds since the epoch");
            return None;
        }
        Some(Timestamp::from_millis(millis))
    }

    fn text(&mut self, header: &str) -> Option<String> {
        let value = HeaderValue::of(self.envelope.header(header)?);
        let text = value.as_text().filter(|text| text.len() <= 255).map(str::to_owned);
        if text.is_none() {
            self.ignore(header, "it is no text of at most 255 bytes");
        }
        text
    }

    /// An absurd time to come home would keep the message away from its handler until then.
    fn wait(&mut self, now: Timestamp) -> Option<Wait> {
        let (since, due) = (self.moment(WAITING_SINCE)?, self.moment(DUE_AT)?);
        let tier = Duration::from_millis(u64::try_from(self.integer(WAIT_FOR)?).unwrap_or(0));
        if tier.is_zero() || tier > MAX_DELAY {
            self.ignore(WAIT_FOR, "no wait queue has such a TTL");
            return None;
        }
        if due.since(since.min(now)) > LONGEST_WAIT {
            let absurd = if due > now + LONGEST_WAIT { DUE_AT } else { WAITING_SINCE };
            self.ignore(absurd, "no wait is that long");
            return None;
        }
        Some(Wait { since, due, tier })
    }

    /// The deadline that a producer gave with AMQP's own means: `timestamp` plus `expiration`. A timestamp has whole seconds
    /// only, so the second that it is in counts in the message's favour. Without one, the time starts now.
    fn expiration(&mut self, now: Timestamp) -> Option<Timestamp> {
        let expiration = self.envelope.properties.expiration().as_ref()?;
        let Ok(millis) = expiration.as_str().parse() else {
            self.ignore("expiration", "it is no whole number");
            return None;
        };
        let published = self
            .envelope
            .properties
            .timestamp()
            .and_then(|seconds| i64::try_from(seconds).ok()?.checked_mul(1000)?.checked_add(999))
            .filter(|millis| SANE_MILLIS.contains(millis))
            .map_or(now, Timestamp::from_millis);
        let deadline = published + Duration::from_millis(millis);
        if !SANE_MILLIS.contains(&deadline.as_millis()) {
            self.ignore("expiration", "it is absurdly far away");
            return None;
        }
        Some(deadline)
    }

    fn errors(&mut self) -> Vec<ErrorRecord> {
        let Some(value) = self.envelope.header(ERRORS) else { return Vec::new() };
        let AMQPValue::FieldArray(array) = value else {
            self.ignore(ERRORS, "it is no array");
            return Vec::new();
        };
        let array = array.as_slice();
        let newest = &array[array.len().saturating_sub(MAX_ERRORS)..];
        let records: Vec<_> = newest.iter().filter_map(error_record).collect();
        if records.len() < newest.len() {
            self.ignore(ERRORS, "an entry of it is no failure");
        }
        records
    }
}

fn error_value(record: &ErrorRecord) -> AMQPValue {
    let mut table = FieldTable::default();
    table.insert("at".into(), moment_value(record.at));
    table.insert("attempt".into(), AMQPValue::LongLongInt(i64::from(record.attempt)));
    table.insert("class".into(), text(&record.class));
    table.insert("message".into(), text(&record.message));
    AMQPValue::FieldTable(table)
}

fn error_record(value: &AMQPValue) -> Option<ErrorRecord> {
    let AMQPValue::FieldTable(table) = value else { return None };
    let field = |name: &str| table.inner().get(name).map(HeaderValue::of);
    let (Some(HeaderValue::Int(at)), Some(HeaderValue::Int(attempt))) = (field("at"), field("attempt")) else {
        return None;
    };
    let (class, message) = (field("class")?, field("message")?);
    Some(ErrorRecord::new(
        Timestamp::from_millis(at),
        u32::try_from(attempt).ok()?,
        class.as_text()?,
        message.as_text()?,
    ))
}

/// Names of ours are short; a configured one is checked with the settings.
fn insert(headers: &mut BTreeMap<ShortString, AMQPValue>, name: &str, value: AMQPValue) {
    if let Ok(name) = ShortString::try_new(name) {
        headers.insert(name, value);
    }
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

fn moment_value(moment: Timestamp) -> AMQPValue {
    AMQPValue::LongLongInt(moment.as_millis())
}

pub(crate) fn duration_value(duration: Duration) -> AMQPValue {
    AMQPValue::LongLongInt(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

/// How many bytes a table takes on the wire, with its longest property values besides.
fn encoded_size(headers: &BTreeMap<ShortString, AMQPValue>) -> usize {
    const OTHER_PROPERTIES: usize = 10 * 256;
    OTHER_PROPERTIES + headers.iter().map(|(name, value)| 1 + name.as_str().len() + value_size(value)).sum::<usize>()
}

fn value_size(value: &AMQPValue) -> usize {
    const TYPE: usize = 1;
    const LENGTH: usize = 4;
    TYPE + match value {
        AMQPValue::Void => 0,
        AMQPValue::Boolean(_) | AMQPValue::ShortShortInt(_) | AMQPValue::ShortShortUInt(_) => 1,
        AMQPValue::ShortInt(_) | AMQPValue::ShortUInt(_) => 2,
        AMQPValue::LongInt(_) | AMQPValue::LongUInt(_) | AMQPValue::Float(_) => 4,
        AMQPValue::DecimalValue(_) => 5,
        AMQPValue::LongLongInt(_) | AMQPValue::Double(_) | AMQPValue::Timestamp(_) => 8,
        AMQPValue::ShortString(text) => 1 + text.as_str().len(),
        AMQPValue::LongString(text) => LENGTH + text.len(),
        AMQPValue::ByteArray(bytes) => LENGTH + bytes.len(),
        AMQPValue::FieldArray(array) => LENGTH + array.as_slice().iter().map(value_size).sum::<usize>(),
        AMQPValue::FieldTable(table) => {
            LENGTH
                + table.inner().iter().map(|(name, value)| 1 + name.as_str().len() + value_size(value)).sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests;
