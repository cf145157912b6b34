//! A message at rest, as an operator sees it, and the place where it rests. Pure.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::types::ShortString;
use serde::Serialize;

use crate::parked::belief::believed;
use crate::parked::error::ParkedError;
use crate::telemetry::Resting;
use rehop::Error;
use rehop::ErrorRecord;
use rehop::SettingsError;
use rehop::Timestamp;
use rehop::internals::Address;
use rehop::internals::Names;
use rehop::internals::Resolved;
use rehop::internals::at_rest::{AtRest, read};
use rehop::internals::rested::TraceOf;

/// One of the queues in which messages rest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The parked queue of this work queue.
    Queue(String),
    /// The namespace's stray queue, which keeps unroutable messages.
    Stray,
    /// The namespace's queue of messages that an operator has discarded.
    Discarded,
}

impl Place {
    /// The parked queue of this work queue.
    pub fn queue(queue: impl Into<String>) -> Self {
        Self::Queue(queue.into())
    }

    /// As what messages rest there, in one word.
    pub(crate) const fn rests_as(&self) -> &'static str {
        match self {
            Self::Queue(_) => "parked",
            Self::Stray => "stray",
            Self::Discarded => "discarded",
        }
    }

    /// Whether what rests there was parked. Discarded messages were parked or stray.
    pub(crate) const fn was_parked(&self) -> Option<bool> {
        match self {
            Self::Queue(_) => Some(true),
            Self::Stray => Some(false),
            Self::Discarded => None,
        }
    }

    /// The name of the queue in which the messages rest.
    pub(crate) fn resting(&self, names: &Names, resolved: &Resolved) -> Result<String, Error> {
        Ok(match self {
            Self::Queue(queue) if queue.is_empty() => {
                return Err(SettingsError::invalid(
                    "queue".to_owned(),
                    "a queue's name must not be empty".to_owned(),
                )
                .into());
            }
            Self::Queue(queue) => resolved.queue(queue)?.parked,
            Self::Stray => names.stray(),
            Self::Discarded => names.discarded(),
        })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Queue(queue) => write!(f, "parked messages of queue {queue}"),
            Self::Stray => f.write_str("stray messages"),
            Self::Discarded => f.write_str("discarded messages"),
        }
    }
}

/// A message in a parked, stray or discarded queue: everything but its body and the producer's
/// headers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ParkedMessage {
    /// Its place in the queue, from 1.
    pub position: u64,
    /// The id of its chain: the header, else one derived from its trace, its `message_id` or its
    /// content, which is the same at each look.
    pub chain: String,
    /// Why it was parked: a [`Reason`](rehop::Reason), the broker's reason such as
    /// `delivery_limit`, or `unknown`.
    pub reason: String,
    /// The class of its last failure.
    pub class: Option<String>,
    /// The text of its last failure.
    pub error: Option<String>,
    /// The exchange that it was first published to; empty for the default exchange.
    pub exchange: String,
    /// The routing key that it was first published with.
    pub routing_key: String,
    /// The work queue that a replay would send it to. `None` if nothing in the message tells it.
    pub destination: Option<String>,
    /// Attempts so far, including those that ended in a crash. For a message that the broker
    /// parked: only those before its last wait.
    pub attempts: u32,
    /// Waits so far.
    pub hops: u32,
    /// Its last failures, oldest first, at most ten.
    pub history: Vec<ErrorRecord>,
    /// When the delivery before its first wait was seen. Only copies say so.
    pub first_seen: Option<Timestamp>,
    /// When it was parked.
    pub parked_at: Option<Timestamp>,
    /// Its deadline.
    pub deadline: Option<Timestamp>,
    /// How often it was replayed before.
    pub replays: u32,
    /// The last replay that sent it back.
    pub replay_run: Option<String>,
    /// The discard or the edit that moved it to the discarded queue.
    pub discard_run: Option<String>,
    /// The queue that it was discarded from.
    pub discarded_from: Option<String>,
    /// The `message_id` property.
    pub message_id: Option<String>,
    /// The `content_type` property.
    pub content_type: Option<String>,
    /// The W3C trace context.
    pub traceparent: Option<String>,
    /// The size of its body in bytes.
    pub size: u64,
    /// How often the broker gave it back to its present queue, by the count that a delivery limit
    /// applies to.
    pub returns: u32,
}

