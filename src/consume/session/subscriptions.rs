//! Fits the subscriptions to the window: the prefetch that the inbox asks for.

use std::cmp::Ordering;
use std::task::Poll;

use futures_util::future::try_join_all;
use futures_util::{FutureExt, StreamExt, TryFutureExt};
use lapin::message::Delivery as Incoming;
use lapin::options::BasicConsumeOptions;

use super::Session;
use crate::broker::client::Subscription;
use crate::broker::declare::table;
use crate::consume::taken::Taken;
use crate::consume::work_queue::WorkQueue;
use crate::error::Error;
use crate::topology::consumer_arguments;

/// A subscription's prefetch is fixed, so a wider window needs an additional subscription, and a
/// narrower one needs new ones.
#[derive(Default)]
pub(super) struct Subscriptions {
    pub(super) streams: Vec<Subscription>,
    /// The sum over all subscriptions.
    prefetch: u16,
}

impl Session<'_> {
    /// A wider window needs one more subscription, without a pause. For a narrower one, and for a
    /// much wider one where the channel may have no more subscriptions, all must be cancelled; what
    /// is under way still arrives.
    pub(super) async fn resize(&mut self) -> Result<(), Error> {
        let take = *self.take.borrow_and_update();
        let wanted = take.prefetch();
        let may_have_more =
            self.subscriptions.streams.len() < self.queue.keeper.scout().most_consumers();
        let change = change(self.subscriptions.prefetch, wanted, may_have_more);
        if change == Change::None {
            return Ok(());
        }
        if change == Change::Replace {
            self.unsubscribe_when_full().await?;
            // A delivery that was under way may be a suspect, and nothing else may be taken while a
            // suspect is held.
            if *self.take.borrow() != take || self.queue.shutdown.is_requested() {
                return Ok(());
            }
        }
        if wanted > self.subscriptions.prefetch {
            self.set_prefetch(wanted - self.subscriptions.prefetch).await?;
            // A suspect may have started meanwhile, or the queue was paused.
            if !self.queue.intake.subscribe_if_wanted(self.queue.index, wanted) {
                return Ok(());
            }
            self.subscriptions.prefetch = wanted;
            let stream = self.consume().await?;
            self.subscriptions.streams.push(stream);
        }
        Ok(())
    }

    /// Asks for a single message. If the queue refuses that, it is not asked again.
    pub(super) async fn get(&mut self) -> Result<(), Error> {
        let (intake, index) = (self.queue.intake.clone(), self.queue.index);
        let refuses = move |error: &lapin::Error| {
            if is_refusal(error) {
                intake.refuses_gets(index);
            }
        };
        let queue = self.queue.context.addresses.queue.clone();
        let what = format!("getting a message from queue {:?}", self.name());
        let got = self.answer(&what, self.channel.get(queue).inspect_err(refuses)).await;
        let got = match got {
            // The next session subscribes, so this is nothing to end the service for.
            Err(Error::Refused { problem, .. }) if problem.as_lapin().is_some_and(is_refusal) => {
                return Err(self.lost_by(problem));
            }
            got => got?.map(|incoming| self.read(incoming)),
        };
        self.has_taken |= got.is_some();
        self.queue.intake.got(self.queue.index, got);
        Ok(())
    }

    async fn set_prefetch(&self, prefetch: u16) -> Result<(), Error> {
        let setting = self.channel.set_prefetch(prefetch);
        self.answer("setting the prefetch", setting).await
    }

    async fn consume(&self) -> Result<Subscription, Error> {
        let what = format!("consuming queue {:?}", self.name());
        let queue = self.queue.context.addresses.queue.clone();
        let WorkQueue { context, ack_timeout, .. } = self.queue;
        let arguments =
            table(&consumer_arguments(&context.names, &context.config, ack_timeout.configured))?;
        let options = BasicConsumeOptions::default();
        // Without an answer, the session closes its channel when it is dropped, after its
        // settlements.
        self.answer(&what, self.channel.consume(queue, options, arguments)).await
    }

    /// Ends all subscriptions when nothing is on its way to them, because the broker would count
    /// it.
    async fn unsubscribe_when_full(&mut self) -> Result<(), Error> {
        let shutdown = &self.queue.shutdown;
        let was_cancelled = tokio::select! {
            biased;
            filled = self.fill_up() => filled?,
            // What is taken now would only be handed back, which 3.10 and 4.0 count too. The
            // subscriptions end with the session.
            () = shutdown.requested() => return Ok(()),
        };
        if was_cancelled { self.cancelled().await } else { self.unsubscribe().await }
    }

    /// Takes what comes until the subscriptions may end. Returns whether the broker has ended one.
    async fn fill_up(&mut self) -> Result<bool, Error> {
        while self.subscriptions.prefetch > 0
            && let Some(ask_at) = self.queue.intake.ends_at(self.queue.index)
        {
            tokio::select! {
                biased;
                item = self.subscriptions.next() => if self.receive(item)? {
                    return Ok(true);
                },
                () = tokio::time::sleep_until(ask_at.into()) => {}
            }
        }
        Ok(false)
    }

    /// Ends all subscriptions, and takes what is under way.
    ///
    /// # Errors
    ///
    /// When the channel is lost, or must be given up.
    pub(super) async fn unsubscribe(&mut self) -> Result<(), Error> {
        let mut ended = std::mem::take(&mut self.subscriptions);
        if ended.prefetch == 0 {
            return Ok(());
        }
        let taken = match self.end(&mut ended).await {
            Ok(taken) => taken,
            Err(error) => {
                // They know why the channel is gone.
                self.subscriptions = ended;
                return Err(error);
            }
        };
        self.queue.intake.arrive(self.queue.index, taken);
        self.queue.intake.subscribed(self.queue.index, 0);
        Ok(())
    }

    async fn end(&self, ended: &mut Subscriptions) -> Result<Vec<Taken>, Error> {
        let cancel = |stream: &Subscription| self.channel.cancel(stream.tag.clone());
        self.answer("ending the subscriptions", try_join_all(ended.streams.iter().map(cancel)))
            .await?;
        let mut taken = Vec::new();
        for stream in &mut ended.streams {
            while let Some(Some(Ok(incoming))) = stream.deliveries.next().now_or_never() {
                taken.push(self.read(incoming));
            }
        }
        Ok(taken)
    }
}

