//! A connection that publishes, and what comes from it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use lapin::Event;

use super::request::Request;
use crate::broker::client::Connection;
use crate::broker::lane::{Lane, LaneId, PublishResult};
use crate::clock;
use crate::error::Error;

/// A connection and everything under way on it. When it is replaced, nothing of it is awaited any longer.
pub(super) struct Session {
    pub(super) connection: Arc<dyn Connection>,
    pub(super) events: BoxStream<'static, Event>,
    pub(super) lanes: HashMap<LaneId, Lane>,
    /// Lanes on which nothing more is sent. Each is kept until its last result: only the lane can tell whether a late ack is of a
    /// returned copy.
    given_up: HashSet<LaneId>,
    /// Each is awaited to its end, because lapin keeps those that are dropped.
    pub(super) confirms: FuturesUnordered<BoxFuture<'static, PublishResult>>,
    pub(super) operations: FuturesUnordered<BoxFuture<'static, Completion>>,
    /// How long to wait for the event that says why the connection ended.
    pub(super) ends_by: Option<Instant>,
    /// The outbox knows of its end. What is left of it is awaited until another connection replaces it.
    pub(super) is_over: bool,
}

/// An operation that the broker was asked for has ended.
pub(super) enum Completion {
    Opened(LaneId, lapin::Result<Box<Lane>>),
    Closed,
    Probed,
    Repaired,
}

/// What the publishing task waits for.
pub(super) enum Input {
    Request(Option<Request>),
    Connected(Result<Arc<dyn Connection>, Error>),
    Answered(Box<PublishResult>),
    Done(Completion),
    Event(Option<Event>),
    /// It is time to ask the outbox again.
    Time,
    /// The connection ended without saying why.
    Ended,
}

/// How long the event that says why a connection ended may take.
const NEWS_LIMIT: Duration = Duration::from_secs(1);

impl Session {
    pub(super) fn new(connection: Arc<dyn Connection>) -> Self {
        let events = connection.events();
        let mut session = Self {
            connection,
            events,
            lanes: HashMap::new(),
            given_up: HashSet::new(),
            confirms: FuturesUnordered::new(),
            operations: FuturesUnordered::new(),
            ends_by: None,
            is_over: false,
        };
        session.is_connected(clock::now());
        session
    }

    /// When a connection ends, everything on it ends. The event that says why comes soon after, if not before.
    pub(super) fn is_connected(&mut self, now: Instant) -> bool {
        let is_connected = self.connection.is_open();
        if !is_connected {
            self.ends_by.get_or_insert(now + NEWS_LIMIT);
        }
        is_connected
    }

    /// Keeps the lane until all its results have come.
    pub(super) fn give_up(&mut self, lane: LaneId) {
        self.given_up.insert(lane);
        self.forget_answered(lane);
    }

    /// Drops a lane that was given up, once all its results have come.
    pub(super) fn forget_answered(&mut self, lane: LaneId) {
        if self.given_up.contains(&lane) && self.lanes.get(&lane).is_none_or(Lane::is_answered) {
            self.given_up.remove(&lane);
            self.lanes.remove(&lane);
        }
    }

    /// All results that have arrived by now.
    pub(super) fn ready(&mut self, first: PublishResult) -> Vec<PublishResult> {
        let mut results = vec![first];
        while let Some(Some(result)) = self.confirms.next().now_or_never() {
            results.push(result);
        }
        results
    }
}

pub(super) async fn next_of(session: Option<&mut Session>) -> Input {
    let Some(session) = session else { return std::future::pending().await };
    tokio::select! {
        biased;
        event = session.events.next(), if !session.is_over => Input::Event(event),
        Some(result) = session.confirms.next(), if !session.confirms.is_empty() => Input::Answered(Box::new(result)),
        Some(completion) = session.operations.next(), if !session.operations.is_empty() => Input::Done(completion),
        () = sleep_until(session.ends_by), if !session.is_over => Input::Ended,
        else => std::future::pending().await,
    }
}

pub(super) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
