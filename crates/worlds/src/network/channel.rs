//! The client's handle of a channel.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::{FutureExt, Stream};
use lapin::message::Delivery;
use lapin::options::{BasicConsumeOptions, ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, Confirmation, ExchangeKind};
use rehop::internals::Frame;
use rehop::internals::client::{Answer, Channel, QueueCounts, Subscription};
use rehop_simulator::{ChannelNumber, ConnectionId, Event, Method};
use tokio::sync::mpsc;

use super::{Network, errors};

pub(super) struct SimulatedChannel {
    pub(super) network: Network,
    pub(super) connection: ConnectionId,
    /// Its number, and what tells it from others of that number.
    pub(super) id: (ChannelNumber, u64),
}

impl SimulatedChannel {
    /// Sends a method when it is first polled, and ends with the answer.
    fn ask(&self, method: Method) -> Answer<'static, Event> {
        let (network, connection, id) = (self.network.clone(), self.connection, self.id);
        async move {
            let answer = network.change(|state, now| state.ask(connection, id, method, now))?;
            answer.await.map_err(|_| errors::channel_is_closed())?
        }
        .boxed()
    }

    fn done(&self, method: Method) -> Answer<'static, ()> {
        self.ask(method).map(|answer| answer.map(drop)).boxed()
    }
}

impl Channel for SimulatedChannel {
    fn is_open(&self) -> bool {
        let mut state = self.network.lock();
        let is_connected = state.end(self.connection).is_some_and(|end| end.is_open());
        let channel = state.channel(self.connection, self.id.0, self.id.1);
        is_connected
            && channel.is_some_and(|channel| channel.error.is_none() && !channel.is_closing)
    }

    fn closed_by_broker(&self) -> Option<lapin::Error> {
        let mut state = self.network.lock();
        let end = state.end(self.connection)?;
        end.lost_channels.get(&self.id.1).map(|(_, error)| error.clone())
    }

