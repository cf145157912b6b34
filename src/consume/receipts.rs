//! Receipts: tells the operator who replayed a message what became of it.
//!
//! A receipt is worth less than the message, so it holds nothing up: it is sent after the message
//! is settled, without a confirm, on a channel of its own, and is dropped where it cannot be sent.
//! Whoever misses a receipt counts the message as unknown.

use std::sync::Arc;
use std::time::Duration;

use lapin::BasicProperties;
use lapin::types::ShortString;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::broker::client::Channel;
use crate::broker::connection::Link;
use crate::broker::name::short;
use crate::broker::scout::Scout;
use crate::error::{Error, describe};
use crate::retry::decision::Reason;
use crate::retry::ledger::Replay;
use crate::retry::outcome::Outcome;
use crate::wire::receipt::{Fate, Parking, Receipt};

/// How many receipts may wait to be sent. Further ones are dropped.
const CAPACITY: usize = 1_000;
/// How long no receipt is tried after one has failed: the exchange may be missing, or the user may
/// not publish to it.
const PAUSE: Duration = Duration::from_secs(30);

/// A handle to the task that sends receipts. The task ends when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct Receipts(mpsc::Sender<(ShortString, Receipt)>);

impl Receipts {
    /// Starts the task.
    ///
    /// # Errors
    ///
    /// When the exchange's name is too long.
    pub(crate) fn start(link: Arc<Link>, scout: Arc<Scout>, exchange: &str) -> Result<Self, Error> {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        tokio::spawn(
            Task { link, scout, exchange: short(exchange)?, channel: None, silent_until: None }
                .run(receiver),
        );
        Ok(Self(sender))
    }

    /// Reports how an attempt at a replayed message ended, if that tells its operator anything.
    /// `parking` says why it is parked.
    pub(crate) fn send(
        &self,
        replay: &Replay,
        outcome: Outcome,
        parking: impl FnOnce(Reason) -> Parking,
    ) {
        let fate = match outcome {
            Outcome::Ack => Fate::Handled,
            Outcome::Wait(_) | Outcome::Defer(_) => Fate::Waiting,
            Outcome::Discard(_) => Fate::Discarded,
            Outcome::Park(reason) => Fate::Parked(Box::new(parking(reason))),
            Outcome::Requeue => return,
        };
        if let Ok(run) = ShortString::try_new(replay.run.as_str()) {
            let _ = self.0.try_send((run, Receipt { number: replay.number, fate }));
        }
    }
}

struct Task {
    link: Arc<Link>,
    scout: Arc<Scout>,
    exchange: ShortString,
    channel: Option<Arc<dyn Channel>>,
    silent_until: Option<Instant>,
}

impl Task {
    async fn run(mut self, mut receipts: mpsc::Receiver<(ShortString, Receipt)>) {
        while let Some((run, receipt)) = receipts.recv().await {
            if self.silent_until.is_some_and(|until| Instant::now() < until) {
                continue;
            }
            let limit = self.link.answer_timeout();
            let sent = timeout(limit, self.publish(run, &receipt)).await;
            let problem = match sent {
                Ok(Ok(())) => continue,
                Ok(Err(problem)) => {
                    self.channel = None;
                    problem
                }
                // The channel is kept, because dropping it closes it: lapin would send the close
                // before the receipt, which may still wait for the end of an alarm, and the broker
                // would then close the whole connection.
                Err(_) => "the broker does not answer".to_owned(),
            };
            tracing::debug!(exchange = %self.exchange, problem, "a receipt could not be sent; pausing receipts");
            self.silent_until = Some(Instant::now() + PAUSE);
        }
    }

    async fn publish(&mut self, run: ShortString, receipt: &Receipt) -> Result<(), String> {
        // lapin would keep the receipt, and each after it, until the alarm is over.
        if self.link.state().is_blocked {
            return Err("the broker blocks the connection".to_owned());
        }
        // A missing exchange or permission closes the channel, after the publish that it refuses.
        if self.channel.as_ref().is_none_or(|channel| !channel.is_open()) {
            if self.channel.take().is_some() {
                return Err("the broker has closed the channel".to_owned());
            }
            self.channel = Some(self.open().await?);
        }
        let Some(channel) = &self.channel else { return Ok(()) };
        let properties = BasicProperties::default().with_headers(receipt.headers());
        let sent = channel.publish(self.exchange.clone(), run, &[], properties, false).await;
        sent.map(drop).map_err(|error| describe(&error))
    }

    async fn open(&self) -> Result<Arc<dyn Channel>, String> {
        let connection = self.link.get().await.map_err(|error| error.to_string())?;
        // One channel too many would end the connection, with the copies on it.
        let place = self.scout.place().await.map_err(|error| error.to_string())?;
        place.open(connection.open_channel()).await.map_err(|error| {
            self.scout.note_limit(&Error::of_operation("opening a channel", &error));
            describe(&error)
        })
    }
}
