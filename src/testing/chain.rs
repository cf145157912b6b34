//! A handler's run through a whole chain, in virtual time.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lapin::types::{AMQPValue, FieldTable};

use super::message::{MessageBuilder, NAMESPACE};
use crate::failure::Failure;
use crate::handler::Handler;
use crate::message::{Address, Delivery, Message, Source};
use crate::retry::decision::{Decision, Reason, decide, decide_before};
use crate::retry::ledger::{Ledger, Wait};
use crate::retry::outcome::Outcome;
use crate::timestamp::Timestamp;
use crate::topology::Names;
use crate::wait::jitter::Draw;
use crate::wait::{Path, Strategy};
use crate::wire::names::EXPIRES_AT;
use crate::wire::{Contract, Room, TraceHeaders};

/// Gives a message to a handler as often as its policy does, until the message is handled, parked or discarded, and tells which
/// attempts were made and when. Neither a broker nor a wait is needed: the time between attempts is virtual.
///
/// The attempts are decided, and the copies written and read, by the code that a service runs. A message never comes back late, and
/// an attempt takes no time, however long the handler runs. Jitter is drawn from the middle of its range. A panic of the handler is passed on, so that its assertions fail the
/// test. Crashes, the handler's time limit and what a [`Consumer`](crate::Consumer) adds, such as classes, are left out.
///
/// ```
/// use rehop::testing::{chain, message};
/// use rehop::{Failure, Message, Outcome, Reason};
/// use std::time::Duration;
///
/// async fn charge(order: Message<u64>) -> Result<(), Failure> {
///     Err(Failure::transient(format!("order {} cannot be charged now", order.body())))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let run = chain(message(7), charge).await;
/// assert_eq!(run.attempts.len(), 8);
/// assert_eq!(run.attempts[2].at, Duration::from_secs(10));
/// assert_eq!(run.end, Outcome::Park(Reason::Exhausted));
/// assert_eq!(
///     run.to_string(),
///     "attempt 1 after 0s: requeue\n\
///      attempt 2 after 0s: wait 10s\n\
///      attempt 3 after 10s: requeue\n\
///      attempt 4 after 10s: wait 1m\n\
///      attempt 5 after 1m 10s: requeue\n\
///      attempt 6 after 1m 10s: wait 10m\n\
///      attempt 7 after 11m 10s: requeue\n\
///      attempt 8 after 11m 10s: park (exhausted)"
/// );
/// # }
/// ```
pub async fn chain<T: Clone, H: Handler<T>>(message: MessageBuilder<T>, handler: H) -> ChainRun {
    let start = Timestamp::from(SystemTime::now());
    let (contract, holds) = (contract(&message), message.policy.strategy == Strategy::InProcess);
    let mut way = Way { contract, now: start, delivery: Arc::new(message.delivery(start)), holds };
    let mut attempts = Vec::new();
    loop {
        let at = way.now.since(start);
        if let Some(decision) = decide_before(&message.policy, &way.delivery.ledger, way.now, None) {
            match way.go(decision, None) {
                Outcome::Wait(_) | Outcome::Defer(_) => continue,
                end => return ChainRun { attempts, end, ended_after: at },
            }
        }
        let source = Source { queue: message.queue.clone(), policy: message.policy.clone(), now: Some(way.now) };
        let given = Message::new(message.body.clone(), way.delivery.clone(), Arc::new(source));
        let (number, hop) = (given.attempt(), given.hop());
        let result = handler.handle(given).await;
        let decision = decide(&message.policy, &way.delivery.ledger, &result, way.now, None, Draw::MIDDLE);
        let failure = result.err();
        let outcome = way.go(decision, failure.as_ref());
        attempts.push(AttemptRun { number, hop, at, outcome, failure });
        if outcome.is_final() {
            return ChainRun { attempts, end: outcome, ended_after: at };
        }
    }
}

/// What became of a message in a [`chain`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ChainRun {
    /// The attempts, in their order.
    pub attempts: Vec<AttemptRun>,
    /// How the chain ended.
    pub end: Outcome,
    /// When it ended, from the first delivery on. This is later than the last attempt if the message expired meanwhile.
    pub ended_after: Duration,
}

/// One attempt in a [`chain`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AttemptRun {
    /// Its number, from 1.
    pub number: u32,
    /// How often the message had waited.
    pub hop: u32,
    /// When it was made, from the first delivery on.
    pub at: Duration,
    /// What followed.
    pub outcome: Outcome,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

/// One line for each attempt, and one for an end that followed none.
impl fmt::Display for ChainRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = humantime::format_duration;
        let ended_by_attempt = self.attempts.last().is_some_and(|last| last.outcome.is_final());
        for (index, attempt) in self.attempts.iter().enumerate() {
            let line = if index == 0 { "" } else { "\n" };
            write!(f, "{line}attempt {} after {}: {}", attempt.number, after(attempt.at), Words(attempt.outcome))?;
        }
        if ended_by_attempt {
            return Ok(());
        }
        let line = if self.attempts.is_empty() { "" } else { "\n" };
        write!(f, "{line}no attempt after {}: {}", after(self.ended_after), Words(self.end))
    }
}

