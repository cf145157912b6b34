//! The task that owns the publishing connection: it does what the outbox decides and tells the outbox what happens.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lapin::Event;

use super::Unpublishable;
use super::outbox::{Action, Outbox};
use super::report::log;
use super::request::{Pending, Request, Requests};
use super::session::{Completion, Input, Session, next_of, sleep_until};
use crate::broker::client::Connection;
use crate::broker::connection::Link;
use crate::broker::keeper::Keeper;
use crate::broker::lane::cause::Cause;
use crate::broker::lane::{self, CopyId, Lane, LaneId, PublishResult};
use crate::clock;
use crate::error::Error;
use crate::random::random;

pub(super) struct Task {
    link: Arc<Link>,
    keeper: Arc<Keeper>,
    retried: Arc<dyn Fn(&str) + Send + Sync>,
    outbox: Outbox,
    pending: HashMap<CopyId, Pending>,
    connecting: Option<BoxFuture<'static, Result<Arc<dyn Connection>, Error>>>,
    session: Option<Session>,
}

impl Task {
    pub(super) fn new(
        link: Arc<Link>,
        keeper: Arc<Keeper>,
        exchanges: &BTreeSet<String>,
        retried: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Self {
        Self {
            outbox: Outbox::new(link.answer_timeout(), exchanges.iter().map(String::as_str)),
            pending: HashMap::new(),
            connecting: None,
            session: None,
            retried,
            keeper,
            link,
        }
    }

    /// Ends when the last handle is dropped.
    pub(super) async fn run(mut self, requests: &mut Requests) {
        loop {
            let (now, is_blocked) = (clock::now(), self.is_blocked());
            while let Some(action) = self.outbox.next(now, is_blocked, random) {
                self.act(action);
            }
            match self.next_input(requests).await {
                Input::Request(None) => return,
                Input::Request(Some(first)) => self.take_in(first, requests),
                input => self.on_input(input),
            }
        }
    }

    /// Read from the connection and not remembered from events, so that nothing is missed that happened before anybody listened.
    fn is_blocked(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.connection.is_blocked())
    }

    async fn next_input(&mut self, requests: &mut Requests) -> Input {
        let wake_at = self.outbox.wake_at();
        tokio::select! {
            biased;
            connected = ready_or_never(self.connecting.as_mut()) => Input::Connected(connected),
            input = next_of(self.session.as_mut()) => input,
            request = requests.recv() => Input::Request(request),
            () = sleep_until(wake_at) => Input::Time,
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Connect => self.connect(),
            Action::Confirmed(id) => self.finish(id, Ok(())),
            Action::Unpublishable(id, why) => self.finish(id, Err(Unpublishable(why))),
            Action::Report(report) => log(&report),
            Action::Send { lane, id, again } => self.send(lane, id, again),
            Action::OpenLane(lane) => {
                let in_use = self.session.as_ref().map_or(0, |session| session.lanes.len());
                self.start(move |connection| async move {
                    Completion::Opened(lane, Lane::open(connection, in_use).await.map(Box::new))
                });
            }
            Action::CloseLane(lane) => {
                if let Some(session) = &mut self.session
                    && let Some(channel) = session.lanes.get(&lane).map(|open| open.channel.clone())
                {
                    let closing = async move {
                        // A channel that is gone needs no close.
                        let _ = channel.close("done").await;
                        Completion::Closed
                    };
                    session.operations.push(closing.boxed());
                    session.give_up(lane);
                }
            }
            Action::Probe => {
                self.start(|connection| async move {
                    // A broker that refuses a channel is alive too.
                    let _ = connection.open_channel().await;
                    Completion::Probed
                });
            }
            Action::Repair => {
                let (keeper, limit) = (self.keeper.clone(), self.link.answer_timeout());
                self.start(|_| async move {
                    // Copies wait for this, so the limit is for all parts together, not for each.
                    let _ = tokio::time::timeout(limit, keeper.repair()).await;
                    Completion::Repaired
                });
            }
        }
    }

    fn connect(&mut self) {
        let (link, old) = (self.link.clone(), self.session.take().map(|session| session.connection));
        let connecting = async move {
            if let Some(old) = old {
                link.abandon(&old);
            }
            link.get().await
        };
        self.connecting = Some(connecting.boxed());
    }