/// What a delivery from a queue at rest consists of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw<'a> {
    pub(crate) exchange: &'a str,
    pub(crate) routing_key: &'a str,
    pub(crate) properties: &'a BasicProperties,
    pub(crate) body: &'a [u8],
    pub(crate) redelivered: bool,
}

impl<'a> Raw<'a> {
    pub(crate) fn of(delivery: &'a Delivery) -> Self {
        Self {
            exchange: delivery.exchange.as_str(),
            routing_key: delivery.routing_key.as_str(),
            properties: &delivery.properties,
            body: &delivery.data,
            redelivered: delivery.redelivered,
        }
    }
}

/// What is needed to understand the messages of one queue.
#[derive(Debug, Clone)]
pub(crate) struct Interpreter {
    pub(crate) names: Names,
    pub(crate) place: Place,
    pub(crate) expiry_header: String,
}

impl Interpreter {
    /// What the message says, as far as it is to be [believed].
    pub(crate) fn read(&self, raw: Raw<'_>, position: u64) -> ParkedMessage {
        let properties = self.believed(raw.exchange, raw.properties);
        self.read_as_it_is(Raw { properties: &properties, ..raw }, position)
    }

    /// A message's properties as far as they are to be [believed].
    pub(crate) fn believed<'a>(
        &self,
        exchange: &str,
        properties: &'a BasicProperties,
    ) -> Cow<'a, BasicProperties> {
        believed(&self.names, exchange, properties, &self.expiry_header)
    }

    /// The same for an exported message, whose headers were read as they should be.
    pub(crate) fn read_as_it_is(&self, raw: Raw<'_>, position: u64) -> ParkedMessage {
        let at_rest = read(raw.properties, &self.expiry_header);
        let is_from_park = raw.exchange == self.names.park();
        // The broker has moved it from its work queue.
        let broker =
            at_rest.deaths.first().filter(|death| is_from_park && death.queue == raw.routing_key);
        let reason = match (broker, &at_rest.reason, at_rest.deaths.first()) {
            (Some(death), _, _) => death.reason.clone(),
            (None, Some(reason), _) => reason.clone(),
            (None, None, Some(death)) => death.reason.clone(),
            (None, None, None) => "unknown".to_owned(),
        };
        let (exchange, routing_key) = self.origin(&at_rest, raw);
        let last = at_rest.errors.last();
        let died_at = at_rest.deaths.first().and_then(|death| death.at);
        let parked_at = match broker {
            Some(_) => died_at,
            None => at_rest.parked_at.or(last.map(|error| error.at)).or(died_at),
        };
        let text =
            |property: &Option<ShortString>| property.as_ref().map(|text| text.as_str().to_owned());
        ParkedMessage {
            position,
            chain: chain(&at_rest, raw),
            reason,
            class: last.map(|error| error.class.clone()),
            error: last.map(|error| error.message.clone()),
            exchange,
            routing_key,
            destination: self.destination(&at_rest, raw, is_from_park),
            attempts: at_rest.attempts,
            hops: at_rest.hops,
            history: at_rest.errors,
            first_seen: at_rest.first_seen,
            parked_at,
            deadline: at_rest.deadline,
            replays: at_rest.replays,
            replay_run: at_rest.replay.map(|replay| replay.run),
            discard_run: at_rest.discard_run,
            discarded_from: at_rest.discarded_from,
            message_id: text(raw.properties.message_id()),
            content_type: text(raw.properties.content_type()),
            traceparent: at_rest.traceparent,
            size: raw.body.len() as u64,
            // A producer's own count is shown on the first delivery (3.10, 4.0 and 4.3).
            returns: if raw.redelivered { at_rest.returns } else { 0 },
        }
    }

    /// Refuses a message that another namespace has parked. Where the queue's arguments name no
    /// namespace, only the message's exchange does.
    ///
    /// # Errors
    ///
    /// [`ParkedError::OtherNamespace`].
    pub(crate) fn check_parked_by(&self, queue: &str, exchange: &str) -> Result<(), ParkedError> {
        let namespace = self.names.namespace();
        let parked_by =
            exchange.strip_suffix(".park").filter(|_| matches!(self.place, Place::Queue(_)));
        match parked_by.filter(|other| !other.is_empty() && *other != namespace) {
            Some(other) => Err(ParkedError::OtherNamespace {
                queue: queue.to_owned(),
                other: other.to_owned(),
                namespace: namespace.to_owned(),
            }),
            None => Ok(()),
        }
    }

    /// The work queue. The exchanges that lead to parked and discarded queues route by its name, so
    /// several work queues may share a parked one.
    fn destination(&self, at_rest: &AtRest, raw: Raw<'_>, is_from_park: bool) -> Option<String> {
        let routed = is_from_park || raw.exchange == self.names.discarded();
        if routed && !raw.routing_key.is_empty() {
            return Some(raw.routing_key.to_owned());
        }
        match &self.place {
            Place::Queue(queue) => Some(queue.clone()),
            Place::Stray | Place::Discarded => {
                at_rest.return_to.clone().filter(|queue| !queue.is_empty())
            }
        }
    }

    /// What it was first published to.
    fn origin(&self, at_rest: &AtRest, raw: Raw<'_>) -> (String, String) {
        let present = (raw.exchange.to_owned(), raw.routing_key.to_owned());
        // A parked message that a policy has moved on was published with the work queue's name as
        // its routing key.
        let (park, stray) = (self.names.park(), self.names.stray());
        let death =
            at_rest.deaths.iter().find(|death| death.exchange != park && death.exchange != stray);
        let (exchange, routing_key) =
            death.map_or(present, |death| (death.exchange.clone(), death.routing_key.clone()));
        match &at_rest.exchange {
            // A waiting copy has no routing key header: it was published with that key.
            Some(origin) => (origin.clone(), at_rest.routing_key.clone().unwrap_or(routing_key)),
            None => (exchange, routing_key),
        }
    }
}

