//! A confirming channel, and what the broker says on it about the copies that were sent.

use std::collections::HashMap;
use std::sync::Arc;

use lapin::message::BasicReturnMessage;
use lapin::{Channel, Confirmation, Connection, ErrorKind};

use super::Outgoing;
use super::cause::Cause;
use super::channel;
use super::outbox::{CopyId, LaneId};
use super::returns::{Answer, Returns};
use crate::error::describe;

pub(crate) struct Lane {
    /// Shared with the copies that are being sent: cloning lapin's channel clones a dozen handles.
    pub(crate) channel: Arc<Channel>,
    under_way: HashMap<CopyId, Arc<Outgoing>>,
    returns: Returns,
}

/// How the publishing of one copy ended.
pub(crate) struct PublishResult {
    pub(crate) lane: LaneId,
    pub(crate) id: CopyId,
    pub(crate) result: lapin::Result<Confirmation>,
}

/// What some results amount to.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    pub(crate) confirmed: Vec<CopyId>,
    pub(crate) nacked: Vec<CopyId>,
    pub(crate) returned: Vec<CopyId>,
    pub(crate) closed: Option<Cause>,
}

impl Lane {
    pub(crate) async fn open(connection: Arc<Connection>) -> lapin::Result<Self> {
        let channel = channel::open(&connection).await?;
        Ok(Self { channel: Arc::new(channel), under_way: HashMap::new(), returns: Returns::default() })
    }

    /// The returned future sends the copy when it is first polled, and ends with its confirm.
    pub(crate) fn send(
        &mut self,
        lane: LaneId,
        id: CopyId,
        copy: Arc<Outgoing>,
    ) -> impl Future<Output = PublishResult> + Send + 'static {
        self.under_way.insert(id, copy.clone());
        let channel = self.channel.clone();
        async move { PublishResult { lane, id, result: publish(&channel, &copy).await } }
    }

    /// Judges all results that have arrived by now.
    pub(crate) fn sort_results(&mut self, outcomes: Vec<(CopyId, lapin::Result<Confirmation>)>) -> Judgement {
        let (mut answers, mut judgement) = (Vec::new(), Judgement::default());
        let (mut errors, mut failed) = (Vec::new(), Vec::new());
        for (id, result) in outcomes {
            let (is_ack, returned) = match result {
                Ok(Confirmation::Ack(returned)) => (true, returned),
                Ok(Confirmation::Nack(returned)) => (false, returned),
                Ok(Confirmation::NotRequested) => {
                    errors.push(Cause::of("confirms are off"));
                    continue;
                }
                Err(error) => {
                    errors.push(cause(&error));
                    failed.push(id);
                    continue;
                }
            };
            answers.push(Answer { id, is_ack, brought_a_return: returned.is_some() });
            judgement.returned.extend(returned.into_iter().flat_map(|message| self.owners(&message)));
        }
        let verdicts = self.returns.match_acks(&answers, &judgement.returned);
        (judgement.confirmed, judgement.nacked) = (verdicts.confirmed, verdicts.nacked);
        let answered = judgement.confirmed.iter().chain(&judgement.nacked).chain(&judgement.returned).chain(&failed);
        for id in answered {
            self.under_way.remove(id);
        }
        // The error of a copy that was sent while the channel was closing says only that. That of one sent before says why.
        let why = errors.iter().position(|cause| cause.code.is_some());
        if why.is_some() || self.under_way.is_empty() {
            judgement.closed = (!errors.is_empty()).then(|| errors.swap_remove(why.unwrap_or(0)));
        }
        judgement
    }

    /// The copies that a returned message may be: those with its content; failing that, those to its exchange; failing that, all.
    fn owners(&self, message: &BasicReturnMessage) -> Vec<CopyId> {
        let having = |test: &dyn Fn(&Outgoing) -> bool| -> Vec<CopyId> {
            let mut owners: Vec<_> = self.under_way.iter().filter(|(_, copy)| test(copy)).map(|(id, _)| *id).collect();
            owners.sort_unstable();
            owners
        };
        let is_to_its_exchange = |copy: &Outgoing| copy.exchange == message.exchange;
        let is_it = |copy: &Outgoing| {
            is_to_its_exchange(copy)
                && copy.routing_key == message.routing_key
                && copy.body == message.data
                && copy.properties() == message.properties
        };
        [having(&is_it), having(&is_to_its_exchange)]
            .into_iter()
            .find(|owners| !owners.is_empty())
            .unwrap_or_else(|| having(&|_| true))
    }
}

async fn publish(channel: &Channel, copy: &Outgoing) -> lapin::Result<Confirmation> {
    let (exchange, routing_key) = (copy.exchange.clone(), copy.routing_key.clone());
    channel::publish(channel, exchange, routing_key, &copy.body, copy.properties(), copy.mandatory).await
}

/// The cause of an end, from lapin's error. A copy that lapin cannot write ends the connection, as one that the broker cannot read
/// does.
pub(crate) fn cause(error: &lapin::Error) -> Cause {
    let code = match error.kind() {
        ErrorKind::ProtocolError(answer) => Some(answer.get_id()),
        ErrorKind::SerialisationError(_) => Some(501),
        _ => None,
    };
    Cause { code, text: describe(error) }
}
