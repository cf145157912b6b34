//! Settles a delivery as was decided: the copy first, then the ack.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::broker::acks::Settlement;
use crate::broker::lane::Outgoing;
use crate::clock;
use crate::consume::attempt::{Attempt, ComesAgain, Slot};
use crate::consume::copy::PreparedCopy;
use crate::consume::copy_deadline::CopyDeadline;
use crate::consume::inbox::Fingerprint as _;
use crate::consume::settler::Settler;
use crate::consume::unacked::hand_back;
use crate::consume::uncopied::{GivenUp, Uncopied, without_copy};
use crate::publish::NotPublished;
use crate::retry::decision::Reason;
use crate::retry::outcome::Outcome;

/// How long to pause before requeueing a message that can be neither copied nor safely
/// dead-lettered.
const UNPUBLISHABLE_PAUSE: Duration = Duration::from_secs(5);

impl Attempt {
    /// Settles the delivery, and returns the outcome. The copy is confirmed before the original is
    /// acked, so a crash between the two makes a duplicate, not a loss.
    ///
    /// # Errors
    ///
    /// Why the delivery was not settled with its outcome. Then it has gone back to its queue,
    /// unless the broker has it again anyway.
    pub(crate) async fn settle(
        &self,
        outcome: Outcome,
        copy: Option<Box<PreparedCopy>>,
        slot: &(impl Slot + Sync),
    ) -> Result<Outcome, GivenUp> {
        let has_copy = copy.is_some();
        // While a subscription is ending, a settlement would make room for more deliveries. Waits
        // before the copy as well: the longer the ack comes after the copy, the likelier a crash
        // leaves a duplicate.
        self.context.settleable().await;
        if let Some(copy) = copy {
            // Most deliveries are settled without a copy, and their tasks should stay small.
            if let Err(why) = Box::pin(self.publish(*copy, outcome)).await {
                return Box::pin(self.settle_uncopied(why, outcome, slot)).await;
            }
            self.context.settleable().await;
        }
        let how = match outcome {
            Outcome::Requeue => Settlement::Requeue,
            // Without a copy, the broker keeps the message until the wait is over.
            Outcome::Wait(_) | Outcome::Defer(_) if !has_copy => Settlement::Nack,
            Outcome::Ack
            | Outcome::Wait(_)
            | Outcome::Defer(_)
            | Outcome::Park(_)
            | Outcome::Discard(_) => Settlement::Ack,
        };
        self.recorded(how, outcome)
    }

    /// Settles, with a span and a metric.
    fn recorded(&self, how: Settlement, outcome: Outcome) -> Result<Outcome, GivenUp> {
        let (context, operation) = (&self.context, how.as_str());
        let span = context.tracer.client(&self.chain, &self.span, operation, &context.config.queue);
        let started = clock::now();
        let is_lost = !self.settler.settle(how);
        let error_type = is_lost.then_some(GivenUp::Lost.error_type());
        context.metrics.operated(operation, clock::elapsed(started), error_type);
        if let Some(error_type) = error_type {
            span.failed(error_type, format!("the channel was closed before the {operation}"));
            return Err(GivenUp::Lost);
        }
        Ok(outcome)
    }

    /// Publishes the copy and returns when the broker has confirmed it. A copy that is given up may
    /// exist.
    async fn publish(&self, copy: PreparedCopy, outcome: Outcome) -> Result<(), GivenUp> {
        let PreparedCopy { outgoing, bare, destination } = copy;
        match (self.publish_one(outgoing, &destination, outcome).await, bare) {
            (Err(GivenUp::Unpublishable), Some(bare)) => {
                self.publish_one(bare, &destination, outcome).await
            }
            (result, _) => result,
        }
    }

