//! Declares a topology, or looks whether it is there.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Connection, ExchangeKind as Kind};
use std::future::Future;
use std::time::Duration;

use super::{Argument, Arguments, ExchangeKind, Topology};
use crate::connection::Link;
use crate::error::Error;
use crate::settings::{Declare, Settings, TopologyMode};

impl Topology {
    /// Declares this topology on the settings' broker, by a connection of its own. Queues that belong to somebody else, and
    /// everything where `topology` is `check`, are only looked for.
    ///
    /// # Errors
    ///
    /// As [`connect`](crate::connect), and when something exists with other arguments, is missing, or may not be declared.
    pub async fn declare(&self, settings: &Settings) -> Result<(), Error> {
        settings.plan()?;
        let link = Link::new(format!("{} declaring", settings.namespace), settings.broker.clone());
        let connection = link.start().await?;
        let established = self.establish(&connection, settings.topology, link.patience()).await;
        link.close().await;
        established
    }

    /// Declares what is missing, on a channel of its own: a refusal closes the channel. In `check` mode, and for queues that
    /// belong to somebody else, only looks.
    pub(crate) async fn establish(
        &self,
        connection: &Connection,
        mode: TopologyMode,
        limit: Duration,
    ) -> Result<(), Error> {
        let channel = answer("opening a channel", limit, connection.create_channel()).await?;
        let passive = mode == TopologyMode::Check;
        for exchange in &self.exchanges {
            let options = ExchangeDeclareOptions { durable: true, passive, ..ExchangeDeclareOptions::default() };
            let kind = match exchange.kind {
                ExchangeKind::Headers => Kind::Headers,
                ExchangeKind::Direct => Kind::Direct,
                ExchangeKind::Fanout => Kind::Fanout,
            };
            let what = format!("{} exchange {:?}", verb(passive), exchange.name);
            let declaring = channel.exchange_declare(name(&exchange.name), kind, options, table(&exchange.arguments));
            answer(&what, limit, declaring).await?;
        }
        for queue in &self.queues {
            let passive = passive || queue.declare == Declare::Existing;
            let options = QueueDeclareOptions { durable: true, passive, ..QueueDeclareOptions::default() };
            let what = format!("{} queue {:?}", verb(passive), queue.name);
            answer(&what, limit, channel.queue_declare(name(&queue.name), options, table(&queue.arguments))).await?;
        }
        if !passive {
            self.bind_all(&channel, limit).await?;
        }
        // Without an answer the channel ends with its connection.
        let _ = tokio::time::timeout(limit, channel.close(200, "done".into())).await;
        Ok(())
    }

    async fn bind_all(&self, channel: &Channel, limit: Duration) -> Result<(), Error> {
        for binding in &self.bindings {
            let what = format!("binding queue {:?} to exchange {:?}", binding.queue, binding.exchange);
            let (queue, exchange, key) = (name(&binding.queue), name(&binding.exchange), name(&binding.routing_key));
            let arguments = table(&binding.arguments);
            answer(&what, limit, channel.queue_bind(queue, exchange, key, QueueBindOptions::default(), arguments))
                .await?;
        }
        Ok(())
    }
}

fn verb(passive: bool) -> &'static str {
    if passive { "looking for" } else { "declaring" }
}

/// One answer of the broker, or an error that says what it was for.
pub(crate) async fn answer<T>(
    what: &str,
    limit: Duration,
    operation: impl Future<Output = lapin::Result<T>>,
) -> Result<T, Error> {
    match tokio::time::timeout(limit, operation).await {
        Ok(result) => result.map_err(|error| Error::of_operation(what, &error)),
        Err(_) => Err(Error::Timeout { what: what.to_owned(), limit }),
    }
}

/// Names are checked with the settings, and those of a topology built by hand are cut: the broker then knows none such.
fn name(name: &str) -> ShortString {
    ShortString::try_new(name).unwrap_or_default()
}

fn table(arguments: &Arguments) -> FieldTable {
    let mut table = FieldTable::default();
    for (argument, value) in arguments {
        let value = match value {
            Argument::Number(number) => AMQPValue::LongLongInt(*number),
            Argument::Text(text) => AMQPValue::LongString(text.as_str().into()),
        };
        table.insert(name(argument), value);
    }
    table
}
