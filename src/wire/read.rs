//! Reads a delivery's headers.

use std::time::Duration;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, ShortString};

use super::Contract;
use super::moment::millis;
use super::names::*;
use super::values::error_records;
use crate::message::{Address, Delivery, HeaderValue, header};
use crate::retry::ledger::{ErrorRecord, Ledger, Replay, Wait};
use crate::timestamp::Timestamp;
use crate::wait::{MAX_DELAY, Path};

/// No wait is longer than this: the longest delay, and as much again because waits are rounded up
/// to whole tiers. A due date beyond it is not ours, and would keep its message waiting for years.
const LONGEST_WAIT: Duration = MAX_DELAY.saturating_mul(2);

/// Numbers above this are absurd as a count.
pub(super) const MAX_COUNT: u32 = 1_000_000;
/// Times before 1973 or after 5138 are absurd. Seconds that were mistaken for milliseconds are
/// before.
pub(super) const SANE_MILLIS: std::ops::Range<i64> = 100_000_000_000..100_000_000_000_000;

/// How a copy came home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Home {
    /// By the return exchange.
    Return,
    /// By the exchange behind the rung with this TTL, in milliseconds.
    After(u64),
    /// By the delayed exchange.
    Delay,
}

/// A header whose value was ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ignored {
    pub(crate) header: String,
    pub(crate) because: &'static str,
}

impl Contract {
    /// Whether a message is our own copy, back from a wait. Then, and only then, its ledger is
    /// believed.
    pub(super) fn is_own_copy(&self, address: &Address) -> bool {
        self.home(address).is_some()
    }

    fn home(&self, address: &Address) -> Option<Home> {
        let (exchange, homes) = (address.exchange.as_str(), &self.homes);
        if exchange == homes.return_exchange {
            return Some(Home::Return);
        }
        if exchange == homes.delay_exchange {
            return Some(Home::Delay);
        }
        let mut rungs = homes.after_prefixes.iter().filter_map(|own| exchange.strip_prefix(own));
        rungs.find_map(|rung| rung.parse().ok()).map(Home::After)
    }

    /// Reads a delivery's ledger and what the message was first published to, and says which
    /// headers were ignored.
    pub(crate) fn read(
        &self,
        address: &Address,
        redelivered: bool,
        properties: &BasicProperties,
        now: Timestamp,
    ) -> (Ledger, Address, Vec<Ignored>) {
        let mut reader = Reader::new(properties);
        let (redeliveries, waits) = self.returns(redelivered, &mut reader);
        let stated = reader.moment(&self.expiry_header);
        let Some(home) = self.home(address) else {
            let deadline =
                stated.or_else(|| reader.expiration(now)).or_else(|| self.deadline_from(now));
            let ledger =
                Ledger { attempts: waits, hop: waits, redeliveries, deadline, ..Ledger::new(now) };
            return (ledger, address.clone(), reader.ignored);
        };
        let first_seen = reader.moment(FIRST_SEEN_AT).filter(|seen| *seen <= now).unwrap_or(now);
        let wait = reader.wait(home, now);
        let errors = reader.errors();
        let defers = reader.count(DEFERS);
        let replay = reader.replay();
        // A replayed message comes back without having waited, and starts again.
        let starts_again = replay.is_some() && reader.header(HOP).is_none();
        let ledger = Ledger {
            attempts: reader.count(ATTEMPT).saturating_add(waits),
            // A message that was only deferred has not waited yet.
            hop: reader
                .count(HOP)
                .max(u32::from(!starts_again && defers == 0))
                .saturating_add(waits),
            defers,
            is_copy: true,
            redeliveries,
            first_seen,
            first_failed: match reader.header(FIRST_FAILED_AT) {
                Some(_) => reader.moment(FIRST_FAILED_AT),
                None => errors.first().map(|error| error.at),
            },
            deadline: stated
                .or_else(|| self.deadline_from(if starts_again { now } else { first_seen })),
            wait,
            wait_unfinished: wait.and_then(|wait| wait.unfinished(now)),
            errors,
            chain_id: reader.text(CHAIN_ID),
            replay,
        };
        let origin = Address {
            exchange: reader.name(EXCHANGE).unwrap_or_else(|| address.exchange.clone()),
            routing_key: reader.name(ROUTING_KEY).unwrap_or_else(|| address.routing_key.clone()),
        };
        (ledger, origin, reader.ignored)
    }

    /// The deadline of a message that brings none.
    fn deadline_from(&self, first_seen: Timestamp) -> Option<Timestamp> {
        self.max_age.map(|max_age| first_seen + max_age)
    }

