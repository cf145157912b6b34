//! The client that speaks to real brokers, by lapin, and what its faults (4.12) require.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions,
    BasicPublishOptions, BasicQosOptions, BasicRejectOptions, ChannelFlowOptions,
    ConfirmSelectOptions, ExchangeBindOptions, ExchangeDeclareOptions, ExchangeDeleteOptions,
    QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::protocol::{AMQPError, AMQPErrorKind};
use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, ChannelState, Confirmation, ErrorKind, Event, ExchangeKind};
use tokio::sync::watch;

use futures_util::stream::BoxStream;

use super::acks::Frame;
use super::client::{Answer, Channel, Connection, QueueCounts, Subscription};
use super::queued::queued;
use super::transport::ClosedChannels;

/// How often a channel is looked at that may have ended without a word.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// A connection of lapin's.
pub(super) struct LapinConnection {
    pub(super) connection: lapin::Connection,
    pub(super) closed: ClosedChannels,
}

struct LapinChannel {
    channel: lapin::Channel,
    closed: ClosedChannels,
    /// How many messages lapin has accepted and not yet written to the socket.
    unwritten: watch::Sender<usize>,
}

/// A message that lapin has accepted and not yet written, as far as anybody waits for it.
struct Unwritten<'a>(&'a watch::Sender<usize>);

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Connection for LapinConnection {
    fn is_open(&self) -> bool {
        self.connection.status().connected()
    }

    /// lapin leaves a lost connection blocked (4.12).
    fn is_blocked(&self) -> bool {
        self.connection.status().connected() && self.connection.status().blocked()
    }

    fn frame_max(&self) -> u32 {
        self.connection.configuration().frame_max()
    }

    fn channel_max(&self) -> u16 {
        self.connection.configuration().channel_max()
    }

    fn events(&self) -> BoxStream<'static, Event> {
        self.connection.events_listener().boxed()
    }

    /// lapin keeps the error with which the broker has closed a channel. Some 2,000 channels later
    /// the number of that channel is due again: lapin then returns the old error instead of a new
    /// channel, and never uses the number again. RabbitMQ itself refuses no new channel with such
    /// an error (3.10, 4.0 and 4.3), so the error is taken for an old one, and the next number is
    /// tried.
    fn open_channel(&self) -> Answer<'_, Arc<dyn Channel>> {
        async {
            loop {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "only here are old errors recognised"
                )]
                match self.connection.create_channel().await {
                    // Each try takes a number out of use, so this ends.
                    Err(error) if is_soft(&error) => {}
                    Err(error) => {
                        let user = self.connection.status().username();
                        return Err(naming(&user, error));
                    }
                    Ok(channel) => {
                        let unwritten = watch::Sender::new(0);
                        let closed = self.closed.clone();
                        return Ok(Arc::new(LapinChannel { channel, closed, unwritten })
                            as Arc<dyn Channel>);
                    }
                }
            }
        }
        .boxed()
    }

    fn close(&self, why: &'static str) -> Answer<'_, ()> {
        self.connection.close(200, why.into()).boxed()
    }
}

/// Whether it is an error for which the broker closes only a channel, not the connection.
fn is_soft(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(answer) if matches!(answer.kind(), AMQPErrorKind::Soft(_)))
}

/// With `max-channels` of a user, 4.0 names its node in place of the user. This names the user.
fn naming(user: &str, error: lapin::Error) -> lapin::Error {
    const BEFORE: &str = "number of channels opened for user '";
    let ErrorKind::ProtocolError(answer) = error.kind() else { return error };
    let text = answer.get_message().as_str();
    let Some((start, rest)) = text.split_once(BEFORE) else { return error };
    let Some((_, end)) = rest.rsplit_once("' has reached") else { return error };
    let named = ShortString::try_new(format!("{start}{BEFORE}{user}' has reached{end}"));
    match named.ok().and_then(|text| AMQPError::from_id(answer.get_id(), text)) {
        Some(named) => ErrorKind::ProtocolError(named).into(),
        None => error,
    }
}

impl LapinChannel {
    /// Returns once the channel is gone, or soon after.
    async fn closed(&self) {
        while self.channel.status().connected() {
            tokio::time::sleep(CHECK_EVERY).await;
        }
    }
}

impl Channel for LapinChannel {
    fn is_open(&self) -> bool {
        self.channel.status().connected()
    }

    fn closed_by_broker(&self) -> Option<lapin::Error> {
        if self.is_open() { None } else { self.closed.error(self.channel.id()) }
    }

