//! One attempt at a delivery, from the opening of its span to its settlement.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use opentelemetry::trace::FutureExt as _;
use tokio::time::{Instant, timeout};
use tracing::Instrument as _;

use crate::clock;
use crate::consume::context::{InFlight, QueueContext};
use crate::consume::inbox::Fingerprint as _;
use crate::consume::settler::Settler;
use crate::consume::unacked::Unacked;
use crate::failure::Failure;
use crate::handler::HandlerFuture;
use crate::message::Delivery;
use crate::random::random;
use crate::retry::decision::{Decision, Hold, Limits, Reason, decide, decide_before};
use crate::retry::ledger::Wait;
use crate::retry::outcome::Outcome;
use crate::telemetry::chain::Chain;
use crate::telemetry::flush;
use crate::telemetry::handler_span::handler_span;
use crate::telemetry::spans::{CameBack, ProcessSpan};
use crate::timestamp::Timestamp;
use crate::wait::Path;
use crate::wait::jitter::Draw;

/// A delivery from the opening of its span to its settlement.
pub(crate) struct Attempt {
    pub(crate) context: Arc<QueueContext>,
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) settler: Settler,
    /// Boxed, because the task of a delivery should stay small.
    pub(crate) chain: Box<Chain>,
    pub(crate) span: ProcessSpan,
    received: Timestamp,
    in_flight: InFlight,
}

/// The slot in which a handler runs. What it is told decides which handlers start next.
pub(crate) trait Slot {
    /// The handler has ended; its delivery is not settled yet. `comes_again` tells of one that is
    /// about to go back to its queue. Called once more if it goes back although something else was
    /// decided.
    fn handler_ended(&self, comes_again: Option<ComesAgain>);
}

/// A message that goes back to its queue, and comes again.
pub(crate) struct ComesAgain {
    pub(crate) fingerprint: u64,
    /// Whether it comes again with one more in the broker's count. One that waits in the queue does
    /// not.
    pub(crate) is_counted: bool,
}

/// The flow of one message. If the delivery stays in this process, returns it with the time of its
/// next attempt. The slot is not told then that the handler has ended, or another handler could
/// start before the delivery is held.
pub(crate) async fn attempt(
    unacked: Unacked,
    slot: &(impl Slot + Sync),
) -> Option<(Unacked, Instant)> {
    let attempt = Attempt::open(unacked).await;
    let decided = attempt.run().await;
    if decided.is_hold() {
        return Some(attempt.hold(decided));
    }
    slot.handler_ended(attempt.comes_again(decided.decision));
    attempt.carry_out(&decided, slot).await;
    None
}

/// What was decided and when, and the failure that led to it. A wait begins at that time, so it is
/// as long as it was decided to be.
struct Decided {
    decision: Decision,
    /// Boxed, because the task of a delivery should stay small.
    failure: Option<Box<Failure>>,
    at: SystemTime,
}

impl Decided {
    /// Whether this process keeps the delivery for another attempt.
    fn is_hold(&self) -> bool {
        matches!(self.decision, Decision::Again | Decision::Wait { path: Path::Hold, .. })
    }
}

impl Attempt {
    /// Continues the chain's trace. If the delivery may have killed processes before, first exports
    /// what is known: this process may not live to do so later.
    async fn open(mut unacked: Unacked) -> Self {
        let mut chain = Self::continue_chain(&mut unacked);
        let Unacked { context, delivery, received, settler, in_flight, unanswered, .. } = unacked;
        if let Some(unanswered) = unanswered {
            let limit =
                context.contract.counts_deliveries.then_some(context.config.policy.delivery_limit);
            if context.tracer.came_back(&mut chain, &delivery, CameBack { unanswered, limit }) {
                // Boxed, because it is rare and the task of a delivery should stay small.
                Box::pin(flush::at_once()).await;
            }
        }
        let span = context.tracer.process(&chain, &delivery);
        Self { context, delivery, settler, chain, span, received, in_flight }
    }