/// What becomes of the subscriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    /// One more is added.
    Add,
    /// All end, and one takes their place if any is wanted.
    Replace,
}

/// The change from this prefetch to the wanted one. What the subscriptions hold when they end is
/// left out of the prefetch of the next one. So where there may be no more of them, they are
/// replaced only if that doubles the prefetch: otherwise a busy queue would be subscribed to again
/// and again.
fn change(present: u16, wanted: u16, may_have_more: bool) -> Change {
    let is_worth_it = present == 0 || wanted >= present.saturating_mul(2);
    match wanted.cmp(&present) {
        Ordering::Equal => Change::None,
        Ordering::Less => Change::Replace,
        Ordering::Greater if may_have_more => Change::Add,
        Ordering::Greater if is_worth_it => Change::Replace,
        Ordering::Greater => Change::None,
    }
}

/// Whether the queue gives no single messages: it has a single active consumer (405), or is a
/// stream (540), by RabbitMQ 3.10, 4.0 and 4.3.
fn is_refusal(error: &lapin::Error) -> bool {
    match error.kind() {
        lapin::ErrorKind::ProtocolError(answer) => matches!(answer.get_id(), 405 | 540),
        _ => false,
    }
}

impl Subscriptions {
    /// The error that ended them, if one did. What was delivered before it comes again.
    pub(super) fn error(&mut self) -> Option<lapin::Error> {
        self.streams.iter_mut().find_map(|stream| {
            while let Some(Some(item)) = stream.deliveries.next().now_or_never() {
                if let Err(error) = item {
                    return Some(error);
                }
            }
            None
        })
    }

    /// The next delivery, of any of them; `None` when the broker has ended one. If there is no
    /// subscription, this never completes.
    pub(super) async fn next(&mut self) -> Option<lapin::Result<Incoming>> {
        std::future::poll_fn(|context| {
            let mut polled =
                self.streams.iter_mut().map(|stream| stream.deliveries.poll_next_unpin(context));
            polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_that_may_have_one_consumer_gets_another_one_only_for_twice_the_prefetch() {
        use Change::{Add, None, Replace};
        for (present, wanted, may_have_more, expected) in [
            (0, 0, true, None),
            (0, 10, true, Add),
            (10, 40, true, Add),
            (60, 100, true, Add),
            (40, 10, true, Replace),
            (40, 0, false, Replace),
            (0, 10, false, Replace),
            (10, 19, false, None),
            (10, 20, false, Replace),
            (60, 100, false, None),
            (40, 40, false, None),
        ] {
            let changed = change(present, wanted, may_have_more);
            assert_eq!(changed, expected, "{present} {wanted} {may_have_more}");
        }
    }
}
