//! A broker that does whatever brokers do, at times that a scenario says, behind the client's
//! traits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use lapin::message::{BasicReturnMessage, Delivery};
use lapin::options::{BasicConsumeOptions, ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, Confirmation, ErrorKind, Event, ExchangeKind};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::broker::acks::Frame;
use crate::broker::client::{Answer, Channel, Connection, QueueCounts, Subscription};
use crate::broker::dial::Dial;
use crate::error::Error;
use crate::pause::pause;
use crate::publish::publishing_connection::USUAL_ANSWER_TIME;
use crate::settings::BrokerSettings;

pub(super) const EXCHANGES: usize = 3;
/// The longest that anything takes on its way, in ms.
pub(super) const LATENCY: u64 = 10;

/// What brokers answer at a limit of channels (3.10, 4.0 and 4.3).
const OVER_LIMIT: &str = "NOT_ALLOWED - number of channels opened for user 'me' has reached the maximum allowed user limit of (9)";

/// What an exchange, or the queue behind it, does with a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Open,
    Forbidden,
    Missing,
    Full,
    Unroutable,
    /// Stores and confirms when this is over.
    Slow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nature {
    Fine,
    /// Its channel is closed (406).
    Malformed,
    /// Its connection is closed (501).
    Deadly,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Weather {
    Drop,
    /// The connection ends, and no event says so.
    Vanish,
    /// No connection can be made for so long, and the present one is dropped.
    Away(u64),
    /// An alarm: nothing that is sent is read for so long.
    Block(u64),
    /// Nothing that is sent is answered for so long.
    Hang(u64),
    /// No channel can be opened for so long.
    NoChannels(u64),
}

#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) at: u64,
    pub(super) exchange: usize,
    pub(super) nature: Nature,
    pub(super) withdrawn_after: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    /// A channel that was refused a copy by a full queue is refused all that follow (3.10).
    pub(super) goes_on_refusing: bool,
    pub(super) copies: Vec<Plan>,
    pub(super) moods: Vec<(u64, usize, Mood)>,
    pub(super) weather: Vec<(u64, Weather)>,
}

/// What the broker knows of a copy.
#[derive(Debug, Clone, Default)]
pub(super) struct Fate {
    pub(super) sent: u32,
    pub(super) stored: u32,
    /// Ends of its channel or its connection while it was under way.
    pub(super) excuses: u32,
    /// Whether somebody waits for it.
    pub(super) is_wanted: bool,
    /// On which line it is under way, and since when.
    under_way: Option<(usize, Instant)>,
    /// When it was refused last, and how often it was.
    refused: Option<(Instant, u32)>,
    /// What has closed channels while it was under way.
    culprits: BTreeSet<Culprit>,
}

/// What closes a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Culprit {
    Copy(usize),
    /// An exchange, since it has changed its mood so many times.
    Exchange(usize, usize),
}

#[derive(Clone)]
pub(super) struct Broker(Arc<Mutex<World>>);

pub(super) struct World {
    scenario: Scenario,
    pub(super) fates: Vec<Fate>,
    pub(super) moods: [Mood; EXCHANGES],
    /// How often each has changed its mood.
    changes: [usize; EXCHANGES],
    /// How often each copy has broken the connection.
    breaks: BTreeMap<usize, u32>,
    /// Told of each change of a mood.
    changed: watch::Sender<()>,
    rng: StdRng,
    /// The last connection.
    connection: Option<Line>,
    away_until: Instant,
    blocked_until: Instant,
    hangs_until: Instant,
    no_channels_until: Instant,
    /// How many channels were opened, and how many of a connection were open at once, at most.
    pub(super) opened: usize,
    pub(super) most_channels: usize,
    /// Whether channels can be tried on a connection of their own.
    pub(super) has_scout: bool,
    /// How many exchanges were declared.
    pub(super) declared: usize,
}

/// One connection, or one of its channels.
#[derive(Clone)]
struct Line {
    since: Instant,
    end: Arc<watch::Sender<Option<lapin::Error>>>,
    events: broadcast::Sender<Event>,
    /// What is sent on it is read, and answered, in order.
    last: Arc<Mutex<[Instant; 2]>>,
    /// How many channels are open.
    channels: Arc<AtomicUsize>,
}

