//! The jobs with lapin alone, as fast as possible: frames are queued by polling their futures once,
//! confirms are pipelined, up to 500 messages are in flight, and copies are confirmed before their
//! originals are acked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicPublishOptions, BasicQosOptions,
    BasicRejectOptions, ConfirmSelectOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Acker, BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use tokio::time::{Instant, sleep_until};

use crate::corner::Corner;
use crate::job::{DELIVERY_LIMIT, Job};
use crate::task::Task;
use crate::way::Way;
use crate::witness::Witness;
use crate::{PREFETCH, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// rehop's own topology, an ack for each message.
    SingleAcks,
    /// An ack for 64 messages at a time.
    BatchedAcks,
    /// The default exchange in and out: routing key rewritten, no stray queue.
    CheapestTopology,
    /// As many headers on each copy as rehop writes. The broker reads and writes them several
    /// times.
    WithHistory,
}

impl Variant {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SingleAcks => "raw lapin, single acks",
            Self::BatchedAcks => "raw lapin, acks batched by 64",
            Self::CheapestTopology => "raw lapin, default exchange, no stray queue",
            Self::WithHistory => "raw lapin, with rehop's headers",
        }
    }
}

/// How many messages one ack settles, with [`Variant::BatchedAcks`].
const BATCH: usize = 64;
/// How long a connection stays open after the last ack. Closing it right away would lose acks.
pub(crate) const LINGER: Duration = Duration::from_millis(200);

pub(crate) async fn work(task: Task, variant: Variant) -> Result<()> {
    let Task { job, url, corner, witness, mut stop } = task;
    let connect = || Connection::connect(&url, ConnectionProperties::default());
    let (consuming, publishing) = (connect().await?, connect().await?);
    let channel = consuming.create_channel().await?;
    let publisher = publishing.create_channel().await?;
    publisher.confirm_select(ConfirmSelectOptions::default()).await?;
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
    let mut deliveries = channel
        .basic_consume(
            short(&corner.queue),
            short(""),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        )
        .await?;
    let mut client = Client {
        job,
        history: if variant == Variant::WithHistory { history() } else { Vec::new() },
        batch: (variant == Variant::BatchedAcks).then(Vec::new),
        corner,
        witness,
        publisher,
        settling: FuturesUnordered::new(),
        held: VecDeque::new(),
    };
    loop {
        let due = client.held.front().map(|(due, _)| *due);
        tokio::select! {
            biased;
            Some((confirmed, original)) = client.settling.next() => settle(confirmed, &original)?,
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => client.resume().await?,
            delivery = deliveries.next() => client.take(delivery.ok_or("the consumer ended")??).await?,
            _ = &mut stop => break,
        }
    }
    client.finish().await?;
    tokio::time::sleep(LINGER).await;
    consuming.close(200, short("done")).await?;
    publishing.close(200, short("done")).await?;
    Ok(())
}

struct Client {
    job: Job,
    /// Further headers of each copy.
    history: Vec<(&'static str, AMQPValue)>,
    corner: Corner,
    witness: Arc<Witness>,
    publisher: Channel,
    /// The messages to ack together, if acks are batched.
    batch: Option<Vec<Acker>>,
    settling: FuturesUnordered<BoxFuture<'static, (lapin::Result<Confirmation>, Acker)>>,
    /// What waits here, and until when.
    held: VecDeque<(Instant, Delivery)>,
}

impl Client {
    async fn take(&mut self, delivery: Delivery) -> Result<()> {
        let is_last = match self.job {
            Job::Success => true,
            Job::Wait(Way::Native) => delivery.redelivered,
            Job::Wait(Way::InProcess) => false,
            Job::Wait(_) => has_waited(&delivery),
            Job::Requeue => delivery_count(&delivery) + 1 >= DELIVERY_LIMIT,
        };
        self.witness
            .attempt(delivery.properties.message_id().as_ref().map(ShortString::as_str), is_last);
        match self.job {
            Job::Success => self.ack(delivery.acker).await?,
            Job::Wait(_) if is_last => self.ack(delivery.acker).await?,
            Job::Wait(Way::Native) => {
                queue_frame(
                    delivery.acker.nack(BasicNackOptions { requeue: true, multiple: false }),
                );
            }
            Job::Wait(Way::InProcess) => {
                self.held.push_back((Instant::now() + Way::IN_PROCESS, delivery))
            }
            Job::Wait(way) => self.send_to_wait(way, delivery),
            Job::Requeue if is_last => self.send_to_parked(delivery),
            Job::Requeue => {
                queue_frame(delivery.acker.reject(BasicRejectOptions { requeue: true }))
            }
        }
        Ok(())
    }

    /// The second attempt of what has waited here for longest.
    async fn resume(&mut self) -> Result<()> {
        if let Some((_, delivery)) = self.held.pop_front() {
            self.witness
                .attempt(delivery.properties.message_id().as_ref().map(ShortString::as_str), true);
            self.ack(delivery.acker).await?;
        }
        Ok(())
    }

    async fn ack(&mut self, acker: Acker) -> Result<()> {
        match &mut self.batch {
            None => queue_frame(acker.ack(BasicAckOptions::default())),
            Some(batch) => {
                batch.push(acker);
                if batch.len() == BATCH {
                    self.ack_batch().await?;
                }
            }
        }
        Ok(())
    }

