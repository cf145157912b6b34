//! Carries a settlement out: the copy first, then the ack.

use std::sync::Arc;
use std::time::Duration;

use crate::broker::lane::Outgoing;
use crate::clock;
use crate::consume::attempt::Attempt;
use crate::consume::copy::{PreparedCopy, Settlement};
use crate::consume::copy_deadline::{CopyDeadline, CopyTime};
use crate::consume::settler::Settler;
use crate::consume::uncopied::{Uncopied, when_impossible, when_late};
use crate::retry::decision::Reason;
use crate::retry::outcome::Outcome;

/// How a delivery was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// With this outcome. Its ack, reject or nack is queued for the broker.
    Done(Outcome),
    /// Not with its outcome. The intake returns it, unless its channel is gone.
    GivenUp(GivenUp),
}

/// Why a delivery was not settled with its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// The copy was not confirmed, and the shortest ack timeout that is known is nearly over.
    Late(Uncopied),
    /// The broker accepts no copy of the message, and would perhaps not park it if it were dead-lettered.
    Unpublishable,
    /// The channel was gone. The broker has the message again.
    Lost,
}

impl GivenUp {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Late(_) => "the broker did not confirm the copy in time",
            Self::Unpublishable => "the broker accepts no copy",
            Self::Lost => "the channel was gone",
        }
    }

    /// What to do about it, and what happens otherwise.
    pub(crate) const fn advice(self, counts_deliveries: bool) -> &'static str {
        match (self, counts_deliveries) {
            (Self::Lost, _) => "",
            (Self::Unpublishable, true) => {
                "; an earlier line says why. Past its delivery limit, the broker dead-letters it, or deletes it if the queue has no \
                 dead-letter exchange"
            }
            (Self::Unpublishable, false) => {
                "; an earlier line says why. This queue counts no deliveries, so the handler runs again each time"
            }
            (Self::Late(_), true) => {
                "; if the broker refuses copies, an earlier line says why: repair that, because the message comes to its delivery limit"
            }
            (Self::Late(_), false) => {
                "; if the broker refuses copies, an earlier line says why: repair that, because this queue counts no deliveries, so the \
                 handler runs again each time"
            }
        }
    }

    const fn error_type(self) -> &'static str {
        match self {
            Self::Late(_) => "timeout",
            Self::Unpublishable => "unpublishable",
            Self::Lost => "channel_closed",
        }
    }
}

/// What became of a copy.
enum Sent {
    Confirmed,
    /// It was not confirmed, and may exist.
    GivenUp(GivenUp),
    /// The broker accepts no copy of this message.
    Impossible,
}

/// How long to pause before requeueing a message that can be neither copied nor safely dead-lettered.
pub(crate) const UNPUBLISHABLE_PAUSE: Duration = Duration::from_secs(5);

impl Attempt {
    /// Carries a settlement out. The copy is confirmed before the original is acked, so a crash between the two makes a
    /// duplicate, not a loss.
    pub(crate) async fn settle(&self, settlement: Settlement) -> Settled {
        let (has_copy, outcome) = (settlement.copy.is_some(), settlement.outcome);
        // Before the copy too: a copy whose original is not settled soon may become a duplicate.
        self.context.settleable().await;
        if let Some(copy) = settlement.copy {
            // Most deliveries are settled without a copy, and their tasks should stay small.
            let if_late = self.when_late(outcome);
            match Box::pin(self.send_copy(copy, if_late)).await {
                Sent::Confirmed => {}
                Sent::GivenUp(GivenUp::Late(Uncopied::DeadLetter)) => return Box::pin(self.dead_letter(outcome)).await,
                Sent::GivenUp(why) => {
                    // A requeue settles the delivery too, so it also waits until settling is allowed.
                    self.context.settleable().await;
                    return Settled::GivenUp(why);
                }
                Sent::Impossible => return Box::pin(self.settle_uncopied()).await,
            }
        }
        self.context.settleable().await;
        match outcome {
            Outcome::Requeue => self.requeue(),
            // Without a copy, the broker keeps the message until the wait is over.
            Outcome::Wait(_) if !has_copy => self.recorded("nack", || self.settler.nack(), outcome),
            _ => self.recorded("ack", || self.settler.ack(), outcome),
        }
    }

    fn requeue(&self) -> Settled {
        self.recorded("reject", || self.settler.requeue(), Outcome::Requeue)
    }

    /// Settles, with a span and a metric.
    fn recorded(&self, operation: &'static str, act: impl FnOnce() -> bool, outcome: Outcome) -> Settled {
        let context = &self.context;
        let span = context.tracer.client(&self.chain, &self.span, operation, &context.config.queue);
        let started = clock::now();
        let settled = act();
        let error_type = (!settled).then_some("channel_closed");
        context.metrics.operated(operation, clock::elapsed(started), error_type);
        if let Some(error_type) = error_type {
            span.failed(error_type, format!("the channel was closed before the {operation}"));
            return Settled::GivenUp(GivenUp::Lost);
        }
        Settled::Done(outcome)
    }