impl Line {
    fn new(now: Instant) -> Self {
        let end = Arc::new(watch::Sender::new(None));
        Self {
            since: now,
            end,
            events: broadcast::channel(100).0,
            last: Arc::new(Mutex::new([now; 2])),
            channels: Arc::default(),
        }
    }

    fn number(&self) -> usize {
        Arc::as_ptr(&self.end) as usize
    }

    fn is_open(&self) -> bool {
        self.end.borrow().is_none()
    }

    fn closes(&self, error: lapin::Error) {
        self.end.send_if_modified(|end| {
            let is_open = end.is_none();
            end.get_or_insert(error);
            is_open
        });
    }

    async fn ended(&self) -> lapin::Error {
        let mut end = self.end.subscribe();
        let end = end.wait_for(Option::is_some).await.unwrap().clone();
        end.unwrap()
    }
}

fn hard(kind: AMQPHardError, text: &str) -> lapin::Error {
    ErrorKind::ProtocolError(AMQPError::new(AMQPErrorKind::Hard(kind), text.into())).into()
}

fn soft(kind: AMQPSoftError, text: &str) -> lapin::Error {
    ErrorKind::ProtocolError(AMQPError::new(AMQPErrorKind::Soft(kind), text.into())).into()
}

fn reset() -> lapin::Error {
    ErrorKind::MissingHeartbeatError.into()
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn mock(exchange: ShortString, routing_key: ShortString) -> Delivery {
    Delivery::mock(0, exchange, routing_key, false, Vec::new())
}

impl Broker {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let now = Instant::now();
        Self(Arc::new(Mutex::new(World {
            scenario: scenario.clone(),
            fates: vec![Fate::default(); scenario.copies.len()],
            moods: [Mood::Open; EXCHANGES],
            changes: [0; EXCHANGES],
            breaks: BTreeMap::new(),
            changed: watch::Sender::new(()),
            rng: StdRng::seed_from_u64(scenario.seed),
            connection: None,
            away_until: now,
            blocked_until: now,
            hangs_until: now,
            no_channels_until: now,
            opened: 0,
            most_channels: 0,
            has_scout: false,
            declared: 0,
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    /// Changes moods and weather when the scenario says so, and all to the best after that.
    pub(super) async fn live(self) {
        let (scenario, began) = (self.lock().scenario.clone(), Instant::now());
        let mut events: BTreeMap<u64, Vec<Change>> = BTreeMap::new();
        scenario.moods.iter().for_each(|(at, exchange, mood)| {
            events.entry(*at).or_default().push(Change::Mood(*exchange, *mood))
        });
        scenario.weather.iter().for_each(|(at, weather)| {
            events.entry(*at).or_default().push(Change::Weather(*weather))
        });
        for (at, changes) in events {
            sleep_until(began + millis(at)).await;
            changes.into_iter().for_each(|change| self.change(change));
        }
        (0..EXCHANGES).for_each(|exchange| self.change(Change::Mood(exchange, Mood::Open)));
    }

    fn change(&self, change: Change) {
        let (mut state, now) = (self.lock(), Instant::now());
        match change {
            Change::Mood(exchange, mood) => {
                state.moods[exchange] = mood;
                state.changes[exchange] += 1;
                state.changed.send_replace(());
            }
            Change::Weather(weather) => match weather {
                Weather::Drop => state.closes(reset()),
                Weather::Vanish => state.vanishes(reset()),
                Weather::Away(span) => {
                    state.away_until = now + millis(span);
                    state.closes(reset());
                }
                Weather::Block(span) => state.blocked_until = now + millis(span),
                Weather::Hang(span) => state.hangs_until = now + millis(span),
                Weather::NoChannels(span) => state.no_channels_until = now + millis(span),
            },
        }
    }
}

enum Change {
    Mood(usize, Mood),
    Weather(Weather),
}

impl World {
    /// The connection ends: its event is sent, then its requests fail.
    fn closes(&mut self, error: lapin::Error) {
        if let Some(line) = &self.connection {
            let _ = line.events.send(Event::Error(error.clone()));
        }
        self.vanishes(error);
    }

    /// The same without an event.
    fn vanishes(&mut self, error: lapin::Error) {
        if let Some(line) = self.connection.take() {
            self.excuse_all();
            line.closes(error);
        }
    }

    fn is_blocked(&self) -> bool {
        Instant::now() < self.blocked_until
    }

    /// When what is sent now arrives, after what was sent before.
    fn arrival(&mut self, line: &Line, direction: usize) -> Instant {
        let now = Instant::now();
        let until = if direction == 0 { self.blocked_until } else { self.hangs_until };
        let last = &mut line.last.lock().unwrap()[direction];
        *last = (now + millis(self.rng.random_range(1..=LATENCY))).max(until).max(*last);
        *last
    }
}

impl World {
    /// A copy is sent.
    fn sends(&mut self, number: usize, line: usize) {
        let now = Instant::now();
        assert!(!self.is_blocked(), "copy {number} is sent although the broker reads nothing");
        let fate = &mut self.fates[number];
        assert!(fate.is_wanted, "copy {number} is sent for nobody");
        if let Some((at, refusals)) = fate.refused {
            let least = pause(refusals - 1, 0.0);
            assert!(
                now - at >= least,
                "copy {number} is sent {:?} after refusal {refusals}",
                now - at
            );
        }
        if let Some((other, _)) = fate.under_way.replace((line, now)) {
            assert!(other != line, "copy {number} is sent while it is under way");
            fate.excuses += 1;
        }
        fate.sent += 1;
    }

    /// Whether somebody listens. While nothing was answered, the connection may have been given up.
    fn is_heard(&self, line: &Line) -> bool {
        line.since >= self.hangs_until
    }

    fn is_current(&self, line: usize) -> bool {
        self.connection.as_ref().is_some_and(|present| present.number() == line)
    }

    /// A copy is not under way on this line any more.
    fn has_ended(&mut self, number: usize, line: usize) {
        let is_current = self.is_current(line);
        let fate = &mut self.fates[number];
        if fate.under_way.take_if(|(of, _)| *of == line).is_some() && !is_current {
            // Nobody waits for what comes on a connection that was given up.
            fate.excuses += 1;
        }
    }

    fn refuses(&mut self, number: usize, line: usize) {
        let is_heard = self
            .connection
            .as_ref()
            .is_some_and(|present| present.number() == line && self.is_heard(present));
        let fate = &mut self.fates[number];
        if is_heard {
            fate.refused =
                Some((Instant::now(), fate.refused.map_or(0, |(_, refusals)| refusals) + 1));
        }
    }

    /// A channel is closed over this culprit.
    fn excuse(&mut self, under_way: &BTreeSet<usize>, culprit: Culprit) {
        for number in under_way {
            let fate = &mut self.fates[*number];
            fate.excuses += u32::from(fate.culprits.insert(culprit));
        }
    }

    /// The connection ends.
    fn excuse_all(&mut self) {
        let under_way = self.fates.iter_mut().filter(|fate| fate.under_way.is_some());
        under_way.for_each(|fate| fate.excuses += 1);
    }

    /// A copy breaks the connection. From the third time on it is alone, at the latest: once, its
    /// channel may have been closed at the same moment, over another copy.
    fn breaks(&mut self, number: usize) {
        let is_heard = self.connection.as_ref().is_some_and(|present| self.is_heard(present));
        let breaks = self.breaks.entry(number).or_default();
        *breaks += u32::from(is_heard);
        if is_heard && *breaks > 2 {
            // One that was given up right after it was sent counts no more.
            let is_recent = |fate: &Fate| {
                fate.under_way.is_some_and(|(_, at)| at.elapsed() < USUAL_ANSWER_TIME)
            };
            let beside: Vec<_> = (0..)
                .zip(&self.fates)
                .filter(|(_, fate)| fate.is_wanted && is_recent(fate))
                .collect();
            assert!(
                beside.len() <= 1,
                "copy {number} breaks the connection for the {breaks}th time, beside {beside:?}"
            );
        }
        self.closes(hard(AMQPHardError::FRAMEERROR, "FRAME_ERROR"));
    }
}

impl Broker {
    /// What is sent now on this line is read. What is on its way when an alarm begins is read after
    /// it.
    async fn read(&self, line: &Line) -> lapin::Result<()> {
        let arrive = async {
            loop {
                let at = self.lock().arrival(line, 0);
                sleep_until(at).await;
                if !self.lock().is_blocked() {
                    break;
                }
            }
        };
        tokio::select! {
            biased;
            error = line.ended() => Err(error),
            () = arrive => Ok(()),
        }
    }

    /// The broker's answer comes. One that comes at the end of the connection still counts.
    async fn answered(&self, line: &Line) -> lapin::Result<()> {
        let at = self.lock().arrival(line, 1);
        tokio::select! {
            biased;
            () = sleep_until(at) => Ok(()),
            error = line.ended() => Err(error),
        }
    }
}

impl Dial for Broker {
    fn dial(
        &self,
        _: &BrokerSettings,
        address: &str,
        name: &str,
        _: Duration,
    ) -> BoxFuture<'_, Result<Arc<dyn Connection>, Error>> {
        let broker = address.to_owned();
        let is_scout = name == "keeping";
        async move {
            if is_scout && self.lock().has_scout {
                let (broker, line) = (self.clone(), Line::new(Instant::now()));
                return Ok(Arc::new(ModelConnection { broker, line }) as Arc<dyn Connection>);
            }
            if is_scout {
                // No channel is refused because of a limit over all connections, so nothing is to
                // be found out.
                return Err(Error::Connect { broker, problem: "no need".to_owned().into() });
            }
            sleep(millis(LATENCY)).await;
            let (mut state, now) = (self.lock(), Instant::now());
            if now < state.away_until {
                return Err(Error::Connect {
                    broker,
                    problem: "connection refused".to_owned().into(),
                });
            }
            let line = Line::new(now);
            state.connection = Some(line.clone());
            Ok(Arc::new(ModelConnection { broker: self.clone(), line }) as Arc<dyn Connection>)
        }
        .boxed()
    }
}

struct ModelConnection {
    broker: Broker,
    line: Line,
}

impl Connection for ModelConnection {
    fn is_open(&self) -> bool {
        self.line.is_open()
    }

    fn is_blocked(&self) -> bool {
        self.line.is_open() && self.broker.lock().is_blocked()
    }

    fn frame_max(&self) -> u32 {
        0
    }

    fn channel_max(&self) -> u16 {
        2_047
    }

    fn events(&self) -> BoxStream<'static, Event> {
        let events = self.line.events.subscribe();
        stream::unfold(events, |mut events| async {
            events.recv().await.ok().map(|event| (event, events))
        })
        .boxed()
    }

    fn open_channel(&self) -> Answer<'_, Arc<dyn Channel>> {
        async {
            self.broker.read(&self.line).await?;
            if Instant::now() < self.broker.lock().no_channels_until {
                if self.broker.lock().has_scout {
                    let error = hard(AMQPHardError::NOTALLOWED, OVER_LIMIT);
                    self.line.closes(error.clone());
                    return Err(error);
                }
                return Err(ErrorKind::ChannelsLimitReached.into());
            }
            self.broker.answered(&self.line).await?;
            let channel = ModelChannel {
                broker: self.broker.clone(),
                connection: self.line.clone(),
                end: Line::new(Instant::now()),
                returns: Mutex::default(),
                has_refused: Mutex::default(),
                under_way: Mutex::default(),
            };
            let mut state = self.broker.lock();
            state.opened += 1;
            state.most_channels =
                state.most_channels.max(self.line.channels.fetch_add(1, Ordering::Relaxed) + 1);
            Ok(Arc::new(channel) as Arc<dyn Channel>)
        }
        .boxed()
    }

    /// As with lapin, what was asked for here happens later, and is no event.
    fn close(&self, _: &'static str) -> Answer<'_, ()> {
        self.broker.lock().connection.take_if(|present| present.number() == self.line.number());
        let line = self.line.clone();
        tokio::spawn(async move {
            sleep(millis(LATENCY)).await;
            line.closes(reset());
        });
        async { Ok(()) }.boxed()
    }
}

struct ModelChannel {
    broker: Broker,
    connection: Line,
    end: Line,
    /// Messages that were returned, and that no answer has brought yet.
    returns: Mutex<VecDeque<BasicReturnMessage>>,
    has_refused: Mutex<bool>,
    under_way: Mutex<BTreeSet<usize>>,
}

impl ModelChannel {
    async fn ended(&self) -> lapin::Error {
        tokio::select! {
            biased;
            error = self.connection.ended() => error,
            error = self.end.ended() => error,
        }
    }

    /// The broker reads a copy. Returns its answer, or none if it closes something over it.
    async fn take(
        &self,
        number: usize,
        message: impl FnOnce() -> BasicReturnMessage,
    ) -> Option<Confirmation> {
        let Plan { exchange, nature, .. } = self.broker.lock().scenario.copies[number];
        let mut changed = self.broker.lock().changed.subscribe();
        let mood = || self.broker.lock().moods[exchange];
        if (nature, mood()) != (Nature::Fine, Mood::Slow) {
            return self.answer(number, message);
        }
        while mood() == Mood::Slow {
            changed.changed().await.unwrap();
        }
        // Whatever the exchange does with others by now, this one was taken before.
        self.broker.lock().fates[number].stored += 1;
        Some(Confirmation::Ack(None))
    }

    fn answer(
        &self,
        number: usize,
        message: impl FnOnce() -> BasicReturnMessage,
    ) -> Option<Confirmation> {
        let mut state = self.broker.lock();
        let Plan { exchange, nature, .. } = state.scenario.copies[number];
        let (mood, change) =
            (state.moods[exchange], Culprit::Exchange(exchange, state.changes[exchange]));
        let is_current = state.is_current(self.connection.number());
        let mut close = |kind, text, culprit| {
            state.excuse(&self.under_way.lock().unwrap(), culprit);
            let error = soft(kind, text);
            let _ = self.connection.events.send(Event::Error(error.clone()));
            self.end.closes(error);
            None
        };
        match (nature, mood) {
            (Nature::Deadly, _) if is_current => {
                state.breaks(number);
                None
            }
            // Nobody hears why a connection has ended that was given up.
            (Nature::Deadly, _) => {
                self.connection.closes(reset());
                None
            }
            (_, Mood::Forbidden) => close(AMQPSoftError::ACCESSREFUSED, "ACCESS_REFUSED", change),
            (_, Mood::Missing) => close(AMQPSoftError::NOTFOUND, "NOT_FOUND", change),
            (Nature::Malformed, _) => close(
                AMQPSoftError::PRECONDITIONFAILED,
                "PRECONDITION_FAILED",
                Culprit::Copy(number),
            ),
            (Nature::Fine, Mood::Open)
                if state.scenario.goes_on_refusing && *self.has_refused.lock().unwrap() =>
            {
                Some(Confirmation::Nack(None))
            }
            (Nature::Fine, Mood::Open | Mood::Slow) => {
                state.fates[number].stored += 1;
                Some(Confirmation::Ack(None))
            }
            (Nature::Fine, Mood::Full) => {
                *self.has_refused.lock().unwrap() = true;
                Some(Confirmation::Nack(None))
            }
            (Nature::Fine, Mood::Unroutable) => {
                self.returns.lock().unwrap().push_back(message());
                Some(Confirmation::Ack(None))
            }
        }
    }
}

impl Drop for ModelChannel {
    fn drop(&mut self) {
        self.end.closes(reset());
        self.connection.channels.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Channel for ModelChannel {
    fn is_open(&self) -> bool {
        self.connection.is_open() && self.end.is_open()
    }

    fn closed_by_broker(&self) -> Option<lapin::Error> {
        None
    }

    fn confirm_select(&self) -> Answer<'_, ()> {
        async {
            self.broker.read(&self.connection).await?;
            self.broker.answered(&self.connection).await
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
        let number = usize::from(body[0]);
        async move {
            if !self.is_open() {
                return Err(
                    ErrorKind::InvalidChannelState(lapin::ChannelState::Closed, "publish").into()
                );
            }
            let line = self.connection.number();
            assert!(is_mandatory, "what finds no queue would be lost");
            self.broker.lock().sends(number, line);
            self.under_way.lock().unwrap().insert(number);
            let message = || BasicReturnMessage {
                delivery: Delivery {
                    data: body.to_vec(),
                    properties,
                    ..mock(exchange, routing_key)
                },
                reply_code: 312,
                reply_text: "NO_ROUTE".into(),
            };
            let answering = async {
                self.broker.read(&self.connection).await?;
                let answer = match self.take(number, message).await {
                    Some(answer) => answer,
                    None => return Err(self.ended().await),
                };
                self.broker.answered(&self.connection).await?;
                Ok(answer)
            };
            let answer = tokio::select! {
                biased;
                answer = answering => answer,
                error = self.ended() => Err(error),
            };
            self.under_way.lock().unwrap().remove(&number);
            self.broker.lock().has_ended(number, line);
            let answer = answer?;
            if answer.is_nack() {
                self.broker.lock().refuses(number, line);
            }
            // lapin hands out the oldest return, whoever it belongs to.
            let returned = self.returns.lock().unwrap().pop_front();
            if returned.as_ref().is_some_and(|returned| returned.data != body) {
                // Until all returns have come, this may be one of them. If the channel ends before,
                // it is sent again.
                self.broker.lock().fates[number].excuses += 1;
            }
            Ok(match (answer, returned) {
                (Confirmation::Ack(_), Some(returned)) => Confirmation::Ack(Some(returned)),
                (Confirmation::Nack(_), Some(returned)) => Confirmation::Nack(Some(returned)),
                (answer, None) => answer,
                (Confirmation::NotRequested, _) => unreachable!(),
            })
        }
        .boxed()
    }

    fn close(&self, _: &'static str) -> Answer<'_, ()> {
        let mut state = self.broker.lock();
        for number in self.under_way.lock().unwrap().iter() {
            // Nobody waits for its answer any longer.
            let fate = &mut state.fates[*number];
            fate.excuses += u32::from(
                fate.under_way.take_if(|(of, _)| *of == self.connection.number()).is_some(),
            );
        }
        self.end.closes(reset());
        async { Ok(()) }.boxed()
    }

    fn set_prefetch(&self, _: u16) -> Answer<'_, ()> {
        unreachable!()
    }

    fn consume(
        &self,
        _: ShortString,
        _: BasicConsumeOptions,
        _: FieldTable,
    ) -> Answer<'_, Subscription> {
        unreachable!()
    }

    fn cancel(&self, _: ShortString) -> Answer<'_, ()> {
        unreachable!()
    }

    fn get(&self, _: ShortString) -> Answer<'_, Option<Delivery>> {
        unreachable!()
    }

    fn send_settlement(&self, _: Frame) -> bool {
        unreachable!()
    }

    fn flush(&self) -> Answer<'static, ()> {
        unreachable!()
    }

    fn declare_queue(
        &self,
        _: ShortString,
        _: QueueDeclareOptions,
        _: FieldTable,
    ) -> Answer<'_, QueueCounts> {
        unreachable!()
    }

    fn declare_exchange(
        &self,
        _: ShortString,
        _: ExchangeKind,
        _: ExchangeDeclareOptions,
        _: FieldTable,
    ) -> Answer<'_, ()> {
        async {
            self.broker.read(&self.connection).await?;
            self.broker.lock().declared += 1;
            self.broker.answered(&self.connection).await
        }
        .boxed()
    }

    fn bind_queue(
        &self,
        _: ShortString,
        _: ShortString,
        _: ShortString,
        _: FieldTable,
    ) -> Answer<'_, ()> {
        unreachable!()
    }

    fn unbind_queue(
        &self,
        _: ShortString,
        _: ShortString,
        _: ShortString,
        _: FieldTable,
    ) -> Answer<'_, ()> {
        unreachable!()
    }

    fn bind_exchange(&self, _: ShortString, _: ShortString) -> Answer<'_, ()> {
        unreachable!()
    }

    fn delete_queue(&self, _: ShortString) -> Answer<'_, ()> {
        unreachable!()
    }

    fn delete_exchange(&self, _: ShortString, _: bool) -> Answer<'_, ()> {
        unreachable!()
    }
}