impl ParkedMessage {
    /// What it was first published to.
    pub(crate) fn origin(&self) -> Address {
        let short = |text: &str| ShortString::try_new(text).unwrap_or_default();
        Address { exchange: short(&self.exchange), routing_key: short(&self.routing_key) }
    }

    /// What a trace says of its rest when it goes back to this work queue.
    pub(crate) fn resting<'a>(
        &'a self,
        queue: &'a str,
        properties: &BasicProperties,
    ) -> Resting<'a> {
        let trace = TraceOf {
            traceparent: self.traceparent.as_deref(),
            queue,
            chain: &self.chain,
            message_id: self.message_id.as_deref(),
            timestamp: *properties.timestamp(),
        };
        let since = self.rests_since(properties);
        Resting { chain: &self.chain, reason: &self.reason, since, trace }
    }

    /// Since when it rests at the latest. The broker writes whole seconds, in the last of which the
    /// message was still delivered and failed. A discarded message rests since the discard.
    fn rests_since(&self, properties: &BasicProperties) -> Option<Timestamp> {
        const SECOND: Duration = Duration::from_secs(1);
        let at_rest = read(properties, "");
        let death = at_rest.deaths.first().and_then(|death| death.at);
        let parked = self.parked_at.map(|at| {
            let rounded = if death == Some(at) { at + SECOND } else { at };
            self.history.last().map_or(rounded, |error| rounded.max(error.at))
        });
        // Without the discard, the header is not believed.
        let discarded = self.discard_run.as_ref().and(at_rest.discarded_at);
        parked.max(discarded)
    }
}

