//! What AMQP shows. Nothing is created and no message moves: a passive declare, a declare of what
//! exists already, which the broker compares, and requests that the broker refuses after it has
//! checked the permission.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lapin::options::{BasicConsumeOptions, ExchangeDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, ExchangeKind};

use super::observed::{
    ConsumerDetails, Denied, Difference, Existence, Observed, QueueState, declaring,
};
use super::parked_since::parked_since;
use super::subject::Subject;
use crate::subscribe::subscribe;
use rehop::Error;
use rehop::Timestamp;
use rehop::Topology;
use rehop::internals::Names;
use rehop::internals::answer;
use rehop::internals::client::{Channel, Connection};
use rehop::internals::copies_go_to;
use rehop::internals::look_at;
use rehop::internals::short;
use rehop::settings::{Declare, TopologyMode};
use rehop::topology::Role;

/// One connection to look through.
pub(super) struct Eyes<'a> {
    pub(super) connection: &'a dyn Connection,
    pub(super) limit: Duration,
}

impl Eyes<'_> {
    /// What exists, what differs, and what the user may not do.
    ///
    /// # Errors
    ///
    /// When the connection is lost.
    pub(super) async fn look(&self, subject: &mut Subject) -> Result<Observed, Error> {
        self.add_discarded(subject).await?;
        let subject = &*subject;
        let mut seen = Observed { frame_max: self.connection.frame_max(), ..Observed::default() };
        let own = subject.topology.exchanges.iter().map(|exchange| exchange.name.as_str());
        for name in own.chain(subject.foreign_exchanges()) {
            let existence = match self.exchange(name).await {
                Ok(()) => Existence::Present { difference: None },
                Err(error) => existence_of(error)?,
            };
            seen.exchanges.insert(name.to_owned(), existence);
        }
        for queue in &subject.topology.queues {
            let state = match self.queue(&queue.name).await {
                Ok((ready, consumers)) => QueueState {
                    existence: Existence::Present { difference: None },
                    ready,
                    consumers,
                },
                Err(error) => {
                    QueueState { existence: existence_of(error)?, ready: 0, consumers: 0 }
                }
            };
            seen.queues.insert(queue.name.clone(), state);
        }
        self.compare(subject, &mut seen).await?;
        self.probe_consuming(subject, &mut seen).await?;
        Ok(seen)
    }

    /// Adds what there is for discarded messages: whoever discards declares it, and its binding
    /// each time. The service's user need not be allowed to see it.
    async fn add_discarded(&self, subject: &mut Subject) -> Result<(), Error> {
        let Topology { exchanges, queues, .. } = subject.discarded();
        for queue in queues {
            match self.queue(&queue.name).await {
                Ok(_) | Err(Error::Unavailable { .. } | Error::Timeout { .. }) => {
                    subject.topology.queues.push(queue)
                }
                Err(error) if ends_connection(&error) => return Err(error),
                Err(_) => return Ok(()),
            }
        }
        for exchange in exchanges {
            match self.exchange(&exchange.name).await {
                Ok(()) => subject.topology.exchanges.push(exchange),
                Err(error) if ends_connection(&error) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    async fn exchange(&self, name: &str) -> Result<(), Error> {
        let channel = self.channel().await?;
        let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        let what = format!("checking exchange {name:?}");
        // The type is not compared.
        let declared = channel.declare_exchange(
            short(name)?,
            ExchangeKind::Direct,
            options,
            FieldTable::default(),
        );
        answer(&what, self.limit, declared).await?;
        self.close(channel).await;
        Ok(())
    }

    /// How many messages are ready, and how many consumers there are.
    pub(super) async fn queue(&self, name: &str) -> Result<(u64, u32), Error> {
        let queue = look_at(self.connection, name, self.limit).await?;
        Ok((u64::from(queue.messages), queue.consumers))
    }

    /// Forgets the consumers of a queue that has more of them than the management API shows, which
    /// may not know all yet.
    ///
    /// # Errors
    ///
    /// When the connection is lost.
    pub(super) async fn doubt(
        &self,
        consumers: &mut BTreeMap<String, Option<Vec<ConsumerDetails>>>,
    ) -> Result<(), Error> {
        for (queue, shown) in consumers {
            let Some(count) = shown.as_ref().map(Vec::len) else { continue };
            match self.queue(queue).await {
                Ok((_, consumers)) if count >= consumers as usize => {}
                // Whoever may not look has only the API's word.
                Err(Error::Missing { .. } | Error::Permission { .. }) => {}
                Err(error) if ends_connection(&error) => return Err(error),
                Ok(_) | Err(_) => *shown = None,
            }
        }
        Ok(())
    }

    /// Has the broker compare what exists with what is wanted. It changes nothing that exists
    /// (3.10, 4.0 and 4.3).
    async fn compare(&self, subject: &Subject, seen: &mut Observed) -> Result<(), Error> {
        for exchange in &subject.topology.exchanges {
            let Some(existence @ Existence::Present { .. }) =
                seen.exchanges.get_mut(&exchange.name)
            else {
                continue;
            };
            let mut alone = Topology::default();
            alone.exchanges.push(exchange.clone());
            let what = declaring(&format!("exchange {:?}", exchange.name));
            let denied = self.compare_one(&alone, what, existence).await?;
            note_denied(subject, &exchange.name, denied, seen);
        }
        for queue in subject.topology.queues.iter().filter(|queue| queue.declare == Declare::Own) {
            let Some(QueueState { existence: existence @ Existence::Present { .. }, .. }) =
                seen.queues.get_mut(&queue.name)
            else {
                continue;
            };
            let mut alone = Topology::default();
            alone.queues.push(queue.clone());
            let what = declaring(&format!("queue {:?}", queue.name));
            let denied = self.compare_one(&alone, what, existence).await?;
            note_denied(subject, &queue.name, denied, seen);
        }
        Ok(())
    }

    /// Returns the permission that the user lacks for it.
    async fn compare_one(
        &self,
        alone: &Topology,
        what: String,
        existence: &mut Existence,
    ) -> Result<Option<Denied>, Error> {
        let failures =
            alone.establish_each(self.connection, TopologyMode::Declare, self.limit, 1).await?;
        let Some(failure) = failures.into_iter().next() else { return Ok(None) };
        match failure.error {
            Error::Mismatch { argument, wanted, found, .. } => {
                *existence =
                    Existence::Present { difference: Some(Difference { argument, wanted, found }) };
            }
            Error::Permission { problem, .. } => {
                return Ok(Some(Denied { what, problem: problem.to_string() }));
            }
            Error::Unavailable { problem, .. } => {
                *existence = Existence::Unavailable { problem: problem.to_string() }
            }
            Error::Timeout { .. } => {
                *existence =
                    Existence::Unavailable { problem: "the broker did not answer".to_owned() }
            }
            error if ends_connection(&error) => return Err(error),
            _ => {}
        }
        Ok(None)
    }

    /// Whether the work queues may be consumed.
    async fn probe_consuming(&self, subject: &Subject, seen: &mut Observed) -> Result<(), Error> {
        for queue in subject.topology.queues.iter().filter(|queue| queue.role == Role::Work) {
            if matches!(
                seen.queues.get(&queue.name).map(|queue| &queue.existence),
                Some(Existence::Present { .. })
            ) {
                let what = format!("consuming queue {:?}", queue.name);
                note(what, self.try_to_consume(&queue.name).await, &mut seen.denied)?;
            }
        }
        Ok(())
    }

    /// Whether copies may be published. Needs a connection of its own: during an alarm the broker
    /// no longer reads from a connection that has published.
    ///
    /// # Errors
    ///
    /// When the broker does not answer, as during an alarm, or the connection is lost.
    pub(super) async fn probe_publishing(
        &self,
        subject: &Subject,
        seen: &mut Observed,
    ) -> Result<(), Error> {
        let names = &subject.names;
        for exchange in copies_go_to(names, &subject.configs) {
            if matches!(seen.exchanges.get(&exchange), Some(Existence::Present { .. })) {
                let what = format!("publishing to exchange {exchange:?}");
                match self.try_to_publish(&exchange).await {
                    Err(error @ Error::Timeout { .. }) => return Err(error),
                    tried => note(what, tried, &mut seen.denied)?,
                }
            }
        }
        // The permission is checked before the exchange is looked for, so it need not exist (3.10,
        // 4.0 and 4.3).
        match self.try_to_publish(&names.report()).await {
            Err(Error::Permission { problem, .. }) => {
                seen.report_denied = Some(problem.to_string())
            }
            Err(error @ Error::Timeout { .. }) => return Err(error),
            Err(error) if ends_connection(&error) => return Err(error),
            _ => {}
        }
        Ok(())
    }

    /// The broker refuses an `expiration` that is not a number after it has checked the permission,
    /// and before it routes the message (3.10, 4.0 and 4.3).
    async fn try_to_publish(&self, exchange: &str) -> Result<(), Error> {
        let channel = self.channel().await?;
        let what = format!("publishing to exchange {exchange:?}");
        answer(&what, self.limit, channel.confirm_select()).await?;
        let properties = BasicProperties::default().with_expiration("none".into());
        let published = channel.publish(short(exchange)?, "".into(), &[], properties, false);
        answer(&what, self.limit, published).await.map(drop)
    }

    /// The broker refuses a priority that is not a number after it has checked the permission, and
    /// before it adds a consumer (3.10, 4.0 and 4.3).
    async fn try_to_consume(&self, queue: &str) -> Result<(), Error> {
        let channel = self.channel().await?;
        let mut arguments = FieldTable::default();
        arguments.insert("x-priority".into(), AMQPValue::LongString("none".into()));
        let consumed =
            subscribe(&*channel, short(queue)?, BasicConsumeOptions::default(), arguments);
        answer(&format!("consuming queue {queue:?}"), self.limit, consumed).await.map(drop)
    }

    /// When the message at the head of a parked queue was parked. It goes back to the head when its
    /// channel is closed (3.10, 4.0 and 4.3), which counts as one delivery, so the caller makes
    /// sure that no limit is near.
    pub(super) async fn head_parked_since(
        &self,
        names: &Names,
        queue: &str,
    ) -> Result<Option<Timestamp>, Error> {
        let channel = self.channel().await?;
        let what = format!("looking at the head of queue {queue:?}");
        let message = answer(&what, self.limit, channel.get(short(queue)?)).await?;
        let since = message.and_then(|message| {
            parked_since(names, message.exchange.as_str(), &message.properties)
        });
        self.close(channel).await;
        Ok(since)
    }

    pub(super) async fn channel(&self) -> Result<Arc<dyn Channel>, Error> {
        answer("opening a channel", self.limit, self.connection.open_channel()).await
    }

    /// A channel that gets no answer ends with its connection.
    pub(super) async fn close(&self, channel: Arc<dyn Channel>) {
        let _ = tokio::time::timeout(self.limit, channel.close("done")).await;
    }
}

/// A service that only checks needs no permission to declare, and none needs one for what operators
/// declare.
fn note_denied(subject: &Subject, name: &str, denied: Option<Denied>, seen: &mut Observed) {
    if subject.mode == TopologyMode::Declare && !subject.is_operators(name) {
        seen.denied.extend(denied);
    } else {
        seen.is_not_compared |= denied.is_some();
    }
}

/// A permission that is missing. The other refusals are those that the request asked for.
fn note(what: String, tried: Result<(), Error>, denied: &mut Vec<Denied>) -> Result<(), Error> {
    match tried {
        Err(Error::Permission { problem, .. }) => {
            denied.push(Denied { what, problem: problem.to_string() })
        }
        Err(error) if ends_connection(&error) => return Err(error),
        _ => {}
    }
    Ok(())
}

/// Whether this error ended the connection, so that nothing more can be asked. The broker ends one
/// that opens a channel beyond a limit, and only the first error names the limit.
pub(super) fn ends_connection(error: &Error) -> bool {
    matches!(error, Error::Lost { .. } | Error::Limit { .. })
}

/// What a refused passive declare says about an object.
fn existence_of(error: Error) -> Result<Existence, Error> {
    match error {
        Error::Missing { .. } => Ok(Existence::Missing),
        Error::Permission { problem, .. } => Ok(Existence::Hidden { problem: problem.to_string() }),
        Error::Unavailable { problem, .. } => {
            Ok(Existence::Unavailable { problem: problem.to_string() })
        }
        Error::Timeout { .. } => {
            Ok(Existence::Unavailable { problem: "the broker did not answer".to_owned() })
        }
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rehop::Problem;
    use rehop::Settings;

    #[test]
    fn a_permission_to_declare_is_missing_only_for_those_who_declare() {
        for (mode, exchange, is_missing) in [
            (TopologyMode::Declare, "ns.park", true),
            (TopologyMode::Declare, "ns.discarded", false),
            (TopologyMode::Check, "ns.park", false),
        ] {
            let mut settings = Settings::default();
            (settings.namespace, settings.topology) = ("ns".to_owned(), mode);
            let (subject, mut seen) = (Subject::of(&settings).unwrap(), Observed::default());
            let denied = || Denied { what: "declaring".to_owned(), problem: "no".to_owned() };
            for denied in [Some(denied()), None, Some(denied())] {
                note_denied(&subject, exchange, denied, &mut seen);
            }
            let noted = (seen.denied.len(), seen.is_not_compared);
            assert_eq!(
                noted,
                if is_missing { (2, false) } else { (0, true) },
                "{mode:?} {exchange}"
            );
        }
    }

    #[test]
    fn a_request_that_is_made_to_be_refused_tells_of_a_permission_or_a_lost_connection_and_of_nothing_else()
     {
        let (what, problem) = (|| "consuming".to_owned(), || Problem::from("no".to_owned()));
        for (tried, missing, is_lost) in [
            (Ok(()), 0, false),
            (Err(Error::Refused { what: what(), problem: problem() }), 0, false),
            (Err(Error::Permission { what: what(), problem: problem() }), 1, false),
            (Err(Error::Lost { what: what(), problem: problem() }), 0, true),
        ] {
            let mut denied = Vec::new();
            let noted = note(what(), tried, &mut denied);
            assert_eq!((denied.len(), noted.is_err()), (missing, is_lost), "{noted:?}");
        }
    }

    #[test]
    fn a_refused_look_tells_whether_something_is_missing_hidden_or_not_served() {
        let (what, problem) = (|| "looking".to_owned(), || Problem::from("no".to_owned()));
        let unavailable = |problem: &str| Existence::Unavailable { problem: problem.to_owned() };
        let silent = unavailable("the broker did not answer");
        for (error, expected) in [
            (Error::Missing { what: what(), problem: problem() }, Some(Existence::Missing)),
            (
                Error::Permission { what: what(), problem: problem() },
                Some(Existence::Hidden { problem: "no".to_owned() }),
            ),
            (Error::Unavailable { what: what(), problem: problem() }, Some(unavailable("no"))),
            (Error::Timeout { what: what(), limit: Duration::from_secs(1) }, Some(silent)),
            (Error::Lost { what: what(), problem: problem() }, None),
        ] {
            assert_eq!(existence_of(error).ok(), expected);
        }
    }
}
