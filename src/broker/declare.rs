//! Declares a topology, or checks that it exists.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use lapin::ExchangeKind as Kind;
use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};

use crate::broker::answer::answer;
use crate::broker::channel::STILL_COUNTED;
use crate::broker::client::{Channel, Connection};
use crate::broker::connection::Link;
use crate::broker::delayed_retry::knows_delayed_retry;
use crate::broker::name::short;
use crate::broker::queue_kind::check_kind;
use crate::error::{Error, Limit, namespace_of};
use crate::settings::{Declare, Settings, TopologyMode, WaitStrategy};
use crate::topology::{
    Argument, Arguments, Binding, DELAYED_RETRY_TYPE, Exchange, ExchangeBinding, ExchangeKind,
    Names, Queue, Role, Topology,
};

impl Topology {
    /// Declares this topology on the settings' broker, by a connection of its own. Queues that
    /// belong to somebody else, and everything if `topology` is `check`, are only checked.
    ///
    /// # Errors
    ///
    /// As for a [`Service`](crate::Service), and when something exists with other arguments, is
    /// missing, or may not be declared.
    pub async fn declare(&self, settings: &Settings) -> Result<(), Error> {
        settings.resolve()?;
        let link = Link::new(format!("{} declaring", settings.namespace), settings.broker.clone());
        let connection = link.start().await?;
        let established =
            self.establish(&*connection, settings.topology, link.answer_timeout()).await;
        link.close().await;
        established
    }

    /// Declares what is missing, and stops at the first failure. In `check` mode, and for queues
    /// that belong to somebody else, only looks.
    #[doc(hidden)]
    pub async fn establish(
        &self,
        connection: &dyn Connection,
        mode: TopologyMode,
        limit: Duration,
    ) -> Result<(), Error> {
        if mode == TopologyMode::Declare {
            self.check_delayed_retry(connection, limit).await?;
        }
        for queue in self.queues.iter().filter(|queue| queue.declare == Declare::Existing) {
            check_kind(connection, &queue.name, queue.queue_type, limit).await?;
        }
        let channel = open(connection, limit).await?;
        let declarer = &Declarer { channel, mode, limit };
        // Each kind is pipelined: the broker answers in order, so the first error is the one that
        // closed the channel.
        at_once(self.exchanges.iter().map(|exchange| declarer.exchange(exchange)).collect())
            .await?;
        at_once(self.queues.iter().map(|queue| declarer.queue(queue)).collect()).await?;
        at_once(self.bindings.iter().map(|binding| declarer.bind(binding)).collect()).await?;
        at_once(
            self.exchange_bindings.iter().map(|binding| declarer.bind_exchange(binding)).collect(),
        )
        .await?;
        declarer.close().await;
        Ok(())
    }

    /// The same for each part on a channel of its own: neither a refusal, which closes the channel,
    /// nor a part that is not answered keeps the others from being declared. `at_once` is how many
    /// channels it opens at the same time.
    ///
    /// # Errors
    ///
    /// When the connection is lost, or does not even open a channel.
    #[doc(hidden)]
    pub async fn establish_each(
        &self,
        connection: &dyn Connection,
        mode: TopologyMode,
        limit: Duration,
        at_once: usize,
    ) -> Result<Vec<Failure>, Error> {
        // A connection may have fewer channels than that.
        let at_once = match connection.channel_max() {
            0 => at_once,
            most => at_once.min(most.into()),
        };
        let mut failures = Vec::new();
        let (exchanges, queues): (Vec<_>, Vec<_>) =
            self.parts().into_iter().partition(|part| matches!(part, Part::Exchange(_)));
        for parts in [exchanges, queues] {
            let mut alone = Vec::new();
            for part in parts {
                alone.push(declare_alone(connection, mode, limit, part));
            }
            let mut outcomes = stream::iter(alone).buffer_unordered(at_once);
            while let Some(outcome) = outcomes.next().await {
                failures.extend(outcome?);
                // There may be no room for more.
                if at_once <= 2 {
                    tokio::time::sleep(STILL_COUNTED).await;
                }
            }
        }
        Ok(failures)
    }

    /// Checks that the broker knows delayed retries if a work queue needs them. A broker before 4.3
    /// would accept the arguments and ignore them, and messages would not wait.
    async fn check_delayed_retry(
        &self,
        connection: &dyn Connection,
        limit: Duration,
    ) -> Result<(), Error> {
        let needs_it = |queue: &&Queue| queue.arguments.contains_key(DELAYED_RETRY_TYPE);
        let Some(work) = self.queues.iter().find(needs_it) else { return Ok(()) };
        let Some(namespace) = self.namespace() else { return Ok(()) };
        if knows_delayed_retry(connection, &Names::new(namespace), limit).await? {
            return Ok(());
        }
        Err(Error::UnknownStrategy {
            queue: work.name.clone(),
            strategy: WaitStrategy::Native,
            since: "4.3",
        })
    }