    async fn send_copy(&self, copy: PreparedCopy, if_late: Uncopied) -> Sent {
        let PreparedCopy { outgoing, bare, destination } = copy;
        match (self.send(outgoing, &destination, if_late).await, bare) {
            (Sent::Impossible, Some(bare)) => self.send(bare, &destination, if_late).await,
            (sent, _) => sent,
        }
    }

    async fn send(&self, outgoing: Arc<Outgoing>, destination: &str, if_late: Uncopied) -> Sent {
        if self.settler.is_lost() {
            // Otherwise the slot would be free before the session ends, and in an ordered queue the next message would start.
            self.settler.lost.cancelled().await;
            return Sent::GivenUp(GivenUp::Lost);
        }
        let context = &self.context;
        let span = context.tracer.client(&self.chain, &self.span, "send", destination);
        let started = clock::now();
        // Once the broker has the original again, a copy would be a second message, so this is checked first.
        let published = tokio::select! {
            biased;
            () = self.settler.lost.cancelled() => Err(GivenUp::Lost),
            () = self.late(if_late) => Err(GivenUp::Late(if_late)),
            published = context.publisher.publish(outgoing) => Ok(published),
        };
        let error_type = match &published {
            Err(given_up) => Some(given_up.error_type()),
            Ok(Err(_)) => Some("unpublishable"),
            Ok(Ok(())) => None,
        };
        context.metrics.sent(destination, clock::elapsed(started), error_type);
        match published {
            Ok(Ok(())) => Sent::Confirmed,
            Ok(Err(error)) => {
                tracing::error!(queue = %context.config.queue, chain = &*self.chain.id, %error, "the message cannot be copied");
                span.failed("unpublishable", error.to_string());
                Sent::Impossible
            }
            Err(given_up) => {
                span.failed(given_up.error_type(), given_up.text().to_owned());
                Sent::GivenUp(given_up)
            }
        }
    }

    fn when_late(&self, outcome: Outcome) -> Uncopied {
        let config = &self.context.config;
        let redeliveries = self.context.contract.redeliveries_of(&self.delivery);
        when_late(outcome, config.declare, config.order.is_kept(), redeliveries, config.policy.delivery_limit)
    }

    /// Returns when the confirm of a copy is not awaited any longer.
    async fn late(&self, if_late: Uncopied) {
        if if_late == Uncopied::Stay {
            return std::future::pending().await;
        }
        let publishing = &self.context.publishing;
        let Settler { arrived, settle_limit, .. } = self.settler;
        let time = CopyTime::new(self.context.config.order.is_kept(), arrived.into_std(), settle_limit);
        let mut limit = CopyDeadline::new(time, clock::now(), publishing.answer_timeout());
        while let Some(at) = limit.ask_again_at(clock::now(), publishing.state().is_blocked) {
            tokio::time::sleep_until(at.into()).await;
        }
    }

    /// Settles a message of which the broker accepts no copy.
    async fn settle_uncopied(&self) -> Settled {
        let config = &self.context.config;
        match when_impossible(config.declare, config.order.is_kept()) {
            Uncopied::DeadLetter => self.dead_letter(Outcome::Park(Reason::Unpublishable)).await,
            Uncopied::Requeue => {
                tokio::time::sleep(UNPUBLISHABLE_PAUSE).await;
                self.context.settleable().await;
                Settled::GivenUp(GivenUp::Unpublishable)
            }
            Uncopied::HandBack | Uncopied::Stay => {
                self.settler.lost.cancelled().await;
                Settled::GivenUp(GivenUp::Lost)
            }
        }
    }

    async fn dead_letter(&self, outcome: Outcome) -> Settled {
        self.context.settleable().await;
        let settled = self.recorded("reject", || self.settler.dead_letter(), outcome);
        // The next message of its line must not start while the broker may still bring this one back.
        if self.context.config.order.is_kept() && !self.settler.is_carried_out().await {
            // Otherwise the slot would be free before the session ends the whole line.
            self.settler.lost.cancelled().await;
            return Settled::GivenUp(GivenUp::Lost);
        }
        if let Settled::Done(_) = settled {
            let (queue, chain) = (&self.context.config.queue, &*self.chain.id);
            tracing::warn!(
                %queue, chain,
                "no copy was accepted, so the broker parks the message as it is, without its last failure in the headers"
            );
        }
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_not_settled_has_a_reason_and_an_advice_unless_the_broker_has_it_again() {
        for (why, text, error_type) in [
            (GivenUp::Late(Uncopied::Requeue), "the broker did not confirm the copy in time", "timeout"),
            (GivenUp::Unpublishable, "the broker accepts no copy", "unpublishable"),
        ] {
            assert_eq!((why.text(), why.error_type()), (text, error_type));
            let [counting, other] = [true, false].map(|counts_deliveries| why.advice(counts_deliveries));
            assert!(counting.contains("its delivery limit") && !counting.contains("each time"), "{counting}");
            assert!(other.contains("counts no deliveries") && other.ends_with("runs again each time"), "{other}");
        }
        let lost = GivenUp::Lost;
        assert_eq!((lost.text(), lost.error_type()), ("the channel was gone", "channel_closed"));
        assert_eq!([true, false].map(|counts_deliveries| lost.advice(counts_deliveries)), [""; 2]);
    }
}