    fn set_prefetch(&self, count: u16) -> Answer<'_, ()> {
        self.channel.basic_qos(count, BasicQosOptions::default()).boxed()
    }

    fn consume(
        &self,
        queue: ShortString,
        options: BasicConsumeOptions,
        arguments: FieldTable,
    ) -> Answer<'_, Subscription> {
        async move {
            #[expect(
                clippy::disallowed_methods,
                reason = "the caller closes the channel if it does not wait for the answer"
            )]
            let consumer = self
                .channel
                .basic_consume(queue, ShortString::default(), options, arguments)
                .await?;
            Ok(Subscription { tag: consumer.tag(), deliveries: Box::pin(consumer) })
        }
        .boxed()
    }

    fn cancel(&self, tag: ShortString) -> Answer<'_, ()> {
        self.channel.basic_cancel(tag, BasicCancelOptions::default()).boxed()
    }

    /// lapin tells nobody when the connection ends between the method and the content of a message
    /// (4.12), as it does when the content breaks it.
    fn get(&self, queue: ShortString) -> Answer<'_, Option<Delivery>> {
        async move {
            tokio::select! {
                biased;
                got = self.channel.basic_get(queue, BasicGetOptions::default()) => {
                    Ok(got?.map(|message| message.delivery))
                }
                () = self.closed() => Err(ErrorKind::InvalidChannelState(
                    ChannelState::Closed,
                    "the channel was closed",
                )
                .into()),
            }
        }
        .boxed()
    }

    fn send_settlement(&self, frame: Frame) -> bool {
        match frame {
            Frame::Ack { tag, multiple } => {
                queued(self.channel.basic_ack(tag, BasicAckOptions { multiple }))
            }
            Frame::Reject { tag, requeue } => {
                queued(self.channel.basic_reject(tag, BasicRejectOptions { requeue }))
            }
            Frame::Nack { tag, multiple } => {
                queued(self.channel.basic_nack(tag, BasicNackOptions { requeue: true, multiple }))
            }
        }
    }

    /// The question asks for deliveries to go on, as they do anyway.
    fn flush(&self) -> Answer<'static, ()> {
        let channel = self.channel.clone();
        async move { channel.channel_flow(ChannelFlowOptions { active: true }).await.map(drop) }
            .boxed()
    }

    fn confirm_select(&self) -> Answer<'_, ()> {
        self.channel.confirm_select(ConfirmSelectOptions::default()).boxed()
    }

    fn publish<'a>(
        &'a self,
        exchange: ShortString,
        routing_key: ShortString,
        body: &'a [u8],
        properties: BasicProperties,
        is_mandatory: bool,
    ) -> Answer<'a, Confirmation> {
        let options =
            BasicPublishOptions { mandatory: is_mandatory, ..BasicPublishOptions::default() };
        async move {
            self.unwritten.send_modify(|count| *count += 1);
            let unwritten = Unwritten(&self.unwritten);
            let confirm = self
                .channel
                .basic_publish(exchange, routing_key, options, body, properties)
                .await?;
            drop(unwritten);
            confirm.await
        }
        .boxed()
    }

    fn declare_queue(
        &self,
        queue: ShortString,
        options: QueueDeclareOptions,
        arguments: FieldTable,
    ) -> Answer<'_, QueueCounts> {
        let declared = self.channel.queue_declare(queue, options, arguments);
        async move {
            let queue = declared.await?;
            Ok(QueueCounts { messages: queue.message_count(), consumers: queue.consumer_count() })
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
        self.channel.exchange_declare(exchange, kind, options, arguments).boxed()
    }

    fn bind_queue(
        &self,
        queue: ShortString,
        exchange: ShortString,
        routing_key: ShortString,
        arguments: FieldTable,
    ) -> Answer<'_, ()> {
        self.channel
            .queue_bind(queue, exchange, routing_key, QueueBindOptions::default(), arguments)
            .boxed()
    }

    fn unbind_queue(
        &self,
        queue: ShortString,
        exchange: ShortString,
        routing_key: ShortString,
        arguments: FieldTable,
    ) -> Answer<'_, ()> {
        self.channel.queue_unbind(queue, exchange, routing_key, arguments).boxed()
    }

    fn bind_exchange(&self, exchange: ShortString, source: ShortString) -> Answer<'_, ()> {
        let options = ExchangeBindOptions::default();
        self.channel
            .exchange_bind(exchange, source, ShortString::default(), options, FieldTable::default())
            .boxed()
    }

    fn delete_queue(&self, queue: ShortString) -> Answer<'_, ()> {
        self.channel
            .queue_delete(queue, QueueDeleteOptions::default())
            .map(|deleted| deleted.map(drop))
            .boxed()
    }

    fn delete_exchange(&self, exchange: ShortString, if_unused: bool) -> Answer<'_, ()> {
        let options = ExchangeDeleteOptions { if_unused, ..ExchangeDeleteOptions::default() };
        self.channel.exchange_delete(exchange, options).boxed()
    }

    /// lapin writes what closes a channel before the messages that it still holds, for instance
    /// during an alarm (4.12). The broker would then read a message on a channel that is gone, and
    /// close the connection.
    fn close(&self, why: &'static str) -> Answer<'_, ()> {
        async move {
            // Callers that drop the answer poll it once, so that poll has to close the channel if
            // nothing is unwritten.
            if *self.unwritten.borrow() > 0 {
                // The sender lives as long as `self`.
                let _ = self.unwritten.subscribe().wait_for(|messages| *messages == 0).await;
            }
            self.channel.close(200, why.into()).await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> lapin::Error {
        ErrorKind::ProtocolError(AMQPError::from_id(530, text.into()).unwrap()).into()
    }

    #[test]
    fn a_limit_of_a_user_names_the_user_also_where_the_broker_names_its_node() {
        let of = |who: &str| {
            format!(
                "NOT_ALLOWED - number of channels opened for user '{who}' has reached the maximum allowed user limit of (2)"
            )
        };
        for who in ["rabbit@node", "svc"] {
            let error = naming("svc", refused(&of(who)));
            assert_eq!(crate::error::describe(&error), of("svc"));
        }
        let other = "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)";
        assert_eq!(crate::error::describe(&naming("svc", refused(other))), other);
    }
}