    /// The delivery's chain. For a message that has just returned from a wait, records the wait and
    /// how late it ended.
    fn continue_chain(unacked: &mut Unacked) -> Box<Chain> {
        let Unacked { context, delivery, received, chain: held, .. } = unacked;
        let (is_held, received) = (held.is_some(), *received);
        let mut chain = held
            .take()
            .unwrap_or_else(|| Box::new(Self::chain_from_headers(context, delivery, received)));
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

    /// The chain of a delivery, from its headers.
    fn chain_from_headers(
        context: &QueueContext,
        delivery: &Delivery,
        received: Timestamp,
    ) -> Chain {
        let mut ignored = Vec::new();
        let chain = context.tracer.chain(delivery, received, &mut ignored);
        context.malformed.note(&context.config.queue, &delivery.properties, ignored);
        chain
    }

    /// Decodes the body and calls the handler, unless something rules the attempt out, and decides
    /// what becomes of the message.
    async fn run(&self) -> Decided {
        let at = clock::date();
        let before =
            decide_before(self.policy(), &self.delivery.ledger, at.into(), || self.limits());
        if let Some(decision) = before {
            return self.decided(decision, None, at);
        }
        let result = match self.context.handler.prepare(&self.delivery, &self.context.source) {
            Ok(handler) => self.handle(handler).await,
            Err(error) => Err(Failure::undecodable(&error)),
        };
        self.decide(result)
    }

    /// Runs the handler with its time limit, inside the attempt's spans. A panic is a failure of
    /// this message alone, even when a handler that has run out of time panics while it is dropped.
    /// A panic may leave the handler's own state half changed.
    async fn handle(&self, handler: HandlerFuture) -> Result<(), Failure> {
        let (started, limit) = (clock::now(), self.context.config.handler_timeout);
        let handler = handler.instrument(handler_span(
            &self.context.config.queue,
            &self.chain.id,
            &self.delivery,
        ));
        let in_time = async {
            timeout(limit, handler).await.unwrap_or_else(|_| Err(Failure::timeout(limit)))
        };
        let caught = AssertUnwindSafe(in_time)
            .catch_unwind()
            .with_context(self.span.context().clone())
            .await;
        let result = caught.unwrap_or_else(|payload| Err(Failure::panic(payload.as_ref())));
        let failed = result.as_ref().err().filter(|failure| !failure.is_defer());
        self.context.metrics.processed(clock::elapsed(started), failed.map(Failure::class));
        result
    }

    /// Decides. A failure that asks for too long a delay says so in its text.
    fn decide(&self, result: Result<(), Failure>) -> Decided {
        let (at, draw) = (clock::date(), Draw::new(random()));
        let decision = decide(
            self.policy(),
            &self.delivery.ledger,
            &result,
            at.into(),
            || self.limits(),
            draw,
        );
        let failure = result.err().map(|failure| match decision {
            Decision::Park(Reason::DelayTooLong) => {
                let is_ordered = self.context.config.order.is_kept();
                failure.asks_more_than(&self.policy().why_no_longer(is_ordered))
            }
            Decision::Park(Reason::DeferredTooOften) => {
                failure.defers_more_than(self.policy().max_defers)
            }
            _ => failure,
        });
        self.decided(decision, failure, at)
    }

    fn decided(&self, decision: Decision, failure: Option<Failure>, at: SystemTime) -> Decided {
        if decision == Decision::Park(Reason::Unpublishable) {
            let (queue, chain) = (&self.context.config.queue, &*self.chain.id);
            tracing::error!(%queue, chain, "the message's headers fill a frame, so it cannot be requeued; parking it");
        }
        Decided { decision, failure: failure.map(Box::new), at }
    }

    /// What bounds how this delivery may wait or come again. The wall clock may have jumped since
    /// the delivery arrived, so its age is not measured by it.
    fn limits(&self) -> Limits {
        let (context, Settler { arrived, settle_limit, .. }) = (&self.context, &self.settler);
        let held_for = arrived.elapsed();
        let hold = context.hold_limit.map(|limit| Hold {
            max_asked: limit.saturating_sub(held_for),
            time_left: match context.config.order.is_kept() {
                true => Some(Duration::MAX),
                false => settle_limit.checked_sub(held_for + context.config.handler_timeout),
            },
            redeliveries: context.contract.redeliveries_of(&self.delivery),
        });
        // A quorum queue counts its returns in the message's headers.
        let lets_return = !context.contract.counts_deliveries
            || context.publishing.room().lets_return(&self.delivery.properties);
        Limits { hold, lets_return }
    }

    /// What is known of the message when it comes again, if it goes back to its queue.
    fn comes_again(&self, decision: Decision) -> Option<ComesAgain> {
        let is_counted = match decision {
            Decision::Requeue => true,
            Decision::Wait { path: Path::Return, .. } => false,
            Decision::Wait { .. }
            | Decision::Again
            | Decision::Ack
            | Decision::Park(_)
            | Decision::Discard(_) => {
                return None;
            }
        };
        Some(ComesAgain { fingerprint: self.delivery.fingerprint(), is_counted })
    }

    /// Keeps the delivery for its next attempt, with what this process knows of the chain.
    fn hold(self, Decided { decision, failure, at }: Decided) -> (Unacked, Instant) {
        let (since, failure) = (Timestamp::from(at), failure.as_deref());
        let outcome = Outcome::of(decision, since);
        self.span.end(outcome, failure, at);
        self.account(Ok(outcome), failure);
        let wait = match decision {
            Decision::Wait { path, leg, due, .. } => Some(Wait { since, due, leg, path }),
            _ => None,
        };
        let Self { context, delivery, settler, chain, span, received, in_flight } = self;
        let ledger = delivery.ledger.held(failure, wait, outcome.is_defer(), since);
        let due = Instant::now() + outcome.delay().unwrap_or_default();
        let delivery = Arc::new(Delivery { ledger, ..Arc::unwrap_or_clone(delivery) });
        let chain = Some(Box::new(chain.next(span.context(), wait.is_some())));
        (Unacked { context, delivery, received, settler, in_flight, chain, unanswered: None }, due)
    }

    /// Writes the copy that the decision needs, settles, and accounts for the outcome.
    async fn carry_out(&self, decided: &Decided, slot: &(impl Slot + Sync)) {
        let (decision, failure, at) = (decided.decision, decided.failure.as_deref(), decided.at);
        let (outcome, copy) = self.prepare_copy(decision, failure, Timestamp::from(at));
        self.span.end(outcome, failure, at);
        if outcome == Outcome::Requeue {
            self.context.tracer.requeued(&self.chain);
        }
        let settled = self.settle(outcome, copy, slot).await;
        self.account(settled, failure);
    }

    fn policy(&self) -> &crate::RetryPolicy {
        &self.context.config.policy
    }
}