    /// The namespace of these queues.
    fn namespace(&self) -> Option<&str> {
        self.queues.iter().find_map(|queue| match queue.arguments.get("x-dead-letter-exchange") {
            Some(Argument::Text(exchange)) => namespace_of(exchange),
            _ => None,
        })
    }

    /// Each part comes after those that it needs.
    fn parts(&self) -> Vec<Part<'_>> {
        let of = |queue: &Queue| {
            self.bindings.iter().filter(|binding| binding.queue == queue.name).collect()
        };
        let is_elsewhere =
            |binding: &&Binding| !self.queues.iter().any(|queue| queue.name == binding.queue);
        let exchanges = self.exchanges.iter().map(Part::Exchange);
        let queues = self.queues.iter().map(|queue| Part::Queue(queue, of(queue)));
        let bindings = self.bindings.iter().filter(is_elsewhere).map(Part::Binding);
        let of_exchanges = self.exchange_bindings.iter().map(Part::ExchangeBinding);
        exchanges.chain(queues).chain(bindings).chain(of_exchanges).collect()
    }

    /// The names of the parts, as failures give them.
    pub(crate) fn part_names(&self) -> impl Iterator<Item = String> {
        self.parts().into_iter().map(|part| part.name())
    }
}

/// How many parts are declared at the same time.
pub(crate) const AT_ONCE: usize = 8;

/// Does all of these, several at the same time, and stops at the first error in their order.
async fn at_once<F: Future<Output = Result<(), Error>>>(operations: Vec<F>) -> Result<(), Error> {
    stream::iter(operations).buffered(AT_ONCE).try_collect().await
}