    /// How often the broker gave the message back at once, and how often after a wait in the queue.
    /// A nack, after which 4.3 makes a message wait, is only in `x-acquired-count`; a reject and a
    /// lost channel are in both counts.
    fn returns(&self, redelivered: bool, reader: &mut Reader<'_>) -> (Option<u32>, u32) {
        let redeliveries = self.redeliveries(redelivered, reader);
        if !redelivered || !self.counts_waits {
            return (redeliveries, 0);
        }
        // A broker before 4.3, which does not delay: a nack is in the delivery count alone, and
        // nothing else would bound the waits.
        let Some(acquired) = acquired(reader) else {
            return (redeliveries, redeliveries.unwrap_or(0));
        };
        // What another queue had counted before it dead-lettered the message would hide as many
        // waits.
        let counted = redeliveries.filter(|count| *count <= acquired).unwrap_or(0);
        (Some(counted), acquired - counted)
    }

    /// How often the broker gave a delivery's message back, as far as it counts.
    pub(crate) fn redeliveries_of(&self, delivery: &Delivery) -> Option<u32> {
        self.redeliveries(delivery.redelivered, &mut Reader::new(&delivery.properties))
    }

    /// How often the broker gave the message back. Its count is believed only of a redelivered
    /// message: a producer's own `x-delivery-count` is shown on the first delivery (3.10, 4.0 and
    /// 4.3). On 4.3 a message that was only handed back has just an `x-acquired-count`, and the
    /// producer's `x-delivery-count` stays beside it. The broker's own is above `x-acquired-count`
    /// only if the message was dead-lettered into the queue, whose limit then counts on from there.
    fn redeliveries(&self, redelivered: bool, reader: &mut Reader<'_>) -> Option<u32> {
        if !redelivered {
            return Some(0);
        }
        if !self.counts_deliveries {
            return None;
        }
        let acquired = acquired(reader);
        match reader.header(DELIVERY_COUNT) {
            Some(_) => {
                let count = reader.count(DELIVERY_COUNT);
                let is_a_producers = acquired.is_some_and(|acquired| count > acquired)
                    && reader.header(DEATHS).is_none();
                Some(if is_a_producers { 0 } else { count })
            }
            None => acquired.map(|_| 0),
        }
    }
}

/// How often a redelivered message was handed to a consumer and came back, which 4.3 alone tells.
/// It does not tell 0: that is a producer's own.
fn acquired(reader: &mut Reader<'_>) -> Option<u32> {
    reader
        .header(ACQUIRED_COUNT)
        .is_some()
        .then(|| reader.count(ACQUIRED_COUNT))
        .filter(|count| *count > 0)
}

