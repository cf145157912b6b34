//! What an operator does with parked messages: look at all of them, and send all back. rehop beside
//! raw lapin that does the same.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Confirmation, Connection, ConnectionProperties, Consumer};
use rehop_operator::parked::{Filter, ListRequest, Parked, Place, RampSettings, ReplayRequest};
use rehop_testing::Publish;
use serde_json::json;
use tokio::time::timeout;

use crate::audit::Audit;
use crate::corner::Corner;
use crate::cpu::Spent;
use crate::job::Job;
use crate::lab::{BODY, Lab};
use crate::raw::{self, queue_frame, short, text};
use crate::report::Report;
use crate::run::Run;
use crate::side::Side;
use crate::{PREFETCH, Result, collect, turns};

/// rehop's default.
const DEFAULT_IN_FLIGHT: u16 = 100;
/// Work that takes longer is stuck.
const LONGEST: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    /// A consumer that reads everything, and gives it back by closing its channel. It is done when
    /// all is back in the queue, as rehop is.
    RawLook,
    RehopLook,
    /// Publishes to the return exchange, waits for the confirm, then acks; with this many messages
    /// in flight.
    RawMove(u16),
    RehopMove(u16),
}

impl Contender {
    /// Each task's raw side first, then rehop.
    const ALL: [Self; 6] = [
        Self::RawLook,
        Self::RehopLook,
        Self::RawMove(PREFETCH),
        Self::RehopMove(PREFETCH),
        Self::RawMove(DEFAULT_IN_FLIGHT),
        Self::RehopMove(DEFAULT_IN_FLIGHT),
    ];

    fn name(self) -> String {
        match self {
            Self::RawLook => "look: raw lapin".to_owned(),
            Self::RehopLook => "look: rehop, in groups".to_owned(),
            Self::RawMove(in_flight) => format!("send back: raw lapin, {in_flight} in flight"),
            Self::RehopMove(in_flight) => format!("send back: rehop, {in_flight} in flight"),
        }
    }

    /// Which contender it is compared with.
    fn yardstick(row: usize) -> usize {
        row - row % 2
    }

    fn moves(self) -> bool {
        matches!(self, Self::RawMove(_) | Self::RehopMove(_))
    }

    async fn work(self, lab: &Lab, corner: &Corner, messages: usize) -> Result<()> {
        match self {
            Self::RawLook => raw_look(lab, corner, messages).await,
            Self::RehopLook => rehop_look(corner, messages).await,
            Self::RawMove(in_flight) => raw_move(lab.url(), corner, messages, in_flight).await,
            Self::RehopMove(in_flight) => rehop_move(corner, messages, in_flight).await,
        }
    }
}

/// Returns how many messages are not where they should be.
pub(crate) async fn compare(lab: &Lab) -> Result<usize> {
    let title = format!(
        "{} parked messages: time runs from the first connection until they are given back or sent",
        lab.effort.parked
    );
    let mut report = Report::new(title, Contender::ALL.iter().map(|contender| contender.name()));
    for round in turns::rounds(lab.effort.rounds) {
        for turn in turns::order(round, Contender::ALL.len()) {
            let contender = Contender::ALL[turn];
            lab.progress.say(&format!("parked, {round}: {}", contender.name()));
            report.add(turn, round, run(lab, contender).await?);
        }
    }
    lab.progress.clear();
    Ok(report.print_beside(Contender::yardstick))
}

async fn run(lab: &Lab, contender: Contender) -> Result<Run> {
    let messages = lab.effort.parked;
    let side = if matches!(contender, Contender::RehopLook | Contender::RehopMove(_)) {
        Side::Rehop
    } else {
        Side::YARDSTICK
    };
    let corner = lab.corner(Job::Requeue, side).await?;
    park(lab, &corner, messages).await?;
    let before = Spent::now(lab).await;
    let began = Instant::now();
    timeout(LONGEST, contender.work(lab, &corner, messages)).await??;
    let took = began.elapsed();
    let (cpu, broker_cpu) = Spent::now(lab).await.since(before).each(messages);
    let audit = audit(lab.url(), contender, &corner, messages).await?;
    lab.remove(corner).await?;
    Ok(Run { messages, took, cpu, broker_cpu, lateness: Vec::new(), audit })
}

/// Parks messages as a service does, with headers of the same kinds and lengths.
async fn park(lab: &Lab, corner: &Corner, messages: usize) -> Result<()> {
    let park = format!("{}.park", corner.settings.namespace);
    let failure =
        json!([{"at": 1_700_000_000_000i64, "attempt": 8, "class": "http_503", "message": "order 7 is not there"}])
            .to_string();
    let message = |id: usize| {
        let message = Publish::to(&park, &corner.queue).body(BODY).message_id(id.to_string());
        message
            .header("rehop-reason", "exhausted")
            .header("rehop-chain-id", format!("4bf92f3577b34da6{id:016x}"))
            .header("rehop-parked-at", 1_700_000_000_000i64)
            .header("rehop-first-seen-at", 1_700_000_000_000i64)
            .header("rehop-attempt", 8)
            .header("rehop-hop", 3)
            .header("rehop-exchange", "shop")
            .header("rehop-routing-key", "order.created")
            .header("rehop-errors", failure.clone())
    };
    lab.client.publish_many((0..messages).map(message)).await?;
    all_are_there(lab, corner, messages).await
}