/// The same derivation as for a span of a message that has no id yet; failing that, one from the
/// content.
fn chain(at_rest: &AtRest, raw: Raw<'_>) -> String {
    if let Some(id) = &at_rest.chain_id {
        return id.clone();
    }
    let trace = at_rest.traceparent.as_deref().and_then(|text| {
        let mut parts = text.trim().split('-');
        let (_, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
        (trace.len() == 32 && span.len() == 16).then(|| format!("{trace}-{span}"))
    });
    let message_id = || {
        raw.properties.message_id().as_ref().map(|id| id.to_string()).filter(|id| !id.is_empty())
    };
    trace.or_else(message_id).unwrap_or_else(|| {
        let mut hasher = DefaultHasher::new();
        (raw.routing_key, raw.body, raw.properties.timestamp()).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parked::samples::sample;
    use rehop::Settings;

    #[test]
    fn each_place_is_one_queue() {
        let mut settings = Settings::default();
        settings.queue_mut("orders").parked = Some("orders.dead".to_owned());
        let (resolved, names) = (settings.resolve().unwrap(), Names::new("ns"));
        for (place, queue, shown) in [
            (Place::queue("orders"), "orders.dead", "parked messages of queue orders"),
            (Place::queue("bills"), "bills.parked", "parked messages of queue bills"),
            (Place::Stray, "ns.stray", "stray messages"),
            (Place::Discarded, "ns.discarded", "discarded messages"),
        ] {
            assert_eq!(place.resting(&names, &resolved).unwrap(), queue);
            assert_eq!(place.to_string(), shown);
        }
        let refused = Place::queue("").resting(&names, &resolved).unwrap_err().to_string();
        assert!(refused.contains("must not be empty"), "{refused}");
    }

    #[test]
    fn what_the_broker_parked_rests_since_the_end_of_the_second_that_it_wrote() {
        use lapin::types::{AMQPValue, FieldArray, FieldTable};
        let death = |seconds: i64| {
            let mut death = FieldTable::default();
            for (name, value) in [("queue", "orders"), ("reason", "delivery_limit")] {
                death.insert(name.into(), AMQPValue::LongString(value.into()));
            }
            death.insert("time".into(), AMQPValue::Timestamp(seconds as u64));
            let deaths = FieldArray::from(vec![AMQPValue::FieldTable(death)]);
            let mut headers = FieldTable::default();
            headers.insert("x-death".into(), AMQPValue::FieldArray(deaths));
            BasicProperties::default().with_headers(headers)
        };
        let at = Timestamp::from_millis;
        let since = |parked_at, failed_at, properties| {
            let history = vec![ErrorRecord::new(at(failed_at), 1, "transient", "down")];
            let message = ParkedMessage { parked_at: Some(at(parked_at)), history, ..sample() };
            message.resting("orders", &properties).since
        };
        let second = 1_700_000_000;
        assert_eq!(since(second * 1000, 1, death(second)), Some(at(second * 1000 + 1000)));
        let by_rehop = since(second * 1000 + 7, 1, death(second));
        assert_eq!(by_rehop, Some(at(second * 1000 + 7)));
        // Another host's clock is ahead.
        let ahead = second * 1000 + 5_000;
        assert_eq!(since(second * 1000, ahead, death(second)), Some(at(ahead)));
    }

    #[test]
    fn a_discarded_message_rests_since_the_discard() {
        use lapin::types::{AMQPValue, FieldTable};
        use rehop::internals::names::DISCARDED_AT;
        let at = |millis| Some(Timestamp::from_millis(millis));
        let (parked, discarded) = (1_700_000_000_000, 1_700_000_060_000);
        let mut headers = FieldTable::default();
        headers.insert(DISCARDED_AT.into(), AMQPValue::LongLongInt(discarded));
        let properties = BasicProperties::default().with_headers(headers);
        let since = |parked_at, discard_run: Option<&str>| {
            let discard_run = discard_run.map(str::to_owned);
            let message = ParkedMessage { parked_at, discard_run, ..sample() };
            message.resting("orders", &properties).since
        };
        assert_eq!(since(at(parked), Some("run")), at(discarded));
        assert_eq!(since(None, Some("run")), at(discarded));
        // A producer has written the header.
        assert_eq!(since(at(parked), None), at(parked));
    }

    #[test]
    fn a_message_that_another_namespace_has_parked_is_refused() {
        let of =
            |place| Interpreter { names: Names::new("ns"), place, expiry_header: String::new() };
        let check =
            |place, exchange: &str| of(place).check_parked_by("orders.parked", exchange).err();
        for own in ["ns.park", "", "shop", ".park", "parked", "other.stray"] {
            assert!(check(Place::queue("orders"), own).is_none(), "{own}");
        }
        let refused = check(Place::queue("orders"), "other.park").unwrap().to_string();
        assert!(
            refused.contains("belongs to namespace \"other\"")
                && refused.contains("--namespace other"),
            "{refused}"
        );
        assert!(
            check(Place::Stray, "other.park").is_none()
                && check(Place::Discarded, "other.park").is_none()
        );
    }
}
