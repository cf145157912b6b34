//! Sends one message back with another body, and keeps the original among the discarded ones.

use std::time::Duration;

use bytes::Bytes;
use lapin::types::AMQPValue;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use crate::parked::copies::{Copy, Immovable, Move, Numbered};
use crate::parked::error::ParkedError;
use crate::parked::fates::{FateBook, FateStream};
use crate::parked::filter::Filter;
use crate::parked::list::ListRequest;
use crate::parked::message::{ParkedMessage, Place, Raw};
use crate::parked::operator::Parked;
use crate::parked::progress::Fates;
use crate::parked::queue_head::{Held, QueueHead};
use crate::parked::ramp::LONGEST_WAIT;
use crate::parked::session::OperatorSession;
use crate::parked::show::{ChainSearch, Match};
use crate::parked::under_way::{Answered, Drained, UnderWay, not_kept};
use crate::parked::ways::require;
use crate::telemetry::{About, RunSpan};
use rehop::Error;
use rehop::Timestamp;
use rehop::internals::at_rest::{Original, traced};
use rehop::internals::attributes as names;
use rehop::internals::names::EDITED_AT;

/// How to edit a message.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EditRequest {
    /// The message's chain. There must be one message of it, or a [position](Self::position).
    pub chain: String,
    /// The message's place in the queue, from 1, where several are of the chain. Default: the only
    /// one.
    pub position: Option<u64>,
    /// The new body.
    pub body: Bytes,
    /// The body that the new one is made from. If the message has another one by now, nothing is
    /// sent.
    pub original: Option<Bytes>,
    /// Why, for the log and the trace. The original carries it.
    pub why: Option<String>,
    /// Who, for the trace. Default: the user whose process this is.
    pub who: Option<String>,
    /// The work queue, if the message does not say where it belongs.
    pub to: Option<String>,
    /// The new deadline, from now.
    pub deadline: Option<Duration>,
    /// How long to wait for its fate. Default 10 s.
    pub follow: Duration,
}

impl EditRequest {
    /// The message of this chain gets this body.
    pub fn new(chain: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            chain: chain.into(),
            position: None,
            body: body.into(),
            original: None,
            why: None,
            who: None,
            to: None,
            deadline: None,
            follow: Duration::from_secs(10),
        }
    }
}

/// How an edit ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Edited {
    /// Names this operation; the edited message carries it in `rehop-replay-run`.
    pub run: String,
    /// The work queue that it was sent to.
    pub destination: String,
    /// What became of it.
    pub fates: Fates,
}

impl Parked {
    /// The one message of a chain, or the one at this position, with its body, unmasked.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list), and when there is no such message, or more than one.
    pub async fn body(
        &self,
        chain: &str,
        position: Option<u64>,
    ) -> Result<(ParkedMessage, Bytes), ParkedError> {
        self.body_found(ChainSearch::exact(chain), position).await
    }

    /// The one message of the one chain that has this id or, if there is none, whose id begins with
    /// it. As [`body`](Self::body).
    ///
    /// # Errors
    ///
    /// As [`body`](Self::body), and when several chains begin so.
    pub async fn body_by_prefix(
        &self,
        prefix: &str,
        position: Option<u64>,
    ) -> Result<(ParkedMessage, Bytes), ParkedError> {
        self.body_found(ChainSearch::by_prefix(prefix), position).await
    }

    async fn body_found(
        &self,
        search: ChainSearch<'_>,
        position: Option<u64>,
    ) -> Result<(ParkedMessage, Bytes), ParkedError> {
        let session = self.session().await?;
        let found = self.body_in(&session, search, position).await;
        session.close().await;
        found
    }

    async fn body_in(
        &self,
        session: &OperatorSession,
        mut search: ChainSearch<'_>,
        position: Option<u64>,
    ) -> Result<(ParkedMessage, Bytes), ParkedError> {
        let (mut found, mut places) = (None, Places::default());
        let scanned = self
            .scan(session, None, &mut self.stop.clone(), |message, held| {
                let matches = search.see(&message.chain);
                if matches == Match::FirstExact {
                    (found, places) = (None, Places::default());
                }
                if matches != Match::No {
                    places.add(message.position);
                    if position.is_none_or(|position| position == message.position) {
                        found = Some((message, Bytes::copy_from_slice(&held.delivery.data)));
                    }
                }
                std::ops::ControlFlow::Continue(())
            })
            .await?;
        let chain = self.found_chain(search, &scanned)?;
        places.check(&chain, position)?;
        scanned.complete(&self.queue)?;
        let position = position.unwrap_or_default();
        found.ok_or(ParkedError::NotAt { chain, position })
    }