/// What is declared, and fails, as one.
enum Part<'a> {
    Exchange(&'a Exchange),
    Queue(&'a Queue, Vec<&'a Binding>),
    /// Of a queue that another topology has.
    Binding(&'a Binding),
    ExchangeBinding(&'a ExchangeBinding),
}

impl Part<'_> {
    fn name(&self) -> String {
        match self {
            Self::Exchange(exchange) => format!("exchange {:?}", exchange.name),
            Self::Queue(queue, _) => format!("queue {:?}", queue.name),
            Self::Binding(binding) => {
                format!("binding of queue {:?} to {:?}", binding.queue, binding.exchange)
            }
            Self::ExchangeBinding(ExchangeBinding { source, destination }) => {
                format!("binding of exchange {destination:?} to {source:?}")
            }
        }
    }
}

/// A part that is missing or different, and could not be declared.
#[derive(Debug)]
pub struct Failure {
    pub(crate) part: String,
    /// The work queue itself failed.
    pub(crate) is_of_work_queue: bool,
    pub error: Error,
}

impl Failure {
    /// Whether the queue must not be consumed. A user who may neither declare nor check it may
    /// still consume it; subscribing shows whether that is so.
    pub(crate) fn keeps_from_consuming(&self) -> bool {
        self.is_of_work_queue && !matches!(self.error, Error::Permission { .. })
    }
}

struct Declarer {
    channel: Arc<dyn Channel>,
    mode: TopologyMode,
    limit: Duration,
}

impl Declarer {
    async fn declare(&self, part: &Part<'_>) -> Result<(), Failure> {
        let failure =
            |is_of_work_queue| move |error| Failure { part: part.name(), is_of_work_queue, error };
        let declared = match part {
            Part::Exchange(exchange) => self.exchange(exchange).await,
            Part::Queue(queue, bindings) => {
                self.queue(queue).await.map_err(failure(queue.role == Role::Work))?;
                at_once(bindings.iter().map(|binding| self.bind(binding)).collect()).await
            }
            Part::Binding(binding) => self.bind(binding).await,
            Part::ExchangeBinding(binding) => self.bind_exchange(binding).await,
        };
        declared.map_err(failure(false))
    }

    async fn exchange(&self, exchange: &Exchange) -> Result<(), Error> {
        let passive = self.is_passive();
        let options =
            ExchangeDeclareOptions { durable: true, passive, ..ExchangeDeclareOptions::default() };
        let kind = match exchange.kind {
            ExchangeKind::Headers => Kind::Headers,
            ExchangeKind::Direct => Kind::Direct,
            ExchangeKind::Fanout => Kind::Fanout,
            ExchangeKind::Delayed => Kind::Custom(exchange.kind.as_str().to_owned()),
        };
        let what = format!("{} exchange {:?}", verb(passive), exchange.name);
        let (name, arguments) = (short(&exchange.name)?, table(&exchange.arguments)?);
        let declared = answer(
            &what,
            self.limit,
            self.channel.declare_exchange(name, kind, options, arguments),
        )
        .await;
        declared.map_err(|error| match exchange.kind {
            ExchangeKind::Delayed => error.without_plugin(&exchange.name),
            ExchangeKind::Headers | ExchangeKind::Direct | ExchangeKind::Fanout => error,
        })
    }

    async fn queue(&self, queue: &Queue) -> Result<(), Error> {
        let passive = self.is_passive() || queue.declare == Declare::Existing;
        let options =
            QueueDeclareOptions { durable: true, passive, ..QueueDeclareOptions::default() };
        let what = format!("{} queue {:?}", verb(passive), queue.name);
        let (name, arguments) = (short(&queue.name)?, table(&queue.arguments)?);
        let declared =
            answer(&what, self.limit, self.channel.declare_queue(name, options, arguments)).await;
        declared.map(drop).map_err(|error| error.with_role(queue.role))
    }

    /// AMQP cannot check for a binding, so `check` mode leaves it alone.
    async fn bind(&self, binding: &Binding) -> Result<(), Error> {
        if self.is_passive() {
            return Ok(());
        }
        let what = format!("binding queue {:?} to exchange {:?}", binding.queue, binding.exchange);
        let (queue, exchange, key) =
            (short(&binding.queue)?, short(&binding.exchange)?, short(&binding.routing_key)?);
        let arguments = table(&binding.arguments)?;
        answer(&what, self.limit, self.channel.bind_queue(queue, exchange, key, arguments)).await
    }

    async fn bind_exchange(
        &self,
        ExchangeBinding { source, destination }: &ExchangeBinding,
    ) -> Result<(), Error> {
        if self.is_passive() {
            return Ok(());
        }
        let what = format!("binding exchange {destination:?} to exchange {source:?}");
        answer(&what, self.limit, self.channel.bind_exchange(short(destination)?, short(source)?))
            .await
    }

    fn is_passive(&self) -> bool {
        self.mode == TopologyMode::Check
    }

    /// A channel that gets no answer ends with its connection.
    async fn close(&self) {
        let _ = tokio::time::timeout(self.limit, self.channel.close("done")).await;
    }
}

/// # Errors
///
/// When the failure says nothing about the part.
async fn declare_alone(
    connection: &dyn Connection,
    mode: TopologyMode,
    limit: Duration,
    part: Part<'_>,
) -> Result<Option<Failure>, Error> {
    let declarer = Declarer { channel: open(connection, limit).await?, mode, limit };
    match declarer.declare(&part).await {
        Ok(()) => {
            declarer.close().await;
            Ok(None)
        }
        Err(Failure { error: error @ Error::Lost { .. }, .. }) => Err(error),
        // Another channel was refused, which has ended the connection.
        Err(Failure { error, .. }) if error.limit().is_some_and(Limit::ends_connection) => {
            Err(error)
        }
        Err(failure) => Ok(Some(failure)),
    }
}

async fn open(connection: &dyn Connection, limit: Duration) -> Result<Arc<dyn Channel>, Error> {
    answer("opening a channel", limit, connection.open_channel()).await
}

fn verb(passive: bool) -> &'static str {
    if passive { "checking" } else { "declaring" }
}

/// Arguments in AMQP's form.
///
/// # Errors
///
/// When a name is too long.
pub fn table(arguments: &Arguments) -> Result<FieldTable, Error> {
    let mut table = FieldTable::default();
    for (argument, value) in arguments {
        let value = match value {
            Argument::Number(number) => AMQPValue::LongLongInt(*number),
            Argument::Text(text) => AMQPValue::LongString(text.as_str().into()),
            Argument::Flag(flag) => AMQPValue::Boolean(*flag),
        };
        table.insert(short(argument)?, value);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Problem;

    #[test]
    fn a_queue_that_may_not_be_declared_again_may_still_be_consumed() {
        let keeps = |is_of_work_queue, error| {
            Failure { part: "queue \"orders\"".to_owned(), is_of_work_queue, error }
                .keeps_from_consuming()
        };
        let (what, problem) = ("declaring".to_owned(), Problem::from("no".to_owned()));
        let missing = Error::Missing { what: what.clone(), problem: problem.clone() };
        assert!(keeps(true, missing.clone()) && !keeps(false, missing));
        assert!(!keeps(true, Error::Permission { what, problem }));
    }
}
