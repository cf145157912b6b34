//! Holding: a message that waits in this process, unacked, until its next attempt.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::consume::ack_timeout::can_be_held;
use crate::consume::attempt::{Attempt, Unacked};
use crate::failure::Failure;
use crate::message::Delivery;
use crate::retry::decision::{Decision, give_back};
use crate::retry::ledger::Wait;
use crate::timestamp::Timestamp;
use crate::wait::{Path, WaitStrategy};

/// A delivery that stays in this process.
pub(crate) struct Held {
    pub(crate) unacked: Unacked,
    /// When its next attempt may begin.
    pub(crate) due: Instant,
}

impl Attempt {
    /// For how long from now this process may hold the delivery for another attempt, if the queue's messages wait in it. The wall clock
    /// may have jumped since the delivery arrived, so this is not measured by it.
    pub(crate) fn hold_for(&self) -> Option<Duration> {
        self.context.hold_limit.map(|limit| limit.saturating_sub(self.settler.arrived.elapsed()))
    }

    /// Whether this process keeps the delivery for another attempt, and how long it waits until then. Without a wait it is an
    /// immediate attempt: with this strategy nothing is requeued, because the broker would forget what this process knows.
    ///
    /// One that the broker would take back before the next attempt could end is not kept (see [`unheld`](Self::unheld)). In an
    /// ordered queue it would be overtaken then, so it is kept, and given up when it is due.
    pub(crate) fn holds(&self, decision: Decision, since: Timestamp) -> Option<Option<Wait>> {
        if self.policy().strategy.kind() != WaitStrategy::InProcess {
            return None;
        }
        let wait = match decision {
            Decision::Requeue => None,
            Decision::Wait { path: path @ Path::Hold, leg, due, .. } => Some(Wait { since, due, leg, path }),
            Decision::Wait { .. } | Decision::Ack | Decision::Park(_) | Decision::Discard(_) => return None,
        };
        let delay = wait.map_or(Duration::ZERO, |wait| wait.due.since(since));
        let ends = Instant::now() + delay + self.context.config.handler_timeout;
        let is_ordered = self.context.config.order.is_kept();
        can_be_held(is_ordered, ends.into_std(), (self.settler.arrived + self.settler.settle_limit).into_std())
            .then_some(wait)
    }

    /// What becomes of a delivery that would be held, and cannot be.
    pub(crate) fn unheld(&self, decision: Decision) -> Decision {
        match decision {
            // The ledger of a delivery that was held counts from its last wait, so the broker's count decides.
            Decision::Wait { path: Path::Hold, .. } | Decision::Requeue
                if self.policy().strategy.kind() == WaitStrategy::InProcess =>
            {
                give_back(self.policy(), self.context.contract.redeliveries_of(&self.delivery))
            }
            other => other,
        }
    }

    /// The delivery for its next attempt, with what this process knows of the chain.
    pub(crate) fn hold(self, wait: Option<Wait>, is_defer: bool, failure: Option<&Failure>, since: Timestamp) -> Held {
        let Self { context, delivery, settler, chain, span, received, in_flight } = self;
        let ledger = delivery.ledger.held(failure, wait, is_defer, since);
        let due = Instant::now() + wait.map_or(Duration::ZERO, |wait| wait.due.since(since));
        let delivery = Arc::new(Delivery { ledger, ..Arc::unwrap_or_clone(delivery) });
        let held = Some(Box::new(chain.next(span.context(), wait.is_some())));
        let unacked = Unacked { context, delivery, received, settler, in_flight, held, unanswered: None };
        Held { unacked, due }
    }
}
