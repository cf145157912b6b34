//! One delivery, start to end.

use std::panic::AssertUnwindSafe;
use std::time::SystemTime;

use futures_util::FutureExt as _;
use opentelemetry::trace::FutureExt as _;
use tracing::Instrument as _;

use crate::clock;
use crate::consume::attempt::{Attempt, Unacked};
use crate::consume::hold::Held;
use crate::consume::inbox::Fingerprint as _;
use crate::consume::settle::{GivenUp, Settled};
use crate::consume::uncopied::Uncopied;
use crate::decode::DecodeError;
use crate::failure::Failure;
use crate::handler::HandlerFuture;
use crate::random::random;
use crate::retry::decision::{Decision, Reason, decide, decide_before};
use crate::retry::ledger::Wait;
use crate::retry::outcome::Outcome;
use crate::telemetry::handler_span::handler_span;
use crate::timestamp::Timestamp;
use crate::wait::Path;
use crate::wait::jitter::Draw;

/// The flow of one message. `handler_ended` is called between the handler's end and the settlement, with what is known of a
/// message that will be redelivered. Returns a delivery that it has not settled. `handler_ended` is not called for one that waits in this
/// process: others could start between that call and the hold.
pub(crate) async fn run(unacked: Unacked, handler_ended: impl FnOnce(Option<GivenBack>)) -> Option<Left> {
    let attempt = match unacked.unanswered {
        // Boxed, because it is rare and the task of a delivery should stay small.
        Some(unanswered) => Box::pin(Attempt::open_suspect(unacked, unanswered)).await,
        None => Attempt::open(unacked),
    };
    let mut decided = attempt.run().await;
    if let Some(wait) = attempt.holds(decided.decision, Timestamp::from(decided.at)) {
        return Some(Left::Waiting(attempt.keep(decided, wait)));
    }
    decided.decision = attempt.receivable(attempt.unheld(decided.decision));
    handler_ended(attempt.given_back(decided.decision));
    match attempt.close(decided).await {
        Settled::GivenUp(GivenUp::Late(how)) => Some(Left::Uncopied(attempt.into_unacked(), how)),
        Settled::GivenUp(GivenUp::Unpublishable) => Some(Left::Uncopied(attempt.into_unacked(), Uncopied::Requeue)),
        Settled::GivenUp(GivenUp::Lost) | Settled::Done(_) => None,
    }
}

/// A delivery that an attempt has left unsettled.
pub(crate) enum Left {
    /// It stays in this process until its next attempt.
    Waiting(Held),
    /// It should have ended with a copy, and none was confirmed. It is settled in this way instead.
    Uncopied(Unacked, Uncopied),
}

/// A message that goes back to its queue, and comes again.
pub(crate) struct GivenBack {
    pub(crate) fingerprint: u64,
    /// Whether it comes again with one more in the broker's count. One that waits in the queue does not.
    pub(crate) is_counted: bool,
}

/// What was decided and when, and the failure that led to it. A wait begins at that time, so it is as long as it was decided to be.
struct Decided {
    decision: Decision,
    failure: Option<Failure>,
    at: SystemTime,
}

impl Attempt {
    /// Decodes the body and calls the handler, unless something rules the attempt out, and decides what becomes of the message.
    async fn run(&self) -> Decided {
        let at = clock::date();
        if let Some(decision) = decide_before(self.policy(), &self.delivery.ledger, at.into(), self.hold_for()) {
            return Decided { decision, failure: None, at };
        }
        let result = match self.prepare() {
            Ok(handler) => self.handle(handler).await,
            Err(error) => Err(Failure::undecodable(&error)),
        };
        self.decide(result)
    }

    fn prepare(&self) -> Result<HandlerFuture, DecodeError> {
        self.context.handler.prepare(&self.delivery, &self.context.source)
    }

    /// Runs the handler with its time limit, inside the attempt's spans. A panic is a failure of this message alone, even when a
    /// handler that has run out of time panics while it is dropped. It may leave the handler's own state half changed.
    async fn handle(&self, handler: HandlerFuture) -> Result<(), Failure> {
        let (started, limit) = (clock::now(), self.context.config.handler_timeout);
        let handler = handler.instrument(handler_span(&self.context.config.queue, &self.chain.id, &self.delivery));
        let in_time =
            async { tokio::time::timeout(limit, handler).await.unwrap_or_else(|_| Err(Failure::timeout(limit))) };
        let caught = AssertUnwindSafe(in_time).catch_unwind().with_context(self.span.context().clone()).await;
        let result = caught.unwrap_or_else(|payload| Err(Failure::panic(payload.as_ref())));
        let failed = result.as_ref().err().filter(|failure| !failure.is_defer());
        self.context.metrics.processed(clock::elapsed(started), failed.map(Failure::class));
        result
    }

    /// Decides. A failure that asks for too long a delay says so in its text.
    fn decide(&self, result: Result<(), Failure>) -> Decided {
        let (at, draw) = (clock::date(), Draw::new(random()));
        let decision = decide(self.policy(), &self.delivery.ledger, &result, at.into(), self.hold_for(), draw);
        let failure = result.err().map(|failure| match decision {
            Decision::Park(Reason::DelayTooLong) => {
                let is_ordered = self.context.config.order.is_kept();
                failure.asks_more_than(&self.policy().why_no_longer(is_ordered))
            }
            Decision::Park(Reason::DeferredTooOften) => failure.defers_more_than(self.policy().max_defers),
            _ => failure,
        });
        Decided { decision, failure, at }
    }

    /// Parks a message that nobody could receive again: a quorum queue counts its returns in its headers, which may leave no room in
    /// their frame.
    fn receivable(&self, decision: Decision) -> Decision {
        let context = &self.context;
        match decision {
            Decision::Requeue | Decision::Wait { path: Path::Return, .. }
                if context.contract.counts_deliveries
                    && !context.publishing.room().lets_return(&self.delivery.properties) =>
            {
                let (queue, chain) = (&context.config.queue, &*self.chain.id);
                tracing::error!(%queue, chain, "the message's headers fill a frame, so it cannot be given back; parking it");
                Decision::Park(Reason::Unpublishable)
            }
            other => other,
        }
    }

    /// What is known of the message when it comes again, if it goes back to its queue.
    fn given_back(&self, decision: Decision) -> Option<GivenBack> {
        let is_counted = match decision {
            Decision::Requeue => {
                self.context.tracer.requeued(&self.chain);
                true
            }
            Decision::Wait { path: Path::Return, .. } => false,
            Decision::Wait { .. } | Decision::Ack | Decision::Park(_) | Decision::Discard(_) => return None,
        };
        Some(GivenBack { fingerprint: self.delivery.fingerprint(), is_counted })
    }

    /// Accounts for an attempt whose delivery stays in this process.
    fn keep(self, Decided { decision, failure, at }: Decided, wait: Option<Wait>) -> Held {
        let since = Timestamp::from(at);
        let outcome = Outcome::of(decision, since);
        self.span.end(outcome, failure.as_ref(), at);
        self.account(Settled::Done(outcome), failure.as_ref());
        self.hold(wait, outcome.is_defer(), failure.as_ref(), since)
    }

    /// Writes the copy that the decision needs, settles, and accounts for what reached the broker.
    async fn close(&self, Decided { decision, failure, at }: Decided) -> Settled {
        let settlement = self.settlement_of(decision, failure.as_ref(), Timestamp::from(at));
        self.span.end(settlement.outcome, failure.as_ref(), at);
        let settled = self.settle(settlement).await;
        self.account(settled, failure.as_ref());
        settled
    }
}