    /// Awaits the ack: lapin's `Acker` runs each call in a task of its own, and after an ack with
    /// `multiple` an ack for an earlier tag would close the channel.
    async fn ack_batch(&mut self) -> Result<()> {
        if let Some(newest) = self.batch.as_mut().and_then(|batch| batch.drain(..).next_back()) {
            newest.ack(BasicAckOptions { multiple: true }).await?;
        }
        Ok(())
    }

    /// Settles what has begun.
    async fn finish(&mut self) -> Result<()> {
        self.ack_batch().await?;
        while let Some((confirmed, original)) = self.settling.next().await {
            settle(confirmed, &original)?;
        }
        Ok(())
    }

    fn send_to_wait(&mut self, way: Way, delivery: Delivery) {
        let millis = |millis: u64| AMQPValue::LongLongInt(millis as i64);
        let id = delivery
            .properties
            .message_id()
            .as_ref()
            .and_then(|id| id.as_str().parse().ok())
            .unwrap_or(0);
        let legs = match way {
            Way::Tiers | Way::DelayedExchange => vec![Way::TIERS.as_millis() as u64],
            way => way.legs(id),
        };
        let wait_for = if way == Way::DelayedExchange { "x-delay" } else { "rehop-wait-for" };
        let mut headers = vec![
            ("rehop-return-to".to_owned(), text(&self.corner.queue)),
            (wait_for.to_owned(), millis(legs[0])),
            ("hop".to_owned(), AMQPValue::LongLongInt(1)),
        ];
        headers.extend(
            legs.windows(2).map(|legs| (format!("rehop-then-{}", legs[0]), millis(legs[1]))),
        );
        let namespace = &self.corner.settings.namespace;
        let (exchange, key) = match (&self.corner.cheap_wait, way) {
            (Some(wait_queue), _) => (short(""), short(wait_queue)),
            (None, Way::Ladder(_) | Way::Spread) => {
                (short(&format!("{namespace}.ladder")), delivery.routing_key.clone())
            }
            (None, Way::DelayedExchange) => {
                (short(&format!("{namespace}.delay")), delivery.routing_key.clone())
            }
            (None, _) => (short(&format!("{namespace}.wait")), delivery.routing_key.clone()),
        };
        self.send(exchange, key, &headers, delivery);
    }

    fn send_to_parked(&mut self, delivery: Delivery) {
        let exchange = short(&format!("{}.park", self.corner.settings.namespace));
        self.send(
            exchange,
            short(&self.corner.queue),
            &[("hop".to_owned(), AMQPValue::LongLongInt(1))],
            delivery,
        );
    }

    fn send(
        &mut self,
        exchange: ShortString,
        key: ShortString,
        headers: &[(String, AMQPValue)],
        delivery: Delivery,
    ) {
        let history = self.history.iter().map(|(name, value)| (short(name), value.clone()));
        let headers = headers.iter().map(|(name, value)| (short(name), value.clone()));
        let headers: BTreeMap<_, _> = headers.chain(history).collect();
        let mut properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_headers(FieldTable::from(headers));
        if let Some(id) = delivery.properties.message_id() {
            properties = properties.with_message_id(id.clone());
        }
        let publisher = self.publisher.clone();
        let copied = async move {
            let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
            let confirm = match publisher
                .basic_publish(exchange, key, options, &delivery.data, properties)
                .await
            {
                Ok(confirm) => confirm.await,
                Err(error) => Err(error),
            };
            (confirm, delivery.acker)
        };
        self.settling.push(copied.boxed());
    }
}

/// What rehop writes beside the three headers that every side writes, in values of the same kinds
/// and lengths.
pub(crate) fn history() -> Vec<(&'static str, AMQPValue)> {
    let moment = || AMQPValue::LongLongInt(1_700_000_000_000);
    let failures = r#"[{"at":1700000000000,"attempt":1,"class":"transient","message":"not yet"}]"#;
    vec![
        ("rehop-attempt", AMQPValue::LongLongInt(1)),
        ("rehop-chain-id", text("4bf92f3577b34da6")),
        ("rehop-errors", text(failures)),
        ("rehop-exchange", text("")),
        ("rehop-first-seen-at", moment()),
        ("rehop-waiting-since", moment()),
    ]
}

fn settle(confirmed: lapin::Result<Confirmation>, original: &Acker) -> Result<()> {
    if confirmed? != Confirmation::Ack(None) {
        return Err("a copy was not confirmed".into());
    }
    queue_frame(original.ack(BasicAckOptions::default()));
    Ok(())
}

/// The first poll queues the frame. Waiting until it is written would cost two thirds of the
/// throughput.
pub(crate) fn queue_frame(frame: impl Future<Output = lapin::Result<bool>>) {
    let _ = frame.now_or_never();
}

fn header<'a>(delivery: &'a Delivery, name: &str) -> Option<&'a AMQPValue> {
    delivery.properties.headers().as_ref()?.inner().get(name)
}

fn has_waited(delivery: &Delivery) -> bool {
    header(delivery, "hop").is_some()
}

fn delivery_count(delivery: &Delivery) -> u32 {
    match header(delivery, "x-delivery-count") {
        Some(AMQPValue::LongLongInt(count)) => u32::try_from(*count).unwrap_or(0),
        _ => 0,
    }
}

pub(crate) fn short(name: &str) -> ShortString {
    ShortString::from(name)
}

pub(crate) fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}
