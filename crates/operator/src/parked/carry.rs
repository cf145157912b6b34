//! Moves messages out of a queue at rest: publish, confirm, ack. What is not moved goes back to its
//! place.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, OptionFuture};
use tokio::time::{Instant, sleep_until};

use crate::parked::arguments::DeliveryLimit;
use crate::parked::copies::{Immovable, Move};
use crate::parked::error::ParkedError;
use crate::parked::fates::{FateBook, FateStream};
use crate::parked::filter::Filter;
use crate::parked::message::{Interpreter, ParkedMessage, Place};
use crate::parked::progress::{Observe, Progress, StopSignal, Tally};
use crate::parked::queue_head::{Held, QueueHead};
use crate::parked::ramp::{LONGEST_WAIT, Next, Ramp, Stop};
use crate::parked::session::OperatorSession;
use crate::parked::under_way::{Drained, UnderWay};
use crate::parked::ways::Queues;
use crate::telemetry::{MoveMetrics, RestSpan, RestTracer};
use rehop::Error;

/// How often progress is shown, and a reading of depths begins if none is running.
const TICK: Duration = Duration::from_millis(250);
/// How many kinds of errors are remembered of the messages that were sent.
pub(super) const MAX_KINDS: usize = 10_000;

/// What is to be moved, and how fast.
pub(crate) struct Job<'a> {
    pub(crate) action: Move,
    pub(crate) filter: &'a Filter,
    /// For messages that do not say where they belong.
    pub(crate) to: Option<&'a str>,
    /// How many messages may be in flight.
    pub(crate) in_flight: usize,
    /// How many messages a second are sent at most.
    pub(crate) rate: Option<f64>,
    /// Sending pauses while a work queue has more ready messages than this.
    pub(crate) max_ready: Option<u64>,
    /// How long messages may be held.
    pub(crate) hold: Duration,
    /// The largest prefetch of one subscription.
    pub(crate) prefetch: u16,
    pub(crate) limit: DeliveryLimit,
    pub(crate) metrics: MoveMetrics,
}

/// One run over a queue.
pub(crate) struct Carrier<'a> {
    pub(crate) session: &'a OperatorSession,
    pub(crate) interpreter: &'a Arc<Interpreter>,
    pub(crate) queue: &'a str,
    pub(crate) job: Job<'a>,
    pub(crate) ramp: Ramp,
    pub(crate) book: FateBook,
    pub(crate) fates: Option<FateStream>,
    pub(crate) observe: Observe<'a>,
    pub(crate) stop: StopSignal<'a>,
    pub(crate) tally: Tally,
    /// Makes the spans of the messages.
    pub(crate) tracer: Option<RestTracer>,
    pub(super) state: CarrierState,
}

#[derive(Default)]
pub(super) struct CarrierState {
    pub(super) stray_at_start: Option<u64>,
    pub(super) queues: Queues,
    pub(super) kinds: HashSet<(Option<String>, Option<String>)>,
    /// How many messages the last round has looked at.
    pub(super) seen: u64,
    /// How many copies were sent to the stray queue, because they belong there.
    pub(super) sent_to_stray: u64,
    pub(super) is_paused: bool,
    pub(super) send_at: Option<Instant>,
    pub(super) stop_was_heard: bool,
    pub(super) lane_end: Option<LaneEnd>,
}

/// The end of the channel that copies are sent on.
pub(super) struct LaneEnd {
    pub(super) error: ParkedError,
    /// The broker does not accept one of the copies that were under way.
    pub(super) blames_a_copy: bool,
    /// The chain of a message whose copy was under way, and the number of that copy in a replay.
    pub(super) chain: String,
    pub(super) number: u32,
    /// How many copies were under way.
    pub(super) copies: u64,
}

/// How many messages are ready in other queues, where that could be seen.
struct Depths {
    stray: Option<u64>,
    /// The depth of the deepest work queue that messages go to.
    deepest_destination: u64,
}

