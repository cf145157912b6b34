//! A delivery whose attempt has started: its chain's trace is continued, and the attempt's span is
//! open.

use crate::broker::acks::Settlement;
use crate::clock;
use crate::consume::context::QueueContext;
use crate::consume::onlooker::Sighting;
use crate::consume::taken::Taken;
use crate::failure::Failure;
use crate::message::Delivery;
use crate::publish::GivenUp;
use crate::retry::outcome::Outcome;
use crate::telemetry::chain::Chain;
use crate::telemetry::flush;
use crate::telemetry::spans::{CameBack, ProcessSpan};
use crate::timestamp::Timestamp;

/// A delivery, with its place in the trace of its chain.
pub(crate) struct Started {
    /// Boxed, because the task of a delivery should stay small.
    pub(crate) taken: Box<Taken>,
    pub(crate) chain: Box<Chain>,
    pub(crate) span: ProcessSpan,
}

/// Continues the chain's trace and opens the span of an attempt. If the delivery may have killed
/// processes before, first exports what is known: this process may not live to do so later.
pub(crate) async fn start(mut taken: Box<Taken>) -> Started {
    let mut chain = continue_chain(&mut taken);
    let Taken { context, delivery, .. } = &*taken;
    if let Some(unanswered) = taken.unanswered {
        let limit =
            context.contract.counts_deliveries.then_some(context.config.policy.delivery_limit);
        if context.tracer.came_back(&mut chain, delivery, CameBack { unanswered, limit }) {
            // Boxed, because it is rare.
            Box::pin(flush::at_once()).await;
        }
    }
    let span = context.tracer.process(&chain, delivery);
    Started { taken, chain, span }
}

impl Started {
    /// Settles the delivery, with a metric, and with a span if there is something to tell.
    ///
    /// # Errors
    ///
    /// When its channel is gone: the broker has it again.
    pub(crate) fn settle(&self, outcome: Outcome, how: Settlement) -> Result<Outcome, GivenUp> {
        let Self { taken, chain, span } = self;
        let Taken { context, .. } = &**taken;
        let operation = how.as_str();
        let since = clock::now();
        let is_lost = !taken.settle(how);
        let error_type = is_lost.then_some(GivenUp::ChannelClosed.error_type());
        let took = clock::elapsed(since);
        context.metrics.operated(operation, took, error_type);
        context.tracer.settled(chain, span, (operation, outcome), took, error_type);
        if is_lost { Err(GivenUp::ChannelClosed) } else { Ok(outcome) }
    }

    /// Tells a test, if it runs in one, that the handler begins, or of an outcome.
    pub(crate) fn tell(&self, outcome: Option<Outcome>, failure: Option<&Failure>) {
        let Taken { context, delivery, .. } = &*self.taken;
        let Some(onlooker) = &context.onlooker else { return };
        onlooker(&Sighting {
            queue: &context.config.queue,
            message_id: delivery.properties.message_id().as_ref().map(|id| id.as_str()),
            attempt: delivery.ledger.attempt(),
            outcome,
            failure,
        });
    }
}

/// The delivery's chain. For a message that has just returned from a wait, records the wait and how
/// late it ended.
fn continue_chain(taken: &mut Taken) -> Box<Chain> {
    let Taken { context, delivery, received, chain: held, .. } = taken;
    let (is_held, received) = (held.is_some(), *received);
    let mut chain =
        held.take().unwrap_or_else(|| Box::new(chain_from_headers(context, delivery, received)));
    if let Some(wait) = delivery.ledger.wait.filter(|_| is_held || !delivery.redelivered) {
        let (holder, ended) = match is_held {
            true => (context.config.queue.clone(), Timestamp::now()),
            false => (context.names.holder(wait.path, wait.leg), received),
        };
        context.tracer.waited(&mut chain, delivery, &holder, ended);
        if delivery.ledger.wait_unfinished.is_none() {
            context.metrics.wait_ended(ended.since(wait.due));
        }
    }
    chain
}

fn chain_from_headers(context: &QueueContext, delivery: &Delivery, received: Timestamp) -> Chain {
    let mut ignored = Vec::new();
    let chain = context.tracer.chain(delivery, received, &mut ignored);
    context.malformed.note(&context.config.queue, &delivery.properties, ignored);
    chain
}