struct Words(Outcome);

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())?;
        if let Some(delay) = self.0.delay() {
            write!(f, " {}", humantime::format_duration(delay))?;
        }
        if self.0.is_defer() {
            f.write_str(" (deferred)")?;
        }
        match self.0.reason() {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

fn contract<T>(message: &MessageBuilder<T>) -> Contract {
    Contract {
        queue: message.queue.clone(),
        homes: Names::new(NAMESPACE).homes(),
        expiry_header: EXPIRES_AT.to_owned(),
        max_age: message.policy.max_age,
        counts_deliveries: true,
        counts_waits: message.policy.strategy.delayed_return().is_some(),
    }
}

/// A message on its way: what a broker that is never late would do with it.
struct Way {
    contract: Contract,
    now: Timestamp,
    delivery: Arc<Delivery>,
    /// Whether the process holds messages while they wait.
    holds: bool,
}

impl Way {
    /// Carries a decision out. If the message comes again, this is its next delivery, at its time.
    fn go(&mut self, decision: Decision, failure: Option<&Failure>) -> Outcome {
        let outcome = Outcome::of(decision, self.now);
        match decision {
            Decision::Ack | Decision::Park(_) | Decision::Discard(_) => {}
            Decision::Requeue if self.holds => self.again(self.delivery.ledger.held(failure, None, false, self.now)),
            Decision::Requeue => self.requeue(),
            Decision::Wait { path: path @ Path::Hold, leg, due, is_defer } => {
                let wait = Wait { since: self.now, due, leg, path };
                let ledger = self.delivery.ledger.held(failure, Some(wait), is_defer, self.now);
                self.now = due;
                self.again(ledger);
            }
            Decision::Wait { path: Path::Return, due, .. } => {
                self.now = due;
                self.again(self.delivery.ledger.returned());
            }
            Decision::Wait { path, leg, due, is_defer } => {
                let ledger = self.delivery.ledger.waiting(failure, is_defer, self.now);
                let wait = Wait { since: self.now, due, leg, path };
                let (trace, room) = (TraceHeaders::default(), Room::DEFAULT);
                let Ok(properties) = self.contract.checked_wait_copy(&self.delivery, &ledger, wait, &trace, room)
                else {
                    return Outcome::Park(Reason::Unpublishable);
                };
                self.now = self.now + leg;
                let exchange = Names::new(NAMESPACE).home(path, leg).into();
                let returned = Address { exchange, routing_key: self.delivery.origin.routing_key.clone() };
                self.deliver(returned, false, properties);
            }
        }
        outcome
    }

    fn requeue(&mut self) {
        let given_back = self.delivery.ledger.redeliveries.unwrap_or(0).saturating_add(1);
        let mut headers =
            self.delivery.properties.headers().as_ref().map(|headers| headers.inner().clone()).unwrap_or_default();
        headers.insert("x-delivery-count".into(), AMQPValue::LongLongInt(given_back.into()));
        let properties = self.delivery.properties.clone().with_headers(FieldTable::from(headers));
        let mut delivery = Delivery { properties, redelivered: true, ..Delivery::clone(&self.delivery) };
        delivery.ledger.redeliveries = Some(given_back);
        self.delivery = Arc::new(delivery);
    }

    /// The same message again, with this ledger.
    fn again(&mut self, ledger: Ledger) {
        self.delivery = Arc::new(Delivery { ledger, ..Delivery::clone(&self.delivery) });
    }

    fn deliver(&mut self, address: Address, redelivered: bool, properties: lapin::BasicProperties) {
        let (ledger, origin, _ignored) = self.contract.read(&address, redelivered, &properties, self.now);
        let (delivery_tag, body) = (self.delivery.delivery_tag, self.delivery.body.clone());
        self.delivery = Arc::new(Delivery { address, origin, redelivered, delivery_tag, properties, body, ledger });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::policy::RetryPolicy;
    use crate::settings::{Jitter, RetrySettings, WaitStrategy};
    use crate::testing::message;

    #[tokio::test]
    async fn a_jittered_chain_on_the_ladder_is_the_same_each_time_and_a_defer_counts_nothing() {
        let delays = [8, 100].map(Duration::from_secs).to_vec();
        let settings = RetrySettings {
            immediate: Some(0),
            delays: Some(crate::Backoff::List(delays)),
            strategy: Some(WaitStrategy::Ladder),
            jitter: Some(Jitter::Full),
            ..RetrySettings::default()
        };
        let policy = RetryPolicy::new(&settings).unwrap();
        let handler = |order: Message<u64>| async move {
            let deferred = order.attempt() == 2 && order.defers() == 0;
            Err(if deferred { Failure::defer(Duration::from_secs(20)) } else { Failure::transient("no") })
        };
        let run = chain(message(7).policy(policy), handler).await;
        assert_eq!(
            run.to_string(),
            "attempt 1 after 0s: wait 4s\n\
             attempt 2 after 4s: wait 26s (deferred)\n\
             attempt 2 after 30s: wait 52s\n\
             attempt 3 after 1m 22s: park (exhausted)"
        );
    }
}
