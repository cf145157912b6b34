//! What is published in place of a message that an operator moves. Pure.

use std::time::Duration;

use lapin::BasicProperties;

use crate::parked::message::{Interpreter, ParkedMessage, Place};
use rehop::Timestamp;
use rehop::internals::Replay;
use rehop::internals::Room;
use rehop::internals::at_rest as parked;
use rehop::internals::at_rest::{Identity, Original, Resting, replayed};

/// Where messages are moved.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Move {
    /// Back to the work queue. With a deadline so far from now; without one, the queue's `max_age`
    /// gives one.
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
    /// What follows the body: headers that do not fit into a frame.
    pub(crate) overflow: Vec<u8>,
}

/// Which message of which run it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbered<'a> {
    pub(crate) run: &'a str,
    pub(crate) number: u32,
    pub(crate) is_canary: bool,
    /// On the run's connection.
    pub(crate) room: Room,
}

/// Why a message cannot be moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Immovable {
    /// Nothing says where it is to go.
    NoDestination,
    /// It cannot be replayed.
    TooLarge(String),
}

impl Interpreter {
    /// The copy that takes a message's place.
    pub(crate) fn copy(
        &self,
        action: &Move,
        message: &ParkedMessage,
        original: Original<'_>,
        numbered: Numbered<'_>,
        now: Timestamp,
    ) -> Result<Copy, Immovable> {
        let origin = message.origin();
        let identity = Identity { chain_id: &message.chain, origin: &origin };
        let room = numbered.room;
        match action {
            Move::Replay { deadline } => {
                let queue = message.destination.as_deref().ok_or(Immovable::NoDestination)?;
                let Numbered { run, number, is_canary, .. } = numbered;
                let replay = Replay {
                    run: run.to_owned(),
                    number,
                    count: message.replays.saturating_add(1),
                    is_canary,
                };
                let deadline = deadline.map(|deadline| now + deadline);
                let expiry = (self.expiry_header.as_str(), deadline);
                let properties =
                    replayed(original.properties, &identity, queue, &replay, expiry, room)
                        .map_err(|error| Immovable::TooLarge(error.to_string()))?;
                let whole = Resting { properties, overflow: Vec::new() };
                Ok(Copy::to(self.names.return_(), message.routing_key.clone(), whole))
            }
            Move::Discard { why, from } => {
                let discard = parked::Discard { at: now, why, run: numbered.run, from };
                let (reason, parked_at) = (&message.reason, message.parked_at);
                let resting =
                    parked::discarded(original, &identity, reason, parked_at, &discard, room);
                let queue = message.destination.clone().unwrap_or_default();
                Ok(Copy::to(self.names.discarded(), queue, resting))
            }
            Move::Restore => {
                let from = message.discarded_from.as_deref().ok_or(Immovable::NoDestination)?;
                let (stray, destination) = (self.names.stray(), message.destination.as_deref());
                let (exchange, routing_key, return_to) = match destination.filter(|_| from != stray)
                {
                    Some(queue) => (self.names.park(), queue.to_owned(), None),
                    None => (stray, message.routing_key.clone(), destination),
                };
                let (reason, parked_at) = (&message.reason, message.parked_at);
                let resting =
                    parked::restored(original, &identity, reason, parked_at, return_to, room);
                Ok(Copy::to(exchange, routing_key, resting))
            }
        }
    }

    /// The copy of a message that is imported to this place, or exported from it.
    pub(crate) fn imported(
        &self,
        message: &ParkedMessage,
        original: Original<'_>,
        room: Room,
    ) -> Copy {
        let origin = message.origin();
        let identity = Identity { chain_id: &message.chain, origin: &origin };
        let (reason, parked_at, destination) =
            (&message.reason, message.parked_at, message.destination.as_deref());
        let queue = destination.unwrap_or_default().to_owned();
        match &self.place {
            Place::Queue(_) => Copy::to(
                self.names.park(),
                queue,
                parked::restored(original, &identity, reason, parked_at, None, room),
            ),
            Place::Stray => {
                let resting =
                    parked::restored(original, &identity, reason, parked_at, destination, room);
                Copy::to(self.names.stray(), message.routing_key.clone(), resting)
            }
            Place::Discarded => Copy::to(
                self.names.discarded(),
                queue,
                parked::moved(original, &identity, reason, parked_at, room),
            ),
        }
    }
}

impl Copy {
    fn to(
        exchange: String,
        routing_key: String,
        Resting { properties, overflow }: Resting,
    ) -> Self {
        Self { exchange, routing_key, properties, overflow }
    }
}

#[cfg(test)]
mod tests;