/// Reads one delivery's headers, and notes those that it ignores.
pub(super) struct Reader<'a> {
    properties: &'a BasicProperties,
    ignored: Vec<Ignored>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(properties: &'a BasicProperties) -> Self {
        Self { properties, ignored: Vec::new() }
    }

    pub(super) fn header(&self, name: &str) -> Option<&'a AMQPValue> {
        header(self.properties, name)
    }

    fn ignore(&mut self, header: &str, because: &'static str) {
        self.ignored.push(Ignored { header: header.to_owned(), because });
    }

    fn integer(&mut self, header: &str) -> Option<i64> {
        let value = HeaderValue::of(self.header(header)?);
        let number = match &value {
            HeaderValue::Int(number) => Some(*number),
            HeaderValue::Timestamp(seconds) => seconds.checked_mul(1000),
            other => other.as_text().and_then(|text| text.trim().parse().ok()),
        };
        if number.is_none() {
            self.ignore(header, "it is not an integer");
        }
        number
    }

    pub(super) fn count(&mut self, header: &str) -> u32 {
        let Some(number) = self.integer(header) else { return 0 };
        let count = u32::try_from(number.max(0)).unwrap_or(u32::MAX).min(MAX_COUNT);
        if i64::from(count) != number {
            self.ignore(header, "it is out of range; the nearest possible count is used");
        }
        count
    }

    pub(super) fn moment(&mut self, header: &str) -> Option<Timestamp> {
        let Some(millis) = millis(&HeaderValue::of(self.header(header)?)) else {
            self.ignore(header, "it is not a time in milliseconds since the epoch or in RFC 3339");
            return None;
        };
        if !SANE_MILLIS.contains(&millis) {
            self.ignore(
                header,
                "it is not a time in milliseconds since the epoch, or out of range",
            );
            return None;
        }
        Some(Timestamp::from_millis(millis))
    }

    pub(super) fn text(&mut self, header: &str) -> Option<String> {
        let value = HeaderValue::of(self.header(header)?);
        let text = value.as_text().filter(|text| text.len() <= 255).map(str::to_owned);
        if text.is_none() {
            self.ignore(header, "it is not text of at most 255 bytes");
        }
        text
    }

    pub(super) fn name(&mut self, header: &str) -> Option<ShortString> {
        self.text(header).and_then(|text| ShortString::try_new(text).ok())
    }

    /// The last replay.
    pub(super) fn replay(&mut self) -> Option<Replay> {
        let run = self.text(REPLAY_RUN)?;
        let (number, count) = (self.count(REPLAY_NUMBER), self.count(REPLAYS).max(1));
        Some(Replay {
            run,
            number,
            count,
            is_canary: self.header(CANARY) == Some(&AMQPValue::Boolean(true)),
        })
    }

    /// The last wait. One that no policy can make is ignored: a due date in the far future would
    /// keep the message from its handler until then.
    fn wait(&mut self, home: Home, now: Timestamp) -> Option<Wait> {
        let since = self.moment(WAITING_SINCE)?;
        let stated = self.header(DUE_AT).map(|_| self.moment(DUE_AT));
        let first = u64::try_from(self.integer(WAIT_FOR)?).unwrap_or(0);
        let (leg, path, longest) = match home {
            Home::Return => (first, Path::Tier, MAX_DELAY),
            Home::Delay => (first, Path::Delayed, MAX_DELAY),
            Home::After(last) => {
                let (sum, rung) = self.rungs_taken(first, last);
                (sum, Path::Ladder { rung: Duration::from_millis(rung) }, LONGEST_WAIT)
            }
        };
        let leg = Duration::from_millis(leg);
        if leg.is_zero() || leg > longest {
            self.ignore(WAIT_FOR, "no wait queue has this TTL");
            return None;
        }
        let due = stated.unwrap_or(Some(since + leg))?;
        if due.since(since.min(now)) > LONGEST_WAIT {
            let absurd =
                if stated.is_some() && due > now + LONGEST_WAIT { DUE_AT } else { WAITING_SINCE };
            self.ignore(absurd, "no wait is that long");
            return None;
        }
        Some(Wait { since, due, leg, path })
    }

    /// How long the rungs of a copy's itinerary are in all, and the last of them, up to the one
    /// that it came home from. If that is not the last of the itinerary, a binding from it to the
    /// next was missing.
    fn rungs_taken(&self, first: u64, last: u64) -> (u64, u64) {
        let (mut sum, mut rung) = (first, first);
        while rung != last {
            let next =
                self.header(&then(rung.into())).map(HeaderValue::of).and_then(
                    |value| match value {
                        HeaderValue::Int(ttl) => u64::try_from(ttl).ok(),
                        _ => None,
                    },
                );
            // Rungs only get shorter, so this ends whatever the headers say.
            let Some(next) = next.filter(|next| *next < rung) else { break };
            (sum, rung) = (sum.saturating_add(next), next);
        }
        (sum, rung)
    }

    /// The deadline that a producer set by AMQP's own properties: `timestamp` plus `expiration`. A
    /// timestamp has whole seconds, so the message gets all of its second. Without a timestamp the
    /// time starts now. It also starts now if the deadline would already have passed: the broker
    /// delivers no message that has outlived its `expiration`, so that timestamp is no publishing
    /// time.
    fn expiration(&mut self, now: Timestamp) -> Option<Timestamp> {
        let expiration = self.properties.expiration().as_ref()?;
        let Ok(millis) = expiration.as_str().parse() else {
            self.ignore("expiration", "it is not an integer");
            return None;
        };
        let lifetime = Duration::from_millis(millis);
        let published = self
            .properties
            .timestamp()
            .and_then(|seconds| i64::try_from(seconds).ok()?.checked_mul(1000)?.checked_add(999))
            .filter(|millis| SANE_MILLIS.contains(millis))
            .map(Timestamp::from_millis)
            .filter(|published| *published + lifetime > now)
            .unwrap_or(now);
        let deadline = published + lifetime;
        if !SANE_MILLIS.contains(&deadline.as_millis()) {
            self.ignore("expiration", "it is too far in the future");
            return None;
        }
        Some(deadline)
    }

    pub(super) fn errors(&mut self) -> Vec<ErrorRecord> {
        let Some(value) = self.header(ERRORS) else { return Vec::new() };
        error_records(value).unwrap_or_else(|| {
            self.ignore(ERRORS, "it is not a list of failures in JSON");
            Vec::new()
        })
    }
}