/// A message that is to be moved as soon as it may be.
pub(super) struct Ready {
    pub(super) held: Held,
    pub(super) message: ParkedMessage,
}

/// A message whose copy is under way. Its body has gone into the copy.
pub(super) struct Sent {
    pub(super) held: Held,
    pub(super) chain: String,
    /// Its number in a replay.
    pub(super) number: u32,
    pub(super) span: Option<RestSpan>,
    /// The queue that a restore moves it back to.
    pub(super) goes_back_to: Option<String>,
}

/// Why a round over the queue ended.
enum RoundEnd {
    /// Everything was seen, or nothing more is to be moved or can be found.
    Done,
    /// Messages were held long enough. What is left of the queue is gone through again.
    HeldLong,
}

/// One pass over the queue.
struct Pass {
    /// How many messages it may take, and how many it has taken.
    bound: u64,
    seen: u64,
    /// The message that is sent next.
    ready: Option<Ready>,
    /// Whether there are fewer messages than were expected.
    is_short: bool,
    /// When the messages are given back.
    hold_until: Instant,
    moved_before: u64,
}

impl Pass {
    fn new(bound: u64, hold: Duration, moved_before: u64) -> Self {
        let hold_until = Instant::now() + hold;
        Self { bound, seen: 0, ready: None, is_short: false, hold_until, moved_before }
    }
}

/// What became of the message that is sent next.
enum Step {
    /// It was sent, or cannot be moved.
    Sent,
    /// Nothing more is sent.
    Stopped,
    /// There is none, or it has to wait, until then at the latest.
    Waits(Option<Instant>),
}

impl<'a> Carrier<'a> {
    #[allow(clippy::too_many_arguments, reason = "the parts of one run")]
    pub(crate) fn new(
        session: &'a OperatorSession,
        interpreter: &'a Arc<Interpreter>,
        queue: &'a str,
        job: Job<'a>,
        ramp: Ramp,
        fates: Option<FateStream>,
        observe: Observe<'a>,
        stop: StopSignal<'a>,
    ) -> Self {
        Self {
            session,
            interpreter,
            queue,
            job,
            ramp,
            book: FateBook::default(),
            fates,
            observe,
            stop,
            tally: Tally::default(),
            tracer: None,
            state: CarrierState::default(),
        }
    }

    /// Moves what matches among the first `bound` messages.
    ///
    /// # Errors
    ///
    /// Among others [`ParkedError::Incomplete`] if there are fewer by now. What was found is moved.
    pub(crate) async fn run(&mut self, bound: u64) -> Result<(), ParkedError> {
        self.job.limit.check_first(bound)?;
        let mut under_way = UnderWay::open(self.session, self.job.in_flight).await?;
        self.tally.snapshot = bound;
        self.state.stray_at_start = self.read_depths().await?.stray;
        loop {
            let moved_before = self.tally.moved;
            let left = bound - moved_before;
            let head = QueueHead::new(self.session, self.queue)?
                .asking(self.job.limit.is_own())
                .with_prefetch(self.job.prefetch);
            let mut head = head.moving(self.job.in_flight);
            let end = self.round(&mut head, &mut under_way, left).await;
            let given_back = head.give_back().await;
            // If an error ends the operation, only this says what was moved.
            self.show();
            match end? {
                RoundEnd::Done => {
                    // Otherwise what came to the stray queue after the last reading would go
                    // unnoticed.
                    if let Ok(depths) = self.read_depths().await {
                        self.apply_depths(&depths);
                    }
                    return Ok(given_back?);
                }
                RoundEnd::HeldLong => given_back?,
            }
            // Those that the broker does not accept would take as long again.
            if self.tally.moved == moved_before && self.tally.too_large > 0 && !self.state.is_paused
            {
                let (looked_at, wanted) = (self.tally.moved + self.state.seen, bound);
                return Err(ParkedError::Incomplete {
                    queue: self.queue.to_owned(),
                    looked_at,
                    wanted,
                });
            }
        }
    }