async fn all_are_there(lab: &Lab, corner: &Corner, messages: usize) -> Result<()> {
    while (lab.client.depth(&corner.parked).await? as usize) < messages {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

async fn consume(
    connection: &Connection,
    queue: &str,
    prefetch: u16,
) -> Result<(Channel, Consumer)> {
    let channel = connection.create_channel().await?;
    channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions::default();
    let consumer =
        channel.basic_consume(short(queue), short(""), options, FieldTable::default()).await?;
    Ok((channel, consumer))
}

async fn raw_look(lab: &Lab, corner: &Corner, messages: usize) -> Result<()> {
    let connection = Connection::connect(lab.url(), ConnectionProperties::default()).await?;
    // Without a prefetch the broker sends 2,000 messages and no more (4.3).
    let (mut left, mut channels) = (messages, Vec::new());
    while left > 0 {
        let prefetch = u16::try_from(left).unwrap_or(u16::MAX);
        let (channel, mut consumer) = consume(&connection, &corner.parked, prefetch).await?;
        for _ in 0..prefetch {
            consumer.next().await.ok_or("the consumer ended")??;
        }
        left -= usize::from(prefetch);
        channels.push(channel);
    }
    for channel in channels {
        channel.close(200, short("done")).await?;
    }
    connection.close(200, short("done")).await?;
    all_are_there(lab, corner, messages).await
}

async fn rehop_look(corner: &Corner, messages: usize) -> Result<()> {
    let parked = Parked::open(&corner.settings, Place::queue(&corner.queue))?;
    let listing = parked.list(&ListRequest::all(Filter::default())).await?;
    let (seen, groups) = (listing.matched as usize, listing.groups.len());
    if (seen, groups) == (messages, 1) {
        Ok(())
    } else {
        Err(format!("{seen} messages in {groups} groups").into())
    }
}

async fn raw_move(url: &str, corner: &Corner, messages: usize, in_flight: u16) -> Result<()> {
    let connect = || Connection::connect(url, ConnectionProperties::default());
    let (consuming, publishing) = (connect().await?, connect().await?);
    let (_channel, mut consumer) = consume(&consuming, &corner.parked, in_flight).await?;
    let publisher = publishing.create_channel().await?;
    publisher.confirm_select(ConfirmSelectOptions::default()).await?;
    let exchange = short(&format!("{}.return", corner.settings.namespace));
    let (mut settling, mut moved) = (FuturesUnordered::new(), 0);
    while moved < messages {
        tokio::select! {
            biased;
            Some((confirmed, original)) = settling.next() => {
                settle(confirmed, &original)?;
                moved += 1;
            }
            Some(delivery) = consumer.next() => {
                let delivery: lapin::message::Delivery = delivery?;
                let mut headers: BTreeMap<_, _> =
                    raw::history().into_iter().map(|(name, value)| (short(name), value)).collect();
                headers.insert(short("rehop-return-to"), text(&corner.queue));
                headers.insert(short("rehop-routing-key"), text("order.created"));
                headers.insert(short("rehop-replays"), AMQPValue::LongLongInt(1));
                let properties = delivery.properties.clone().with_headers(FieldTable::from(headers));
                let (publisher, exchange) = (publisher.clone(), exchange.clone());
                settling.push(async move {
                    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
                    let published =
                        publisher.basic_publish(exchange, short("order.created"), options, &delivery.data, properties);
                    let confirmed = match published.await {
                        Ok(confirm) => confirm.await,
                        Err(error) => Err(error),
                    };
                    (confirmed, delivery.acker)
                });
            }
            else => return Err("the consumer ended".into()),
        }
    }
    tokio::time::sleep(raw::LINGER).await;
    consuming.close(200, short("done")).await?;
    publishing.close(200, short("done")).await?;
    Ok(())
}

fn settle(confirmed: lapin::Result<Confirmation>, original: &lapin::Acker) -> Result<()> {
    if confirmed? != Confirmation::Ack(None) {
        return Err("a copy was not confirmed".into());
    }
    queue_frame(original.ack(BasicAckOptions::default()));
    Ok(())
}

async fn rehop_move(corner: &Corner, messages: usize, in_flight: u16) -> Result<()> {
    let parked = Parked::open(&corner.settings, Place::queue(&corner.queue))?;
    let mut request = ReplayRequest::default();
    // Nobody consumes, so there are no fates to wait for.
    (request.ramp, request.follow, request.in_flight) =
        (RampSettings::none(), Duration::ZERO, Some(in_flight));
    let replayed = parked.replay(&request, |_| {}, std::future::pending()).await?;
    let moved = replayed.tally.moved as usize;
    if moved == messages { Ok(()) } else { Err(format!("{moved} messages were sent back").into()) }
}

/// Where each message is. A look leaves all in the parked queue, and a move leaves all in the work
/// queue.
async fn audit(url: &str, contender: Contender, corner: &Corner, messages: usize) -> Result<Audit> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    let (from, to) = (&corner.parked, &corner.queue);
    let (home, other) = if contender.moves() { (to, from) } else { (from, to) };
    let mut copies = vec![0_usize; messages];
    for id in collect::take_all(&connection, home, messages).await? {
        copies[id] += 1;
    }
    let astray = collect::take_all(&connection, other, messages).await?;
    connection.close(200, short("done")).await?;
    let lost = (0..messages).filter(|id| copies[*id] == 0 && !astray.contains(id)).collect();
    let again = copies.iter().map(|count| count.saturating_sub(1)).sum();
    Ok(Audit { lost, astray, again, ..Audit::default() })
}
