//! From a decision to the copy that is published before the ack.

use std::sync::Arc;

use bytes::Bytes;

use crate::broker::lane::Outgoing;
use crate::consume::attempt::Attempt;
use crate::failure::Failure;
use crate::retry::decision::{Decision, Reason};
use crate::retry::ledger::{Ledger, Wait};
use crate::retry::outcome::Outcome;
use crate::timestamp::Timestamp;
use crate::wait::Path;
use crate::wire::Resting;

/// A copy that is written and not sent yet. Boxed where it is passed on, because most deliveries
/// need none and their tasks should stay small.
pub(crate) struct PreparedCopy {
    pub(crate) outgoing: Arc<Outgoing>,
    /// Published instead if the broker refuses that one: a parked copy without rehop's headers, if
    /// those of the message follow its body. A body that is larger than the message's may be larger
    /// than the broker accepts.
    pub(crate) bare: Option<Arc<Outgoing>>,
    /// The queue, or the exchange, that will hold it, as spans and metrics name it.
    pub(crate) destination: String,
}

impl Attempt {
    /// Writes the copy that a decision needs, if it needs one. A message whose own headers leave no
    /// room for rehop's cannot wait, and is parked.
    pub(crate) fn prepare_copy(
        &self,
        decision: Decision,
        failure: Option<&Failure>,
        since: Timestamp,
    ) -> (Outcome, Option<Box<PreparedCopy>>) {
        match decision {
            Decision::Park(reason) => self.park(reason, failure, since),
            Decision::Wait {
                path: path @ (Path::Tier | Path::Ladder { .. } | Path::Delayed),
                leg,
                due,
                is_defer,
            } => self.wait(Wait { since, due, leg, path }, is_defer, failure),
            Decision::Wait { path: Path::Return | Path::Hold, .. }
            | Decision::Ack
            | Decision::Requeue
            | Decision::Again
            | Decision::Discard(_) => (Outcome::of(decision, since), None),
        }
    }

    fn wait(
        &self,
        wait: Wait,
        is_defer: bool,
        failure: Option<&Failure>,
    ) -> (Outcome, Option<Box<PreparedCopy>>) {
        let ledger = self.identified(self.delivery.ledger.waiting(failure, is_defer, wait.since));
        let trace = self.chain.headers(self.span.context());
        let (context, delivery) = (self.context.clone(), self.delivery.clone());
        let room = context.publishing.room();
        let properties =
            match context.contract.checked_wait_copy(&delivery, &ledger, wait, &trace, room) {
                Ok(properties) => properties,
                Err(error) => {
                    let (queue, chain) = (&context.config.queue, &*self.chain.id);
                    tracing::error!(%queue, chain, %error, "the message cannot wait; parking it");
                    return self.park(Reason::Unpublishable, failure, wait.since);
                }
            };
        let addresses = &context.addresses;
        let exchange = match wait.path {
            Path::Ladder { .. } => addresses.ladder.clone(),
            Path::Delayed => addresses.delay.clone(),
            // The last two need no copy, and do not come here.
            Path::Tier | Path::Return | Path::Hold => addresses.wait.clone(),
        };
        let destination = context.names.holder(wait.path, wait.leg);
        let (routing_key, body) = (delivery.origin.routing_key.clone(), delivery.body.clone());
        let write = move || context.contract.wait_copy(&delivery, &ledger, wait, &trace, room);
        let mut outgoing = Outgoing::new(exchange, routing_key, body, properties, write);
        outgoing.mandatory = wait.path != Path::Delayed;
        let copy = Box::new(PreparedCopy { outgoing: Arc::new(outgoing), bare: None, destination });
        let delay = wait.due.since(wait.since);
        (if is_defer { Outcome::Defer(delay) } else { Outcome::Wait(delay) }, Some(copy))
    }

    fn park(
        &self,
        reason: Reason,
        failure: Option<&Failure>,
        since: Timestamp,
    ) -> (Outcome, Option<Box<PreparedCopy>>) {
        let (ledger, trace) = (
            self.identified(self.delivery.ledger.after(failure, since)),
            self.chain.headers(self.span.context()),
        );
        let (context, delivery) = (self.context.clone(), self.delivery.clone());
        let destination = context.config.parked.clone();
        let (exchange, routing_key) =
            (context.addresses.park.clone(), context.addresses.queue.clone());
        let room = context.publishing.room();
        let body = delivery.body.clone();
        let write =
            move || context.contract.parked_copy(&delivery, &ledger, reason, since, &trace, room);
        let Resting { properties, overflow } = write();
        let (mut whole, mut bare) = (body.clone(), None);
        if !overflow.is_empty() {
            whole = Bytes::from([&body[..], &overflow].concat());
            let (context, delivery) = (self.context.clone(), self.delivery.clone());
            let write = move || context.contract.bare_copy(&delivery);
            bare = Some(Arc::new(Outgoing::new(
                exchange.clone(),
                routing_key.clone(),
                body,
                write(),
                write,
            )));
        }
        let outgoing =
            Outgoing::new(exchange, routing_key, whole, properties, move || write().properties);
        let copy = Box::new(PreparedCopy { outgoing: Arc::new(outgoing), bare, destination });
        (Outcome::Park(reason), Some(copy))
    }

    /// The ledger that a copy carries, with the id of its chain.
    fn identified(&self, mut ledger: Ledger) -> Ledger {
        ledger.chain_id.get_or_insert_with(|| self.chain.id.to_string());
        ledger
    }
}