    /// Goes once through the first `bound` messages. Whatever ends it, what is under way is
    /// confirmed and acked if possible.
    async fn round(
        &mut self,
        head: &mut QueueHead<'_>,
        under_way: &mut UnderWay<Sent>,
        bound: u64,
    ) -> Result<RoundEnd, ParkedError> {
        self.tally.start_again();
        // Read concurrently: while the loop awaited a slow broker, everything in flight would end
        // and nothing new be sent.
        let mut reading = None;
        let end = self.go_through(head, under_way, bound, &mut reading).await;
        if let Some(reading) = reading {
            // Dropped halfway, it could end the connection before what is under way was acked
            // (lapin 4.12).
            let _ = reading.await;
        }
        let drained = self.drain(head, under_way).await;
        match end {
            Err(ParkedError::Incomplete { .. }) | Ok(_) => {}
            Err(error) => return Err(error),
        }
        // A second run would copy again what was copied but not confirmed, so these errors take
        // precedence over an incomplete round.
        drained?;
        self.lane_ended(under_way).await?;
        end
    }

    /// If the channel of the copies has ended: with a single copy under way that the broker does
    /// not accept, the message stays where it is, and the run goes on.
    ///
    /// # Errors
    ///
    /// Why the channel has ended, in all other cases.
    async fn lane_ended(&mut self, under_way: &mut UnderWay<Sent>) -> Result<(), ParkedError> {
        let Some(LaneEnd { error, blames_a_copy, chain, number, copies }) =
            self.state.lane_end.take()
        else {
            return Ok(());
        };
        if !blames_a_copy {
            return Err(error);
        }
        // The broker keeps no copy that it does not accept.
        self.tally.unconfirmed -= 1;
        let problem = error.to_string();
        if copies > 1 {
            return Err(ParkedError::CopyNotAccepted { problem, unconfirmed: copies - 1 });
        }
        if matches!(self.job.action, Move::Replay { .. }) {
            self.book.forget(number);
        }
        self.cannot_move(&chain, Immovable::TooLarge(problem));
        *under_way = UnderWay::open(self.session, self.job.in_flight).await?;
        Ok(())
    }

    async fn go_through(
        &mut self,
        head: &mut QueueHead<'_>,
        under_way: &mut UnderWay<Sent>,
        bound: u64,
        reading: &mut Option<BoxFuture<'a, Result<Depths, Error>>>,
    ) -> Result<RoundEnd, ParkedError> {
        let mut pass = Pass::new(bound, self.job.hold, self.tally.moved);
        let mut next_tick = Instant::now() + TICK;
        let end = loop {
            let now = Instant::now();
            if now >= next_tick {
                self.show();
                reading.get_or_insert_with(|| self.read_depths());
                next_tick = Instant::now() + TICK;
            }
            if self.ramp.stopped().is_some() {
                break RoundEnd::Done;
            }
            if now >= pass.hold_until {
                break self.held_long(&mut pass, head, under_way);
            }
            let wake = match self.send_next(&mut pass, head, under_way, now)? {
                Step::Sent => continue,
                Step::Stopped => break RoundEnd::Done,
                Step::Waits(until) => until.map_or(next_tick, |until| until.min(next_tick)),
            };
            let takes = self.takes(&pass);
            if !takes && pass.ready.is_none() && under_way.len() == 0 {
                break RoundEnd::Done;
            }
            if takes {
                head.prepare(bound - pass.seen).await?;
            }
            tokio::select! {
                biased;
                () = &mut *self.stop, if !self.state.stop_was_heard => {
                    self.state.stop_was_heard = true;
                    self.ramp.stop(Stop::Requested);
                }
                Some(answers) = under_way.answers() => {
                    self.answered(head, answers)?;
                    if self.state.lane_end.is_some() && under_way.len() > 0 {
                        break RoundEnd::HeldLong;
                    }
                    self.lane_ended(under_way).await?;
                }
                delivery = next_fate(&mut self.fates) => self.note(&delivery),
                Some(depths) = OptionFuture::from(reading.as_mut()) => {
                    *reading = None;
                    self.apply_depths(&depths?);
                }
                held = head.arrival(), if takes => self.arrived(&mut pass, held?, head).await?,
                () = sleep_until(wake) => {}
            }
        };
        self.passed(pass, head)?;
        Ok(end)
    }