    /// Sends a message back with another body. Its original goes to the discarded queue first; both
    /// are confirmed before it is acked here. So if this process is killed in between, the original
    /// is still parked, and a copy of it, edited or not, may exist as well.
    ///
    /// # Errors
    ///
    /// As [`body`](Self::body), when the message does not say where it belongs or the discarded
    /// queue refuses the original, and [`ParkedError::EditUnconfirmed`] when the edited message is
    /// refused or not confirmed. It is never [`ParkedError::Stopped`] once a copy was sent.
    pub async fn edit(&self, request: &EditRequest) -> Result<Edited, ParkedError> {
        let session = self.session().await?;
        let why = request.why.as_deref().unwrap_or_default();
        tracing::info!(
            queue = self.queue,
            run = session.run,
            chain = request.chain,
            why,
            "edit begins"
        );
        let edited = self.edit_in(&session, request).await;
        tracing::info!(
            queue = self.queue,
            run = session.run,
            chain = request.chain,
            why,
            destination = edited.as_ref().ok().map(|edited| edited.destination.as_str()),
            error = edited.as_ref().err().map(tracing::field::display),
            "edit ended"
        );
        session.close().await;
        edited
    }

    async fn edit_in(
        &self,
        session: &OperatorSession,
        request: &EditRequest,
    ) -> Result<Edited, ParkedError> {
        let chain = || request.chain.clone();
        let all = ListRequest { rows: NAMED, ..ListRequest::all(Filter::chain(chain())) };
        let (plan, scanned) = self.list_in(session, &all, &mut self.stop.clone(), None).await?;
        if plan.matched == 0 {
            let looked_at = plan.looked_at;
            return Err(ParkedError::NoSuchMessage { chain: chain(), looked_at });
        }
        let first = plan.messages.iter().map(|message| message.position).collect();
        Places { count: plan.matched, first }.check(&request.chain, request.position)?;
        scanned.complete(&self.queue)?;
        self.check_way_back(session).await?;
        self.declare_discarded(session).await?;
        let mut fates = match FateStream::open(session, &self.interpreter.names).await {
            Ok(fates) => Some(fates),
            Err(Error::Permission { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        for destination in plan.destinations.keys().chain(&request.to) {
            require(session, destination).await?;
        }
        let mut under_way = UnderWay::open(session, 1).await?;
        let mut book = FateBook::default();
        let mut head = QueueHead::new(session, &self.queue)?.with_prefetch(self.prefetch);
        let sent = self
            .send_edited(&mut head, plan.depth, (session, &mut under_way), request, &mut book)
            .await;
        let destination = match sent {
            Ok(destination) => {
                // It was sent, so it must not be taken for a failure, and sent again.
                if let Err(error) = head.give_back().await {
                    tracing::warn!(
                        queue = self.queue, %error,
                        "the edited message was sent; its original may come back to the queue if its ack was lost, and the other messages do so \
                         when the connection closes"
                    );
                }
                destination
            }
            failed => head.end(failed).await?,
        };
        book.fates.sent = 1;
        let until = Instant::now() + request.follow.min(LONGEST_WAIT);
        let mut stop = self.stop.clone();
        while let Some(stream) = fates.as_mut().filter(|_| !book.is_complete()) {
            tokio::select! {
                biased;
                () = &mut stop => break,
                delivery = stream.next() => drop(book.note(&delivery)),
                () = sleep_until(until) => break,
            }
        }
        Ok(Edited { run: session.run.clone(), destination, fates: book.fates })
    }

    /// Finds the message and moves it. Returns where to.
    async fn send_edited(
        &self,
        head: &mut QueueHead<'_>,
        depth: u64,
        (session, under_way): (&OperatorSession, &mut UnderWay<()>),
        request: &EditRequest,
        book: &mut FateBook,
    ) -> Result<String, ParkedError> {
        let missing = |looked_at| {
            let chain = request.chain.clone();
            match request.position {
                Some(position) => ParkedError::NotAt { chain, position },
                None => ParkedError::NoSuchMessage { chain, looked_at },
            }
        };
        let (mut stop, until) = (self.stop.clone(), Instant::now() + self.hold());
        let is_own_queue = self.delivery_limit(session).await?.is_own();
        for seen in 0..depth {
            head.prepare(depth - seen).await?;
            let held = head.next(&mut stop, until).await?.ok_or_else(|| missing(seen))?;
            let mut message = self.interpreter.read(Raw::of(&held.delivery), 0);
            let is_there = request.position.is_none_or(|position| position == seen + 1);
            if message.chain != request.chain || !is_there {
                head.keep(&held);
                continue;
            }
            if !is_own_queue {
                self.interpreter.check_parked_by(&self.queue, held.delivery.exchange.as_str())?;
            }
            if message.destination.is_none() {
                message.destination.clone_from(&request.to);
            }
            let number = book.expect(request.body.len() as u64);
            let numbered =
                Numbered { run: &session.run, number, is_canary: false, room: session.room() };
            let moved = self.move_one(&message, &held, under_way, request, numbered).await;
            if moved.is_ok() {
                if head.ack([&held]) == 0 {
                    let problem = "the channel was closed before the ack; the edited message was sent, and its original is still here";
                    return Err(Error::Lost {
                        what: "editing a message".to_owned(),
                        problem: problem.to_owned().into(),
                    }
                    .into());
                }
                self.metrics("edit").moved(1);
            } else {
                head.keep(&held);
            }
            return moved;
        }
        Err(missing(depth))
    }

    async fn move_one(
        &self,
        message: &ParkedMessage,
        held: &Held,
        under_way: &mut UnderWay<()>,
        request: &EditRequest,
        numbered: Numbered<'_>,
    ) -> Result<String, ParkedError> {
        if request.original.as_ref().is_some_and(|original| original[..] != held.delivery.data[..])
        {
            return Err(ParkedError::Changed { chain: request.chain.clone() });
        }
        let (exchange, body) = (held.delivery.exchange.as_str(), &held.delivery.data);
        let properties = &*self.interpreter.believed(exchange, &held.delivery.properties);
        let original = Original { properties, body_bytes: body.len() };
        let [mut edited, original] = self.copies(message, original, request, numbered)?;
        publish(under_way, original, body, self.broker.timeout).await?;
        let destination = message.destination.clone().unwrap_or_default();
        let (run, tracer) = RunSpan::start(About {
            operation: "edit",
            resting: &self.queue,
            rests_as: self.interpreter.place.rests_as(),
            was_parked: self.interpreter.place.was_parked(),
            ends: None,
            run: numbered.run,
            who: request.who.as_deref(),
            why: request.why.as_deref(),
            selection: &Filter::chain(&request.chain).in_log(),
        })
        .into_parts();
        let (mut span, trace) = tracer.start(message.resting(&destination, properties));
        edited.properties = traced(edited.properties, &trace);
        let sent = publish(under_way, edited, &request.body, self.broker.timeout).await;
        run.counted(&[(names::MATCHED, 1), (names::SENT, u64::from(sent.is_ok()))]);
        if let Err(error) = &sent {
            span.failed("unconfirmed");
            run.failed(error);
        }
        sent.map(|()| destination).map_err(|error| ParkedError::EditUnconfirmed {
            run: numbered.run.to_owned(),
            problem: error.to_string(),
        })
    }

    /// The copy that goes back to a work queue with the new body, and the one of the original that
    /// goes to the discarded queue.
    fn copies(
        &self,
        message: &ParkedMessage,
        original: Original<'_>,
        request: &EditRequest,
        numbered: Numbered<'_>,
    ) -> Result<[Copy; 2], ParkedError> {
        let why = format!("edited; {}", request.why.as_deref().unwrap_or_default());
        let Original { properties, body_bytes } = original;
        let copy = |action: Move, body_bytes: usize| {
            let original = Original { properties, body_bytes };
            let copied =
                self.interpreter.copy(&action, message, original, numbered, Timestamp::now());
            copied.map_err(|immovable| match immovable {
                Immovable::NoDestination => ParkedError::NoDestination,
                Immovable::TooLarge(problem) => {
                    ParkedError::TooLarge { chain: request.chain.clone(), problem }
                }
            })
        };
        let mut edited = copy(Move::Replay { deadline: request.deadline }, request.body.len())?;
        // What was discarded before is still restored to where it came from.
        let from =
            message.discarded_from.clone().filter(|_| self.interpreter.place == Place::Discarded);
        let original = copy(
            Move::Discard { why, from: from.unwrap_or_else(|| self.queue.clone()) },
            body_bytes,
        )?;
        let mut headers = edited.properties.headers().clone().unwrap_or_default();
        headers.insert(EDITED_AT.into(), AMQPValue::LongLongInt(Timestamp::now().as_millis()));
        edited.properties = edited.properties.with_headers(headers);
        Ok([edited, original])
    }
}

/// How many positions an error names.
const NAMED: usize = 10;

/// Where the messages of a chain are.
#[derive(Debug, Default)]
struct Places {
    count: u64,
    first: Vec<u64>,
}

impl Places {
    fn add(&mut self, position: u64) {
        self.count += 1;
        if self.first.len() < NAMED {
            self.first.push(position);
        }
    }

    /// # Errors
    ///
    /// If several messages could be meant.
    fn check(&self, chain: &str, position: Option<u64>) -> Result<(), ParkedError> {
        match position {
            None if self.count > 1 => Err(ParkedError::NotOne {
                chain: chain.to_owned(),
                count: self.count,
                positions: self.first.clone(),
            }),
            _ => Ok(()),
        }
    }
}

/// Sends one copy, and waits for its confirm.
async fn publish(
    under_way: &mut UnderWay<()>,
    copy: Copy,
    body: &[u8],
    limit: Duration,
) -> Result<(), ParkedError> {
    let what = format!("publishing to exchange {:?}", copy.exchange);
    under_way.send((), body.to_vec(), copy)?;
    let first_problem = |answers: Vec<Answered<()>>| {
        answers.into_iter().try_for_each(|Answered { exchange, answer, .. }| {
            answer.map_err(|why| not_kept(why, &exchange))
        })
    };
    let Drained { ended, unanswered } = under_way.drain(limit, first_problem).await;
    if unanswered == 0 { ended } else { Err(Error::Timeout { what, limit }.into()) }
}
