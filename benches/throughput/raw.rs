//! The jobs by lapin alone, written as well as can be: frames queued by polling their futures once, confirms pipelined, up to
//! 500 messages under way, copies confirmed before their originals are acked.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, BasicRejectOptions,
    ConfirmSelectOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Acker, BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};

use crate::job::{Bench, DELIVERY_LIMIT, Job, Prepared, WAIT};
use crate::report::Run;
use crate::{PREFETCH, Result};

/// The name of the variant that rehop is compared with.
pub(crate) const SAME_TOPOLOGY: &str = "raw lapin, single acks";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// rehop's own topology, an ack for each message.
    SingleAcks,
    /// An ack for 64 messages at a time.
    BatchedAcks,
    /// The default exchange in and out: routing key rewritten, no stray queue.
    CheapestTopology,
}

impl Variant {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SingleAcks => SAME_TOPOLOGY,
            Self::BatchedAcks => "raw lapin, acks batched by 64",
            Self::CheapestTopology => "raw lapin, default exchange, no stray queue",
        }
    }
}

pub(crate) fn variants(job: Job) -> Vec<Variant> {
    match job {
        Job::Success => vec![Variant::SingleAcks, Variant::BatchedAcks],
        Job::Wait => vec![Variant::SingleAcks, Variant::CheapestTopology],
        Job::Requeue => vec![Variant::SingleAcks],
    }
}

pub(crate) async fn run(bench: &Bench, job: Job, variant: Variant, _round: usize) -> Result<Run> {
    let run = bench.prepare(job, "raw").await?;
    let connect = || Connection::connect(bench.url(), ConnectionProperties::default());
    let (consuming, publishing) = (connect().await?, connect().await?);
    let channel = consuming.create_channel().await?;
    let publisher = publishing.create_channel().await?;
    publisher.confirm_select(ConfirmSelectOptions::default()).await?;
    let cheap_wait = cheap_wait_queue(&publisher, &run, variant).await?;
    let started = Instant::now();
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
    let consumer = channel
        .basic_consume(short(&run.queue), short(""), BasicConsumeOptions::default(), FieldTable::default())
        .await?;
    let mut client =
        Client { run: &run, publisher, cheap_wait, settling: FuturesUnordered::new(), handled: 0, settled: 0 };
    client.work(job, variant, consumer).await?;
    let took = started.elapsed();
    let handled = client.handled;
    tokio::time::sleep(Duration::from_millis(200)).await;
    consuming.close(200, short("done")).await?;
    publishing.close(200, short("done")).await?;
    Ok(Run { messages: run.count, took, lost: bench.lost(job, &run, handled).await? })
}

async fn cheap_wait_queue(channel: &Channel, run: &Prepared, variant: Variant) -> Result<Option<ShortString>> {
    if variant != Variant::CheapestTopology {
        return Ok(None);
    }
    let name = short(&format!("{}.cheap", run.namespace.name()));
    let mut arguments = FieldTable::default();
    for (argument, value) in [
        ("x-queue-type", text("quorum")),
        ("x-message-ttl", AMQPValue::LongLongInt(WAIT.as_millis() as i64)),
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text(&run.queue)),
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-overflow", text("reject-publish")),
    ] {
        arguments.insert(short(argument), value);
    }
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(name.clone(), options, arguments).await?;
    Ok(Some(name))
}

struct Client<'a> {
    run: &'a Prepared,
    publisher: Channel,
    cheap_wait: Option<ShortString>,
    settling: FuturesUnordered<BoxFuture<'static, (lapin::Result<Confirmation>, Acker)>>,
    handled: usize,
    settled: usize,
}

impl Client<'_> {
    async fn work(&mut self, job: Job, variant: Variant, mut consumer: lapin::Consumer) -> Result<()> {
        let mut unacked = 0;
        while self.settled < self.run.count {
            tokio::select! {
                biased;
                Some((confirmed, original)) = self.settling.next(), if !self.settling.is_empty() => {
                    if confirmed? != Confirmation::Ack(None) {
                        return Err("a copy was not confirmed".into());
                    }
                    queue_frame(original.ack(BasicAckOptions::default()));
                    if job == Job::Requeue {
                        self.settled += 1;
                    }
                }
                delivery = consumer.next() => {
                    let delivery = delivery.ok_or("the consumer ended")??;
                    match job {
                        Job::Success if variant == Variant::BatchedAcks => {
                            self.finish();
                            unacked += 1;
                            if unacked == 64 || self.settled == self.run.count {
                                // Awaited: lapin may send frames that were queued by one poll in another order, and an
                                // earlier tag is unknown once a later one was acked with all before it.
                                delivery.acker.ack(BasicAckOptions { multiple: true }).await?;
                                unacked = 0;
                            }
                        }
                        Job::Success => {
                            self.finish();
                            queue_frame(delivery.acker.ack(BasicAckOptions::default()));
                        }
                        Job::Wait if has_waited(&delivery) => {
                            self.finish();
                            queue_frame(delivery.acker.ack(BasicAckOptions::default()));
                        }
                        Job::Wait => self.send_to_wait(delivery),
                        Job::Requeue if delivery_count(&delivery) + 1 < DELIVERY_LIMIT => {
                            queue_frame(delivery.acker.reject(BasicRejectOptions { requeue: true }));
                        }
                        Job::Requeue => self.send_to_parked(delivery),
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.handled += 1;
        self.settled += 1;
    }

    fn send_to_wait(&mut self, delivery: Delivery) {
        let queue = self.run.queue.clone();
        let headers = [
            ("return-to", text(&queue)),
            ("wait-for", AMQPValue::LongLongInt(WAIT.as_millis() as i64)),
            ("hop", AMQPValue::LongLongInt(1)),
        ];
        let (exchange, key) = match &self.cheap_wait {
            Some(wait_queue) => (short(""), wait_queue.clone()),
            None => (short(&format!("{}.wait", self.run.namespace.name())), delivery.routing_key.clone()),
        };
        self.send(exchange, key, &headers, delivery);
    }

    fn send_to_parked(&mut self, delivery: Delivery) {
        let exchange = short(&format!("{}.park", self.run.namespace.name()));
        self.send(exchange, short(&self.run.queue), &[("hop", AMQPValue::LongLongInt(1))], delivery);
    }

    fn send(&mut self, exchange: ShortString, key: ShortString, headers: &[(&str, AMQPValue)], delivery: Delivery) {
        let headers: BTreeMap<_, _> = headers.iter().map(|(name, value)| (short(name), value.clone())).collect();
        let mut properties = BasicProperties::default().with_delivery_mode(2).with_headers(FieldTable::from(headers));
        if let Some(id) = delivery.properties.message_id() {
            properties = properties.with_message_id(id.clone());
        }
        let publisher = self.publisher.clone();
        let copied = async move {
            let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
            let confirm = match publisher.basic_publish(exchange, key, options, &delivery.data, properties).await {
                Ok(confirm) => confirm.await,
                Err(error) => Err(error),
            };
            (confirm, delivery.acker)
        };
        self.settling.push(copied.boxed());
    }
}

/// The first poll queues the frame. Waiting until it is written costs two thirds of the throughput.
fn queue_frame(frame: impl Future<Output = lapin::Result<bool>>) {
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

fn short(name: &str) -> ShortString {
    ShortString::from(name)
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}