    /// Whether another message is taken out of the queue.
    fn takes(&self, pass: &Pass) -> bool {
        let is_enough = self.job.filter.limit.is_some_and(|limit| self.tally.matched >= limit);
        pass.ready.is_none() && pass.seen < pass.bound && !is_enough && !pass.is_short
    }

    /// Messages were held long enough. Another round would end like this one if the queue has
    /// become shorter, or if this one has moved nothing and nothing waits to be moved: another
    /// consumer gets the messages, or those that stay take too long to read.
    fn held_long(
        &self,
        pass: &mut Pass,
        head: &QueueHead<'_>,
        under_way: &UnderWay<Sent>,
    ) -> RoundEnd {
        let started = self.tally.moved + under_way.len() as u64;
        pass.is_short |= head.is_silent() || (started == pass.moved_before && pass.ready.is_none());
        if pass.is_short { RoundEnd::Done } else { RoundEnd::HeldLong }
    }

    /// Sends the message that is ready, if it may be sent now.
    fn send_next(
        &mut self,
        pass: &mut Pass,
        head: &mut QueueHead<'_>,
        under_way: &mut UnderWay<Sent>,
        now: Instant,
    ) -> Result<Step, ParkedError> {
        let Some(ready) = pass.ready.take() else { return Ok(Step::Waits(None)) };
        let started = self.tally.moved + under_way.len() as u64;
        let has_room = under_way.has_room(ready.message.size) && !self.state.is_paused;
        let waits = match self.ramp.next(started, &self.book.fates, now.into_std()) {
            Next::Stop(_) => Step::Stopped,
            Next::Watch(until) => Step::Waits(Some(until.into())),
            Next::Send { is_canary } => match self.state.send_at.filter(|at| *at > now) {
                None if has_room => {
                    if let Some(kept) = self.send(ready, under_way, is_canary)? {
                        head.keep(&kept);
                    }
                    return Ok(Step::Sent);
                }
                at => Step::Waits(at),
            },
        };
        pass.ready = Some(ready);
        Ok(waits)
    }

    /// A message has come, or none comes any more.
    async fn arrived(
        &mut self,
        pass: &mut Pass,
        held: Option<Held>,
        head: &mut QueueHead<'_>,
    ) -> Result<(), ParkedError> {
        let Some(held) = held else {
            pass.is_short = !head.has_more().await?;
            return Ok(());
        };
        pass.seen += 1;
        match self.select(held)? {
            Ok(found) if self.has_queue(&found.message).await? => pass.ready = Some(found),
            Ok(Ready { held, .. }) | Err(held) => head.keep(&held),
        }
        Ok(())
    }

    /// # Errors
    ///
    /// [`ParkedError::Incomplete`] if there were fewer messages than were expected.
    fn passed(&mut self, pass: Pass, head: &mut QueueHead<'_>) -> Result<(), ParkedError> {
        self.state.seen = pass.seen;
        if let Some(ready) = pass.ready {
            head.keep(&ready.held);
        }
        if !pass.is_short || self.ramp.stopped().is_some() {
            return Ok(());
        }
        let (queue, wanted) = (self.queue.to_owned(), self.tally.snapshot);
        let looked_at = wanted - (pass.bound - pass.seen);
        Err(ParkedError::Incomplete { queue, looked_at, wanted })
    }

