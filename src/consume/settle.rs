//! Carries a settlement out: the copy first, then the ack.

use std::time::{Duration, Instant};

use crate::consume::attempt::Attempt;
use crate::consume::copy::{PreparedCopy, Settlement};
use crate::retry::decision::Reason;
use crate::retry::outcome::Outcome;
use crate::settings::Declare;

/// What reached the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The delivery ended with this outcome.
    Done(Outcome),
    /// It is not settled. The message comes again.
    GivenUp(GivenUp),
}

/// Why a delivery was not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// The copy was not confirmed, and the shortest ack timeout that is known is nearly over. The delivery is to be requeued.
    Late,
    /// The channel was gone. The broker has the message again.
    Lost,
}

impl GivenUp {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Late => "the broker did not confirm the copy in time",
            Self::Lost => "the channel was gone",
        }
    }

    const fn error_type(self) -> &'static str {
        match self {
            Self::Late => "timeout",
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
const UNPUBLISHABLE_PAUSE: Duration = Duration::from_secs(5);

impl Attempt {
    /// Carries a settlement out. The copy is confirmed before the original is acked, so a crash between the two makes a
    /// duplicate, not a loss.
    pub(crate) async fn settle(&self, settlement: Settlement) -> Settled {
        let (has_copy, outcome) = (settlement.copy.is_some(), settlement.outcome);
        // Before the copy too: a copy whose original is not settled soon may become a duplicate.
        self.context.settleable().await;
        if let Some(copy) = settlement.copy {
            // Most deliveries are settled without a copy, and their tasks should stay small.
            match Box::pin(self.send(copy)).await {
                Sent::Confirmed => {}
                Sent::GivenUp(why) => {
                    // A requeue settles the delivery too, so it also waits until settling is allowed.
                    self.context.settleable().await;
                    return Settled::GivenUp(why);
                }
                Sent::Impossible => return Box::pin(self.dead_letter()).await,
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
        let started = Instant::now();
        let settled = act();
        let error_type = (!settled).then_some("channel_closed");
        context.metrics.operated(operation, started.elapsed(), error_type);
        if let Some(error_type) = error_type {
            span.failed(error_type, format!("the channel was closed before the {operation}"));
            return Settled::GivenUp(GivenUp::Lost);
        }
        Settled::Done(outcome)
    }

    async fn send(&self, copy: PreparedCopy) -> Sent {
        let PreparedCopy { outgoing, destination } = copy;
        let context = &self.context;
        let span = context.tracer.client(&self.chain, &self.span, "send", &destination);
        let started = Instant::now();
        // Once the broker has the original again, a copy would be a second message, so this is checked first.
        let published = tokio::select! {
            biased;
            () = self.settler.lost.cancelled() => Err(GivenUp::Lost),
            () = self.late() => Err(GivenUp::Late),
            published = context.publisher.publish(outgoing) => Ok(published),
        };
        let error_type = match &published {
            Err(given_up) => Some(given_up.error_type()),
            Ok(Err(_)) => Some("unpublishable"),
            Ok(Ok(())) => None,
        };
        context.metrics.sent(&destination, started.elapsed(), error_type);
        match published {
            Ok(Ok(())) => Sent::Confirmed,
            Ok(Err(error)) => {
                tracing::error!(queue = %context.config.queue, chain = %self.chain.id, %error, "the message cannot be copied");
                span.failed("unpublishable", error.to_string());
                Sent::Impossible
            }
            Err(given_up) => {
                span.failed(given_up.error_type(), given_up.text().to_owned());
                Sent::GivenUp(given_up)
            }
        }
    }

    /// Returns shortly before the ack timeout is over: that of the settings, or a shorter one that the broker has shown. Never in an
    /// ordered queue, where others would overtake it: its session then gives back all that it holds.
    async fn late(&self) {
        if self.context.config.order.is_kept() {
            return std::future::pending().await;
        }
        tokio::time::sleep_until(self.settler.until).await;
        // During an alarm nothing is refused, and lapin keeps the frames of each copy until it is over. So a message that went back would come
        // again, and make one more copy each time.
        let publishing = &self.context.publishing;
        while publishing.state().is_blocked {
            publishing.unblocked().await;
            // The confirms that were held up come now.
            tokio::time::sleep(publishing.answer_timeout()).await;
        }
    }

    /// Leaves a message that cannot be copied to the broker, which moves it as it is. A queue that rehop declares dead-letters
    /// to its parked queue. Where any other queue dead-letters is unknown, so there the message is requeued after a pause.
    async fn dead_letter(&self) -> Settled {
        if self.context.config.declare == Declare::Existing {
            tokio::time::sleep(UNPUBLISHABLE_PAUSE).await;
            self.context.settleable().await;
            return self.requeue();
        }
        self.context.settleable().await;
        self.recorded("reject", || self.settler.dead_letter(), Outcome::Park(Reason::Unpublishable))
    }
}
