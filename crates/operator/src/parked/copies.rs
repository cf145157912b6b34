//! What is published in place of a message that an operator moves. Pure.

use std::time::Duration;

use lapin::BasicProperties;

use crate::parked::message::{Interpreter, ParkedMessage};
use crate::parked::place::Place;
use rehop::Timestamp;
use rehop::internals::Replay;
use rehop::internals::at_rest as parked;
use rehop::internals::at_rest::{Identity, replayed};

/// Where messages are moved.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Move {
    /// Back to the work queue. With a deadline so far from now; without one, the queue's `max_age` gives one.
    Replay { deadline: Option<Duration> },
    /// From this queue into the discarded queue.
    Discard { why: String, from: String },
    /// Out of the discarded queue, back to where it was.
    Restore,
}

impl Move {
    /// What this is called in the log and in metrics.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Replay { .. } => "replay",
            Self::Discard { .. } => "discard",
            Self::Restore => "restore",
        }
    }
}

/// A message that is ready to be published.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Copy {
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
    pub(crate) properties: BasicProperties,
}

/// Which message of which run it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbered<'a> {
    pub(crate) run: &'a str,
    pub(crate) number: u32,
    pub(crate) is_canary: bool,
}

/// Why a message cannot be moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Immovable {
    /// Nothing says where it is to go.
    NoDestination,
    TooLarge(String),
}

impl Interpreter {
    /// The copy that takes a message's place.
    pub(crate) fn copy(
        &self,
        action: &Move,
        message: &ParkedMessage,
        original: &BasicProperties,
        numbered: Numbered<'_>,
        now: Timestamp,
    ) -> Result<Copy, Immovable> {
        let origin = message.origin();
        let identity = Identity { chain_id: &message.chain, origin: &origin };
        let too_large = |error: rehop::internals::HeadersTooLarge| Immovable::TooLarge(error.to_string());
        match action {
            Move::Replay { deadline } => {
                let queue = message.destination.as_deref().ok_or(Immovable::NoDestination)?;
                let Numbered { run, number, is_canary } = numbered;
                let replay =
                    Replay { run: run.to_owned(), number, count: message.replays.saturating_add(1), is_canary };
                let deadline = deadline.map(|deadline| now + deadline);
                let expiry = (self.expiry_header.as_str(), deadline);
                Ok(Copy {
                    exchange: self.names.return_(),
                    routing_key: message.routing_key.clone(),
                    properties: replayed(original, &identity, queue, &replay, expiry).map_err(too_large)?,
                })
            }
            Move::Discard { why, from } => {
                let discard = parked::Discard { at: now, why, run: numbered.run, from };
                let properties = parked::discarded(original, &identity, &message.reason, message.parked_at, &discard);
                Ok(Copy {
                    exchange: self.names.discarded(),
                    routing_key: message.destination.clone().unwrap_or_default(),
                    properties: properties.map_err(too_large)?,
                })
            }
            Move::Restore => {
                let from = message.discarded_from.as_deref().ok_or(Immovable::NoDestination)?;
                let (stray, destination) = (self.names.stray(), message.destination.as_deref());
                let (exchange, routing_key, return_to) = match destination.filter(|_| from != stray) {
                    Some(queue) => (self.names.park(), queue.to_owned(), None),
                    None => (stray, message.routing_key.clone(), destination),
                };
                let properties = parked::restored(original, &identity, &message.reason, message.parked_at, return_to);
                Ok(Copy { exchange, routing_key, properties: properties.map_err(too_large)? })
            }
        }
    }

    /// The copy of a message that is imported to this place, or exported from it.
    pub(crate) fn imported(&self, message: &ParkedMessage, original: &BasicProperties) -> Result<Copy, Immovable> {
        let origin = message.origin();
        let identity = Identity { chain_id: &message.chain, origin: &origin };
        let (reason, parked_at, destination) = (&message.reason, message.parked_at, message.destination.as_deref());
        let queue = destination.unwrap_or_default().to_owned();
        let (exchange, routing_key, properties) = match &self.place {
            Place::Queue(_) => {
                (self.names.park(), queue, parked::restored(original, &identity, reason, parked_at, None))
            }
            Place::Stray => {
                let properties = parked::restored(original, &identity, reason, parked_at, destination);
                (self.names.stray(), message.routing_key.clone(), properties)
            }
            Place::Discarded => (self.names.discarded(), queue, parked::moved(original, &identity, reason, parked_at)),
        };
        let properties = properties.map_err(|error| Immovable::TooLarge(error.to_string()))?;
        Ok(Copy { exchange, routing_key, properties })
    }
}

#[cfg(test)]
mod tests;