    async fn publish_one(
        &self,
        copy: Arc<Outgoing>,
        destination: &str,
        outcome: Outcome,
    ) -> Result<(), GivenUp> {
        if self.settler.is_lost() {
            return Err(GivenUp::Lost);
        }
        let context = &self.context;
        let span = context.tracer.client(&self.chain, &self.span, "send", destination);
        let started = clock::now();
        // Once the broker has the original again, a copy would be a second message, so this is
        // checked first.
        let published = tokio::select! {
            biased;
            () = self.settler.session_ended.cancelled() => Err(GivenUp::Lost),
            () = self.until_copy_deadline(outcome) => Err(GivenUp::Late),
            published = context.publisher.publish(copy, &context.stopping) => published.map_err(|error| match error {
                NotPublished::Unpublishable(_) => {
                    tracing::error!(queue = %context.config.queue, chain = &*self.chain.id, %error, "the message cannot be copied");
                    span.failed(GivenUp::Unpublishable.error_type(), error.to_string());
                    GivenUp::Unpublishable
                }
                NotPublished::Stopped { may_be_stored } => GivenUp::Stopped { may_be_stored },
            }),
        };
        context.metrics.sent(
            destination,
            clock::elapsed(started),
            published.err().map(GivenUp::error_type),
        );
        if let Err(why @ (GivenUp::Late | GivenUp::Lost | GivenUp::Stopped { .. })) = published {
            span.failed(why.error_type(), why.text().to_owned());
        }
        published
    }

    /// Returns when it is time to give the copy up: never, if the delivery would then stay
    /// unsettled.
    async fn until_copy_deadline(&self, outcome: Outcome) {
        if self.without_copy(GivenUp::Late, outcome) == Uncopied::Stay {
            return std::future::pending().await;
        }
        let publishing = &self.context.publishing;
        let Settler { arrived, settle_limit, .. } = self.settler;
        let (is_ordered, now) = (self.context.config.order.is_kept(), clock::now());
        let mut deadline = CopyDeadline::new(
            is_ordered,
            arrived.into_std(),
            settle_limit,
            now,
            publishing.answer_timeout(),
        );
        while let Some(at) = deadline.ask_again_at(clock::now(), publishing.state().is_blocked) {
            tokio::time::sleep_until(at.into()).await;
        }
    }

    fn without_copy(&self, why: GivenUp, outcome: Outcome) -> Uncopied {
        let config = &self.context.config;
        let redeliveries = self.context.contract.redeliveries_of(&self.delivery);
        without_copy(
            why,
            outcome,
            config.declare,
            config.order.is_kept(),
            redeliveries,
            config.policy.delivery_limit,
        )
    }

    /// Settles a delivery whose copy was given up.
    async fn settle_uncopied(
        &self,
        why: GivenUp,
        outcome: Outcome,
        slot: &(impl Slot + Sync),
    ) -> Result<Outcome, GivenUp> {
        let is_unpublishable = why == GivenUp::Unpublishable;
        let is_counted = match self.without_copy(why, outcome) {
            Uncopied::DeadLetter if is_unpublishable => {
                return self.dead_letter(Outcome::Park(Reason::Unpublishable)).await;
            }
            Uncopied::DeadLetter => return self.dead_letter(outcome).await,
            Uncopied::Stay => return self.leave(why).await,
            Uncopied::Requeue => true,
            Uncopied::HandBack => false,
        };
        if is_unpublishable {
            let _ = timeout(UNPUBLISHABLE_PAUSE, self.context.stopping.cancelled()).await;
        }
        self.context.settleable().await;
        slot.handler_ended(Some(ComesAgain {
            fingerprint: self.delivery.fingerprint(),
            is_counted,
        }));
        match is_counted {
            true => self.settler.settle(Settlement::Requeue),
            false => hand_back(&self.context, &self.delivery, &self.settler),
        };
        Err(why)
    }

    /// Leaves the delivery to the end of its session. Its slot stays taken until then; otherwise
    /// the next message of an ordered queue would start. A stop does not wait for it.
    async fn leave(&self, why: GivenUp) -> Result<Outcome, GivenUp> {
        let _left = self.context.leave();
        self.settler.session_ended.cancelled().await;
        Err(why)
    }

    async fn dead_letter(&self, outcome: Outcome) -> Result<Outcome, GivenUp> {
        self.context.settleable().await;
        let settled = self.recorded(Settlement::DeadLetter, outcome);
        // The next message of its line must not start while the broker may still bring this one
        // back.
        if self.context.config.order.is_kept() && !self.settler.is_carried_out().await {
            return self.leave(GivenUp::Lost).await;
        }
        if settled.is_ok() {
            let (queue, chain) = (&self.context.config.queue, &*self.chain.id);
            tracing::warn!(
                %queue, chain,
                "no copy was accepted, so the broker parks the message as it is, without its last failure in the headers"
            );
        }
        settled
    }
}
