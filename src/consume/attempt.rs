//! A delivery that this process holds, and the attempt to handle it.

use std::sync::Arc;

use crate::consume::context::{InFlight, QueueContext};
use crate::consume::settler::Settler;
use crate::message::Delivery;
use crate::telemetry::chain::Chain;
use crate::telemetry::flush;
use crate::telemetry::spans::{CameBack, ProcessSpan};
use crate::timestamp::Timestamp;

/// A delivery that this process holds and has not settled, as the inbox keeps it until a handler is free.
pub(crate) struct Unacked {
    pub(crate) context: Arc<QueueContext>,
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) received: Timestamp,
    pub(crate) settler: Settler,
    pub(crate) in_flight: InFlight,
    /// Its chain after an earlier attempt, if this process has held it since then.
    pub(crate) held: Option<Box<Chain>>,
    /// How often it came back without an answer, if it may have killed its process.
    pub(crate) unanswered: Option<u32>,
}

/// A delivery from the opening of its span to its settlement.
pub(crate) struct Attempt {
    pub(crate) context: Arc<QueueContext>,
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) settler: Settler,
    /// Boxed, because the task of a delivery should stay small.
    pub(crate) chain: Box<Chain>,
    pub(crate) span: ProcessSpan,
    pub(crate) received: Timestamp,
    pub(crate) in_flight: InFlight,
}

impl Attempt {
    /// Continues the chain's trace.
    pub(crate) fn open(mut unacked: Unacked) -> Self {
        let chain = Self::continued(&mut unacked);
        Self::begun(unacked, chain)
    }

    /// The same for a delivery that may kill its process, as it may have done so often before: exports what is known before it can.
    pub(crate) async fn open_suspect(mut unacked: Unacked, unanswered: u32) -> Self {
        let mut chain = Self::continued(&mut unacked);
        let context = &unacked.context;
        let limit = context.contract.counts_deliveries.then_some(context.config.policy.delivery_limit);
        if context.tracer.came_back(&mut chain, &unacked.delivery, CameBack { unanswered, limit }) {
            flush::at_once().await;
        }
        Self::begun(unacked, chain)
    }

    /// The delivery's chain. For a message that has just returned from a wait, records the wait and how late it ended.
    fn continued(unacked: &mut Unacked) -> Box<Chain> {
        let Unacked { context, delivery, received, held, .. } = unacked;
        let (is_held, received) = (held.is_some(), *received);
        let mut chain = held.take().unwrap_or_else(|| Box::new(Self::chain(context, delivery, received)));
        if let Some(wait) = delivery.ledger.wait.filter(|_| is_held || !delivery.redelivered) {
            let (place, ended) = match is_held {
                true => (context.config.queue.clone(), Timestamp::now()),
                false => (context.names.holder(wait.path, wait.leg), received),
            };
            context.tracer.waited(&mut chain, delivery, &place, ended);
            if delivery.ledger.wait_unfinished.is_none() {
                context.metrics.wait_ended(ended.since(wait.due));
            }
        }
        chain
    }

    fn begun(unacked: Unacked, chain: Box<Chain>) -> Self {
        let Unacked { context, delivery, received, settler, in_flight, .. } = unacked;
        let span = context.tracer.process(&chain, &delivery);
        Self { context, delivery, settler, chain, span, received, in_flight }
    }

    /// The chain of a delivery, from its headers.
    fn chain(context: &QueueContext, delivery: &Delivery, received: Timestamp) -> Chain {
        let mut ignored = Vec::new();
        let chain = context.tracer.chain(delivery, received, &mut ignored);
        context.warned.about(&context.config.queue, ignored);
        chain
    }

    /// The delivery, unsettled as it is.
    pub(crate) fn into_unacked(self) -> Unacked {
        let Self { context, delivery, received, settler, in_flight, .. } = self;
        Unacked { context, delivery, received, settler, in_flight, held: None, unanswered: None }
    }

    pub(crate) fn policy(&self) -> &crate::RetryPolicy {
        &self.context.config.policy
    }
}