    fn set_prefetch(&self, prefetch: u16) -> Answer<'_, ()> {
        self.done(Method::Qos { prefetch })
    }

    fn consume(
        &self,
        queue: ShortString,
        options: BasicConsumeOptions,
        arguments: FieldTable,
    ) -> Answer<'_, Subscription> {
        async move {
            let subscribed =
                self.network.change(|state, _| state.subscribe(self.connection, self.id));
            let (tag, deliveries) = subscribed.ok_or_else(errors::channel_is_closed)?;
            let BasicConsumeOptions { no_ack, exclusive, .. } = options;
            let method = Method::Consume {
                queue,
                consumer_tag: tag.clone(),
                is_no_ack: no_ack,
                is_exclusive: exclusive,
                arguments,
            };
            // Without an answer there is nothing to cancel by: as with lapin (4.12), the
            // subscription may come into being all the same.
            self.ask(method).await?;
            let (network, connection, channel) = (self.network.clone(), self.connection, self.id);
            let deliveries =
                Deliveries { network, connection, channel, tag: tag.clone(), deliveries };
            Ok(Subscription { tag, deliveries: Box::pin(deliveries) })
        }
        .boxed()
    }

    fn cancel(&self, tag: ShortString) -> Answer<'_, ()> {
        async move {
            self.ask(Method::Cancel { consumer_tag: tag.clone() }).await?;
            self.network.change(|state, _| state.unsubscribe(self.connection, self.id, &tag));
            Ok(())
        }
        .boxed()
    }

    fn get(&self, queue: ShortString) -> Answer<'_, Option<Delivery>> {
        let got = self.ask(Method::Get { queue, is_no_ack: false });
        async move {
            let Event::Got { delivery, .. } = got.await? else { return Ok(None) };
            Ok(Some(super::ends::delivered(delivery)))
        }
        .boxed()
    }

    fn send_settlement(&self, frame: Frame) -> bool {
        let method = match frame {
            Frame::Ack { tag, multiple } => {
                Method::Ack { delivery_tag: tag, is_multiple: multiple }
            }
            Frame::Reject { tag, requeue } => {
                Method::Reject { delivery_tag: tag, is_requeued: requeue }
            }
            Frame::Nack { tag, multiple } => {
                Method::Nack { delivery_tag: tag, is_multiple: multiple, is_requeued: true }
            }
        };
        let is_open = self.is_open();
        if is_open {
            self.network.change(|state, now| state.send(self.connection, self.id.0, method, now));
        }
        is_open
    }

    fn flush(&self) -> Answer<'static, ()> {
        self.done(Method::Flow)
    }

    fn confirm_select(&self) -> Answer<'_, ()> {
        async {
            self.ask(Method::ConfirmSelect).await?;
            if let Some(channel) =
                self.network.lock().channel(self.connection, self.id.0, self.id.1)
            {
                channel.is_confirming = true;
            }
            Ok(())
        }
        .boxed()
    }

    fn publish<'a>(
        &'a self,
        exchange: ShortString,
        routing_key: ShortString,
        body: &'a [u8],
        properties: BasicProperties,
        is_mandatory: bool,
    ) -> Answer<'a, Confirmation> {
        async move {
            let (properties, body) = (Box::new(properties), body.to_vec());
            let method = Method::Publish { exchange, routing_key, is_mandatory, properties, body };
            let confirm = self
                .network
                .change(|state, now| state.publish(self.connection, self.id, method, now))?;
            match confirm {
                None => Ok(Confirmation::NotRequested),
                Some(confirm) => confirm.await.map_err(|_| errors::channel_is_closed())?,
            }
        }
        .boxed()
    }

    fn declare_queue(
        &self,
        queue: ShortString,
        options: QueueDeclareOptions,
        arguments: FieldTable,
    ) -> Answer<'_, QueueCounts> {
        let QueueDeclareOptions { passive, durable, exclusive, auto_delete, .. } = options;
        let declared = self.ask(Method::DeclareQueue {
            queue,
            is_passive: passive,
            is_durable: durable,
            is_exclusive: exclusive,
            is_auto_delete: auto_delete,
            arguments,
        });
        async move {
            match declared.await? {
                Event::Queue { messages, consumers, .. } => Ok(QueueCounts { messages, consumers }),
                _ => Err(errors::channel_is_closed()),
            }
        }
        .boxed()
    }

    fn declare_exchange(
        &self,
        exchange: ShortString,
        kind: ExchangeKind,
        options: ExchangeDeclareOptions,
        arguments: FieldTable,
    ) -> Answer<'_, ()> {
        let ExchangeDeclareOptions { passive, durable, .. } = options;
        self.done(Method::DeclareExchange {
            exchange,
            kind: name_of(kind),
            is_passive: passive,
            is_durable: durable,
            arguments,
        })
    }

    fn bind_queue(
        &self,
        queue: ShortString,
        exchange: ShortString,
        routing_key: ShortString,
        arguments: FieldTable,
    ) -> Answer<'_, ()> {
        self.done(Method::BindQueue { queue, exchange, routing_key, arguments })
    }

    fn unbind_queue(
        &self,
        queue: ShortString,
        exchange: ShortString,
        routing_key: ShortString,
        arguments: FieldTable,
    ) -> Answer<'_, ()> {
        self.done(Method::UnbindQueue { queue, exchange, routing_key, arguments })
    }

    fn bind_exchange(&self, exchange: ShortString, source: ShortString) -> Answer<'_, ()> {
        let (routing_key, arguments) = (ShortString::default(), FieldTable::default());
        self.done(Method::BindExchange { destination: exchange, source, routing_key, arguments })
    }

    fn delete_queue(&self, queue: ShortString) -> Answer<'_, ()> {
        self.done(Method::DeleteQueue { queue, if_empty: false })
    }

    fn delete_exchange(&self, exchange: ShortString, if_unused: bool) -> Answer<'_, ()> {
        self.done(Method::DeleteExchange { exchange, if_unused })
    }

    fn close(&self, _: &'static str) -> Answer<'_, ()> {
        self.done(Method::CloseChannel)
    }
}

fn name_of(kind: ExchangeKind) -> String {
    match kind {
        ExchangeKind::Custom(name) => name,
        ExchangeKind::Direct => "direct".to_owned(),
        ExchangeKind::Fanout => "fanout".to_owned(),
        ExchangeKind::Headers => "headers".to_owned(),
        ExchangeKind::Topic => "topic".to_owned(),
    }
}

impl Drop for SimulatedChannel {
    /// As lapin's.
    fn drop(&mut self) {
        let _ = self
            .network
            .change(|state, now| state.ask(self.connection, self.id, Method::CloseChannel, now));
    }
}

/// What a subscription brings.
struct Deliveries {
    network: Network,
    connection: ConnectionId,
    channel: (ChannelNumber, u64),
    tag: ShortString,
    deliveries: mpsc::UnboundedReceiver<lapin::Result<Delivery>>,
}

impl Stream for Deliveries {
    type Item = lapin::Result<Delivery>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.deliveries.poll_recv(context)
    }
}

impl Drop for Deliveries {
    /// Cancels the subscription, as lapin's consumer does.
    fn drop(&mut self) {
        self.network.change(|state, now| {
            if state.unsubscribe(self.connection, self.channel, &self.tag) {
                let method = Method::Cancel { consumer_tag: self.tag.clone() };
                let _ = state.ask(self.connection, self.channel, method, now);
            }
        });
    }
}