    fn start<F: Future<Output = Completion> + Send + 'static>(
        &mut self,
        operation: impl FnOnce(Arc<dyn Connection>) -> F,
    ) {
        if let Some(session) = &mut self.session {
            session.operations.push(operation(session.connection.clone()).boxed());
        }
    }

    fn send(&mut self, lane: LaneId, id: CopyId, again: bool) {
        let Some(Pending { copy, .. }) = self.pending.get(&id) else { return };
        if again {
            (self.retried)(copy.exchange.as_str());
        }
        if let Some(session) = &mut self.session
            && let Some(open) = session.lanes.get_mut(&lane)
        {
            session.confirms.push(open.send(lane, id, copy.clone()).boxed());
        }
    }

    fn finish(&mut self, id: CopyId, verdict: Result<(), Unpublishable>) {
        if let Some(Pending { done, .. }) = self.pending.remove(&id) {
            // If nobody waits any longer, the copy was given up and is a duplicate.
            let _ = done.send(verdict);
        }
    }

    fn on_input(&mut self, input: Input) {
        let now = clock::now();
        match input {
            Input::Connected(connected) => {
                self.connecting = None;
                match connected {
                    Ok(connection) => {
                        self.session = Some(Session::new(connection));
                        self.outbox.connected(now);
                    }
                    Err(error) => self.outbox.connection_lost(&Cause::of(error.to_string()), now),
                }
            }
            Input::Answered(result) => self.take_results(*result, now),
            Input::Done(completion) => self.done(completion, now),
            Input::Event(Some(Event::ConnectionBlocked(cause))) => {
                tracing::warn!(%cause, "the broker blocks publishing; copies wait until its alarm is over");
            }
            Input::Event(Some(Event::ConnectionUnblocked)) => tracing::info!("the broker accepts copies again"),
            Input::Event(Some(Event::Error(error))) => {
                // lapin reports the end of a channel here, too. The copies on that channel tell the outbox. If it is read after the end of
                // the connection, it does not say why the connection ended.
                let is_over = self.session.as_mut().is_some_and(|session| !session.is_connected(now));
                if is_over && !lane::closes_only_a_channel(&error) {
                    self.connection_lost(&lane::cause(&error), now);
                }
            }
            Input::Event(None) | Input::Ended => {
                self.connection_lost(&Cause::of("the connection ended"), now);
            }
            Input::Event(Some(_)) | Input::Time | Input::Request(_) => {}
        }
    }

    fn connection_lost(&mut self, cause: &Cause, now: Instant) {
        if let Some(session) = &mut self.session {
            session.is_over = true;
        }
        self.outbox.connection_lost(cause, now);
    }

    /// Takes all requests that have arrived by now.
    fn take_in(&mut self, first: Request, requests: &mut Requests) {
        let (now, mut next) = (clock::now(), Some(first));
        while let Some(request) = next {
            match request {
                Request::Publish(id, pending) => {
                    self.outbox.submit(id, pending.copy.exchange.as_str());
                    self.pending.insert(id, pending);
                }
                Request::Withdraw(id) => {
                    if self.pending.remove(&id).is_some() {
                        self.outbox.withdraw(id, now);
                    }
                }
            }
            next = requests.try_recv().ok();
        }
    }

    fn take_results(&mut self, first: PublishResult, now: Instant) {
        let Some(session) = &mut self.session else { return };
        let mut by_lane: BTreeMap<LaneId, Vec<_>> = BTreeMap::new();
        for PublishResult { lane, id, result } in session.ready(first) {
            by_lane.entry(lane).or_default().push((id, result));
        }
        for (lane, results) in by_lane {
            let Some(open) = session.lanes.get_mut(&lane) else { continue };
            // From a lane that was given up, the outbox accepts confirms only.
            let judgement = open.sort_results(results);
            judgement.returned.into_iter().for_each(|id| self.outbox.returned(lane, id));
            judgement.nacked.into_iter().for_each(|id| self.outbox.nacked(lane, id));
            judgement.confirmed.into_iter().for_each(|id| self.outbox.confirmed(id, now));
            if let Some(cause) = judgement.closed
                && session.is_connected(now)
            {
                session.give_up(lane);
                self.outbox.lane_closed(lane, &cause, now);
            }
            session.forget_answered(lane);
        }
    }

    fn done(&mut self, completion: Completion, now: Instant) {
        let Some(session) = &mut self.session else { return };
        match completion {
            Completion::Opened(lane, Ok(open)) => {
                session.lanes.insert(lane, *open);
                self.outbox.lane_opened(lane);
            }
            Completion::Opened(lane, Err(error)) => {
                if session.is_connected(now) {
                    self.outbox.lane_closed(lane, &lane::cause(&error), now);
                }
            }
            Completion::Probed => {
                if session.is_connected(now) {
                    self.outbox.probed();
                }
            }
            Completion::Repaired => self.outbox.repaired(),
            Completion::Closed => {}
        }
    }
}

async fn ready_or_never<T>(future: Option<&mut BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
