//! A confirming channel, and what the broker says on it about the copies that were sent.

pub(crate) mod cause;
mod outgoing;
mod outstanding;
mod returns;

use std::collections::HashMap;
use std::sync::Arc;

use lapin::message::BasicReturnMessage;
use lapin::types::AMQPValue;
use lapin::{BasicProperties, Confirmation, ErrorKind};

use cause::Cause;
pub use outgoing::Outgoing;
use outstanding::{Outstanding, Reply};
use returns::Judgement;

use super::channel::{is_replaced, open_confirming};
use super::client::{Channel, Connection};
use super::queued::queued;
use crate::error::describe;
use crate::wire::names::{CHAIN_ID, RETURN_TO, WAIT_FOR};

/// A copy of a message, for as long as somebody waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CopyId(pub u64);

/// A confirming channel with the copies that are under way on it.
pub struct Lane {
    pub channel: Arc<dyn Channel>,
    outstanding: Outstanding<Arc<Outgoing>>,
}

/// How the publishing of one copy ended.
pub struct PublishResult {
    pub id: CopyId,
    pub result: lapin::Result<Confirmation>,
}

impl Lane {
    /// `in_use` is how many lanes the connection has.
    pub async fn open(connection: Arc<dyn Connection>, in_use: usize) -> lapin::Result<Self> {
        let opening = open_confirming(&*connection).await;
        if opening.as_ref().is_err_and(|error| is_replaced(&*connection, error, in_use)) {
            // What is not confirmed is sent again on the next connection.
            queued(connection.close("no more channels can be opened"));
        }
        let channel = opening?;
        Ok(Self { channel, outstanding: Outstanding::new() })
    }

    /// The returned future sends the copy when it is first polled, and ends with its confirm.
    pub fn send(
        &mut self,
        id: CopyId,
        copy: Arc<Outgoing>,
    ) -> impl Future<Output = PublishResult> + Send + 'static {
        self.outstanding.sent(id, copy.clone());
        let channel = self.channel.clone();
        async move { PublishResult { id, result: publish(&*channel, &copy).await } }
    }

    /// Judges all results that have arrived by now.
    pub fn sort_results(&mut self, results: Vec<PublishResult>) -> Judgement {
        let replies =
            results.into_iter().map(|PublishResult { id, result }| (id, reply(result))).collect();
        self.outstanding.judge(replies, owners)
    }
}

fn reply(result: lapin::Result<Confirmation>) -> Reply<BasicReturnMessage> {
    match result {
        Ok(Confirmation::Ack(returned)) => Reply::Ack(returned),
        Ok(Confirmation::Nack(returned)) => Reply::Nack(returned),
        Ok(Confirmation::NotRequested) => Reply::Failed(Cause::of("confirms are off")),
        Err(error) => Reply::Failed(cause(&error)),
    }
}

/// The copies that a returned message may be: those with its address, body and place in a chain;
/// failing that, those to its exchange; failing that, all.
fn owners(under_way: &HashMap<CopyId, Arc<Outgoing>>, message: BasicReturnMessage) -> Vec<CopyId> {
    let having = |test: &dyn Fn(&Outgoing) -> bool| -> Vec<CopyId> {
        let mut owners: Vec<_> =
            under_way.iter().filter(|(_, copy)| test(copy)).map(|(id, _)| *id).collect();
        owners.sort_unstable();
        owners
    };
    let is_to_its_exchange = |copy: &Outgoing| copy.exchange == message.exchange;
    let is_it = |copy: &Outgoing| {
        is_to_its_exchange(copy)
            && copy.routing_key == message.routing_key
            && copy.body == message.data
            && identity(&copy.properties()) == identity(&message.properties)
    };
    [having(&is_it), having(&is_to_its_exchange)]
        .into_iter()
        .find(|owners| !owners.is_empty())
        .unwrap_or_else(|| having(&|_| true))
}

/// The headers by which copies differ whose content is the same. All properties cannot be compared:
/// a NaN in a header is not equal to itself.
fn identity(properties: &BasicProperties) -> [Option<AMQPValue>; 3] {
    let headers = properties.headers().as_ref();
    [CHAIN_ID, RETURN_TO, WAIT_FOR]
        .map(|name| headers.and_then(|headers| headers.inner().get(name).cloned()))
}

async fn publish(channel: &dyn Channel, copy: &Outgoing) -> lapin::Result<Confirmation> {
    let (exchange, routing_key) = (copy.exchange.clone(), copy.routing_key.clone());
    channel.publish(exchange, routing_key, &copy.body, copy.properties(), copy.mandatory).await
}

/// The cause of an end, from lapin's error. A copy that lapin cannot write ends the connection, as
/// one that the broker cannot read does.
pub(crate) fn cause(error: &lapin::Error) -> Cause {
    let code = match error.kind() {
        ErrorKind::ProtocolError(answer) => Some(answer.get_id()),
        ErrorKind::SerialisationError(_) => Some(501),
        _ => None,
    };
    Cause { code, text: describe(error) }
}

#[cfg(test)]
mod tests {
    use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};

    use super::*;

    #[test]
    fn the_end_of_a_channel_is_told_from_the_end_of_a_connection() {
        let is_of_channel = |kind: ErrorKind| cause(&kind.into()).is_of_channel();
        let protocol =
            |kind: AMQPErrorKind| ErrorKind::ProtocolError(AMQPError::new(kind, "why".into()));
        assert!(is_of_channel(protocol(AMQPSoftError::PRECONDITIONFAILED.into())));
        assert!(!is_of_channel(protocol(AMQPHardError::FRAMEERROR.into())));
        assert!(!is_of_channel(ErrorKind::MissingHeartbeatError));
    }
}
