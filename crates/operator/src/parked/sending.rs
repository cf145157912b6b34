//! What happens to one message that is moved: from its selection to its ack.

use std::borrow::Cow;
use std::time::Duration;

use tokio::time::Instant;

use crate::parked::carry::{Carrier, LaneEnd, MAX_KINDS, Ready, Sent};
use crate::parked::copies::{Immovable, Move, Numbered};
use crate::parked::error::ParkedError;
use crate::parked::fates::News;
use crate::parked::filter::Content;
use crate::parked::group::MessageKind;
use crate::parked::mask::headers_json;
use crate::parked::message::{ParkedMessage, Place, Raw};
use crate::parked::queue_head::{Held, QueueHead};
use crate::parked::ramp::LONGEST_WAIT;
use crate::parked::under_way::{Answered, UnderWay, not_kept};
use rehop::Timestamp;
use rehop::internals::NotTaken;
use rehop::internals::at_rest::{Original, traced};

impl Carrier<'_> {
    /// Whether a message is to be moved; if not, it stays held.
    pub(super) fn select(&mut self, mut held: Held) -> Result<Result<Ready, Held>, ParkedError> {
        let delivery = &held.delivery;
        let mut message = self.interpreter.read(Raw::of(delivery), 0);
        self.job.limit.check(message.returns)?;
        let headers = || headers_json(&delivery.properties);
        let content = Content::new(&delivery.data, &headers);
        let is_of_this_run = message.replay_run.as_deref() == Some(self.session.run.as_str());
        if is_of_this_run || !self.job.filter.passes(&message, &content) {
            return Ok(Err(held));
        }
        // A queue with the arguments that these settings ask for is this namespace's.
        if !self.job.limit.is_own() {
            self.interpreter.check_parked_by(self.queue, held.delivery.exchange.as_str())?;
        }
        // After the filter, so that the plan has selected the same messages.
        if message.destination.is_none() {
            message.destination = self.job.to.map(str::to_owned);
        }
        self.tally.matched += 1;
        // Its copy comes by an exchange of rehop's, and would be believed.
        let exchange = held.delivery.exchange.as_str();
        let believed = self.interpreter.believed(exchange, &held.delivery.properties);
        if let Cow::Owned(believed) = believed {
            held.delivery.properties = believed;
        }
        Ok(Ok(Ready { held, message }))
    }

    /// Whether the queue that a message is to go to exists. A message whose queue is gone stays
    /// where it is, because those behind it may belong elsewhere: strays and discarded ones do, and
    /// work queues may share a parked queue.
    ///
    /// # Errors
    ///
    /// When a queue is missing that the operator has named.
    pub(super) async fn has_queue(&mut self, message: &ParkedMessage) -> Result<bool, ParkedError> {
        let queue = match self.job.action {
            Move::Replay { .. } => message.destination.as_deref(),
            Move::Discard { .. } => None,
            Move::Restore => message.discarded_from.as_deref(),
        };
        let Some(queue) = queue else { return Ok(true) };
        let is_own = matches!(&self.interpreter.place, Place::Queue(own) if own == queue);
        if is_own || self.job.to == Some(queue) {
            self.state.queues.require(self.session, queue).await?;
            return Ok(true);
        }
        let is_there = self.state.queues.has(self.session, queue).await?;
        self.tally.missing_destination += u64::from(!is_there);
        Ok(is_there)
    }

    /// Sends the copy of a message. One that cannot be copied comes back, and stays held.
    pub(super) fn send(
        &mut self,
        Ready { mut held, message }: Ready,
        under_way: &mut UnderWay<Sent>,
        is_canary: bool,
    ) -> Result<Option<Held>, ParkedError> {
        let is_replay = matches!(self.job.action, Move::Replay { .. });
        let number = if is_replay { self.book.expect(message.size) } else { 0 };
        let (action, run, at) =
            (self.job.action.clone(), self.session.run.clone(), Timestamp::now());
        let (room, body_bytes) = (self.session.room(), held.delivery.data.len());
        let numbered = Numbered { run: &run, number, is_canary, room };
        let original = Original { properties: &held.delivery.properties, body_bytes };
        let mut copy = match self.interpreter.copy(&action, &message, original, numbered, at) {
            Ok(copy) => copy,
            Err(immovable) => {
                if is_replay {
                    self.book.forget(number);
                }
                self.cannot_move(&message.chain, immovable);
                return Ok(Some(held));
            }
        };
        if self.fates.is_some() && self.state.kinds.len() < MAX_KINDS {
            let MessageKind { class, error, .. } = MessageKind::of(&message);
            self.state.kinds.insert((class, error));
        }
        if let Some(rate) = self.job.rate {
            let now = Instant::now();
            let from = self.state.send_at.unwrap_or(now).max(now);
            self.state.send_at = Some(from + pause(rate));
        }
        let destination = message.destination.as_deref().unwrap_or_default();
        let resting = message.resting(destination, &held.delivery.properties);
        let (span, trace) = self.tracer.as_ref().map(|tracer| tracer.start(resting)).unzip();
        // What is discarded keeps its headers, and has them when it is restored.
        let trace = trace.filter(|_| is_replay).unwrap_or_default();
        copy.properties = traced(copy.properties, &trace);
        self.state.sent_to_stray += u64::from(copy.exchange == self.interpreter.names.stray());
        let is_restore = self.job.action == Move::Restore;
        let goes_back_to = message.discarded_from.as_ref().filter(|_| is_restore).cloned();
        let chain = message.chain.clone();
        // Used only to recognise a returned copy. Keeping the original's properties is cheaper than
        // cloning the copy's.
        let (interpreter, properties) =
            (self.interpreter.clone(), std::mem::take(&mut held.delivery.properties));
        let write = move || {
            let numbered = Numbered { run: &run, number, is_canary, room };
            let original = Original { properties: &properties, body_bytes };
            // It succeeded above with the same arguments.
            let copy = interpreter.copy(&action, &message, original, numbered, at);
            copy.map(|copy| traced(copy.properties, &trace)).unwrap_or_default()
        };
        let body = std::mem::take(&mut held.delivery.data);
        under_way.send_with(Sent { held, chain, number, span, goes_back_to }, body, copy, write)?;
        Ok(None)
    }

    pub(super) fn cannot_move(&mut self, chain: &str, immovable: Immovable) {
        match immovable {
            Immovable::NoDestination => self.tally.without_destination += 1,
            Immovable::TooLarge(problem) => {
                tracing::warn!(chain, problem, "a message cannot be copied, and stays where it is");
                self.tally.too_large += 1;
            }
        }
    }

    /// Acks the originals of the copies that the broker keeps. The first that it refuses is an
    /// error; what ends the channel is noted.
    pub(super) fn answered(
        &mut self,
        head: &mut QueueHead<'_>,
        answers: Vec<Answered<Sent>>,
    ) -> Result<(), ParkedError> {
        let (mut ended, mut moved) = (Ok(()), Vec::new());
        for Answered { of: mut sent, exchange, answer } in answers {
            let Err(why) = answer else {
                if let Some(span) = &mut sent.span {
                    span.confirmed();
                }
                moved.push(sent);
                continue;
            };
            if let Some(span) = &mut sent.span {
                span.failed("unconfirmed");
            }
            head.keep(&sent.held);
            if matches!(why, NotTaken::Nacked | NotTaken::Returned) {
                ended = ended.and(Err(not_kept(why, &exchange)));
            } else {
                self.tally.unconfirmed += 1;
                self.note_end(why, &exchange, sent);
            }
        }
        let acked = head.ack(moved.iter().map(|sent| &sent.held));
        self.tally.moved += acked;
        self.tally.unconfirmed += moved.len() as u64 - acked;
        match self.job.action {
            Move::Restore => moved
                .iter()
                .flat_map(|sent| &sent.goes_back_to)
                .for_each(|it| self.job.metrics.restored(it)),
            Move::Replay { .. } | Move::Discard { .. } => self.job.metrics.moved(acked),
        }
        if matches!(self.job.action, Move::Replay { .. }) {
            self.book.fates.sent += moved.len() as u64;
        }
        ended
    }

    /// All copies that were under way tell why the lane has ended, and those that were not sent any
    /// more do not.
    fn note_end(&mut self, why: NotTaken, exchange: &str, sent: Sent) {
        // The broker closes the channel because of a copy, as when its body is too large.
        let blames_a_copy = matches!(&why, NotTaken::LaneClosed(cause) if cause.code == Some(406));
        let present = self.state.lane_end.take();
        let copies = present.as_ref().map_or(0, |present| present.copies) + 1;
        let present = present.filter(|present| present.blames_a_copy || !blames_a_copy);
        let Sent { chain, number, .. } = sent;
        let error = not_kept(why, exchange);
        let end = || LaneEnd { error, blames_a_copy, chain, number, copies };
        self.state.lane_end = Some(LaneEnd { copies, ..present.unwrap_or_else(end) });
    }

    pub(super) fn note(&mut self, delivery: &lapin::message::Delivery) {
        if let News::Parked(MessageKind { class, error, .. }) = self.book.note(delivery)
            && !self.state.kinds.contains(&(class.clone(), error.clone()))
            && self.state.kinds.len() < MAX_KINDS
        {
            self.ramp.new_error(error.or(class).unwrap_or_else(|| "unknown".to_owned()));
        }
    }
}

/// The time between two messages at this rate, which is above 0.
fn pause(rate: f64) -> Duration {
    Duration::try_from_secs_f64(1.0 / rate).map_or(LONGEST_WAIT, |pause| pause.min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_rate_above_zero_has_a_pause() {
        for (rate, millis) in [(50.0, 20), (0.5, 2_000), (f64::MAX, 0)] {
            assert_eq!(pause(rate), Duration::from_millis(millis), "{rate}");
        }
        assert_eq!((pause(1e-300), pause(1e-15)), (LONGEST_WAIT, LONGEST_WAIT));
    }
}