    /// Waits for what is under way. What the broker does not confirm in time stays in the queue,
    /// and may be a duplicate.
    async fn drain(
        &mut self,
        head: &mut QueueHead<'_>,
        under_way: &mut UnderWay<Sent>,
    ) -> Result<(), ParkedError> {
        let limit = self.session.limit;
        let Drained { ended, unanswered } =
            under_way.drain(limit, |answers| self.answered(head, answers)).await;
        if unanswered == 0 {
            return ended;
        }
        self.tally.unconfirmed += unanswered;
        ended.and(Err(Error::Timeout { what: "confirming copies".to_owned(), limit }.into()))
    }

    /// Reads the depths that decide whether to go on.
    fn read_depths(&self) -> BoxFuture<'a, Result<Depths, Error>> {
        let (session, stray) = (self.session, self.interpreter.names.stray());
        let watches_stray = matches!(self.job.action, Move::Replay { .. } | Move::Restore);
        let stray = (watches_stray && self.queue != stray).then_some(stray);
        let destinations =
            self.job.max_ready.map(|_| self.state.queues.existing().clone()).unwrap_or_default();
        Box::pin(async move {
            let stray = match stray {
                Some(stray) => session.depth_if_any(&stray).await?,
                None => None,
            };
            let mut deepest = 0;
            for queue in &destinations {
                deepest = deepest.max(session.depth_if_any(queue).await?.unwrap_or(0));
            }
            Ok(Depths { stray, deepest_destination: deepest })
        })
    }

    fn apply_depths(&mut self, depths: &Depths) {
        // The stray queue may not have answered at the start.
        if let Some(stray) = depths.stray
            && stray > *self.state.stray_at_start.get_or_insert(stray) + self.state.sent_to_stray
        {
            self.ramp.stop(Stop::StrayGrew);
        }
        self.state.is_paused =
            self.job.max_ready.is_some_and(|most| depths.deepest_destination > most);
    }

    /// A replayed stray whose work queue is still unbound returns to the stray queue, and has no
    /// fate. This shows only when everything is given back.
    pub(crate) async fn check_returned_strays(&mut self) {
        if self.interpreter.place == Place::Stray && self.book.fates.unknown() > 0 {
            let left = self.tally.snapshot.saturating_sub(self.tally.moved);
            if self.session.depth(self.queue).await.is_ok_and(|depth| depth > left) {
                self.ramp.stop(Stop::StrayGrew);
            }
        }
    }

    fn show(&mut self) {
        let (run, tally) = (self.session.run.clone(), self.tally.clone());
        (self.observe)(&Progress {
            run,
            tally,
            fates: self.book.fates,
            is_paused: self.state.is_paused,
        });
    }

    /// Listens on until every fate is known, or nothing was heard for so long.
    pub(crate) async fn follow(&mut self, silence: Duration) {
        let silence = silence.min(LONGEST_WAIT);
        // Whoever stops it wants to be gone.
        let silence =
            if self.state.stop_was_heard { silence.min(Duration::from_secs(1)) } else { silence };
        let mut until = Instant::now() + silence;
        while self.fates.is_some() && !self.book.is_complete() {
            let tick = Instant::now() + TICK;
            tokio::select! {
                biased;
                () = &mut *self.stop, if !self.state.stop_was_heard => {
                    self.state.stop_was_heard = true;
                    break;
                }
                delivery = next_fate(&mut self.fates) => {
                    self.note(&delivery);
                    until = Instant::now() + silence;
                }
                () = sleep_until(until.min(tick)) => {
                    if Instant::now() >= until {
                        break;
                    }
                    self.show();
                }
            }
        }
        self.show();
    }
}

async fn next_fate(fates: &mut Option<FateStream>) -> lapin::message::Delivery {
    match fates {
        Some(fates) => fates.next().await,
        None => std::future::pending().await,
    }
}
