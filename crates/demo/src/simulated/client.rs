//! Reaches the simulated broker by the same client as the service does.

use std::sync::Arc;

use anyhow::bail;
use futures_util::FutureExt;
use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Confirmation, ExchangeKind};
use rehop::internals::client::{Channel, Connection};
use rehop::internals::{Frame, Link, at_rest, names, open_confirming};
use rehop::settings::BrokerSettings;
use rehop_testing::Publish;
use serde_json::Value;

use crate::client::{Client, ClientFuture, Taken};

pub(super) struct SimulatedClient {
    connection: Arc<dyn Connection>,
    publishing: Arc<dyn Channel>,
    /// Keeps the connection.
    _link: Link,
}

impl SimulatedClient {
    pub(super) async fn connect(broker: BrokerSettings) -> anyhow::Result<Self> {
        let link = Link::new("rehop demo".to_owned(), broker);
        let connection = link.start().await?;
        Ok(Self { publishing: open_confirming(&*connection).await?, connection, _link: link })
    }
}

impl Client for SimulatedClient {
    fn declare_exchange<'a>(
        &'a self,
        exchange: &'a str,
        alternate: &'a str,
    ) -> ClientFuture<'a, ()> {
        async move {
            let options =
                ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
            let mut arguments = FieldTable::default();
            arguments.insert("alternate-exchange".into(), AMQPValue::LongString(alternate.into()));
            let channel = self.connection.open_channel().await?;
            Ok(channel
                .declare_exchange(short(exchange)?, ExchangeKind::Topic, options, arguments)
                .await?)
        }
        .boxed()
    }

    fn bind<'a>(
        &'a self,
        queue: &'a str,
        exchange: &'a str,
        pattern: &'a str,
    ) -> ClientFuture<'a, ()> {
        async move {
            let channel = self.connection.open_channel().await?;
            Ok(channel
                .bind_queue(short(queue)?, short(exchange)?, short(pattern)?, FieldTable::default())
                .await?)
        }
        .boxed()
    }

    fn publish(&self, message: Publish) -> ClientFuture<'_, ()> {
        async move {
            let (exchange, key) = (short(&message.exchange)?, short(&message.routing_key)?);
            let properties = properties(&message)?;
            match self.publishing.publish(exchange, key, &message.body, properties, true).await? {
                Confirmation::Ack(None) => Ok(()),
                refused => bail!("the simulated broker has refused a message: {refused:?}"),
            }
        }
        .boxed()
    }

    fn depth<'a>(&'a self, queue: &'a str) -> ClientFuture<'a, usize> {
        async move {
            let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            let channel = self.connection.open_channel().await?;
            Ok(channel.declare_queue(short(queue)?, passive, FieldTable::default()).await?.messages
                as usize)
        }
        .boxed()
    }

    fn take_all<'a>(&'a self, queue: &'a str) -> ClientFuture<'a, Vec<Taken>> {
        async move {
            let channel = self.connection.open_channel().await?;
            let mut all = Vec::new();
            while let Some(delivery) = channel.get(short(queue)?).await? {
                let read = at_rest::read(&delivery.properties, names::EXPIRES_AT);
                let death = read.deaths.into_iter().next().map(|death| death.reason);
                let message_id = delivery.properties.message_id().as_ref().map(ToString::to_string);
                all.push(Taken { message_id, reason: read.reason.or(death) });
                channel.send_settlement(Frame::Ack { tag: delivery.delivery_tag, multiple: false });
            }
            channel.flush().await?;
            Ok(all)
        }
        .boxed()
    }
}

fn short(text: &str) -> anyhow::Result<ShortString> {
    Ok(rehop::internals::short(text)?)
}

/// The properties that the script's messages have.
fn properties(message: &Publish) -> anyhow::Result<BasicProperties> {
    let mut headers = FieldTable::default();
    for (name, value) in &message.headers {
        let value = match (value, value.as_i64()) {
            (_, Some(number)) => AMQPValue::LongLongInt(number),
            (Value::String(text), None) => AMQPValue::LongString(text.as_str().into()),
            (other, None) => bail!("the simulated demo publishes no header like {other}"),
        };
        headers.insert(short(name)?, value);
    }
    let mut properties = BasicProperties::default().with_headers(headers);
    if let Some(id) = &message.properties.message_id {
        properties = properties.with_message_id(short(id)?);
    }
    if let Some(content_type) = &message.properties.content_type {
        properties = properties.with_content_type(short(content_type)?);
    }
    if let Some(mode) = message.properties.delivery_mode {
        properties = properties.with_delivery_mode(mode);
    }
    Ok(properties)
}
