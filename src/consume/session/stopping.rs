//! How a session stops: what is not running goes back, and what was settled reaches the broker.

use tokio::runtime::Handle;

use super::{CHECK_CHANNEL_EVERY, Session};
use crate::broker::queued::queued;
use crate::consume::settling_channel::CLOSE_DELAY;
use crate::consume::summary::Stopped;
use crate::consume::work_queue::WorkQueue;

impl WorkQueue {
    /// Stops without a session: waits for the handlers of one that was lost, because what they do
    /// beside their messages may still matter.
    pub(crate) async fn stop(&self) {
        self.context.not_consuming(None);
        self.handlers_end().await;
    }

    /// Waits for the running handlers, and for the answers to their copies. Those that take too
    /// long leave their messages to the broker.
    async fn handlers_end(&self) {
        let WorkQueue { intake, index, shutdown, context, .. } = self;
        let ended = intake.idle_but_for(*index, context.left());
        if tokio::time::timeout_at(shutdown.handlers_until(), ended).await.is_err() {
            let left = *context.left().borrow();
            let unfinished = intake.running(*index).saturating_sub(left) as u64;
            tracing::warn!(
                queue = %context.config.queue,
                unfinished,
                "the grace time is over; leaving messages to the broker"
            );
            context.summary.update(|summary| {
                summary.unfinished += unfinished;
                summary.stopped = Stopped::GraceOver;
            });
        }
    }
}

impl Session<'_> {
    /// Takes nothing any more, hands back what is not running, and waits for what is.
    pub(super) async fn stop(&mut self) {
        self.stop_taking().await;
        self.queue.context.not_consuming(None);
        self.finish().await;
    }

    /// Takes nothing any more, and hands back what is not running: after the subscription has
    /// ended, because otherwise the broker would deliver it here again, which 3.10 and 4.0 count.
    async fn stop_taking(&mut self) {
        if !self.line().allows_single_return() {
            // To cancel, or to give back single messages, would let others overtake them. All go
            // back when the channel closes.
            let not_running = self.queue.intake.empty(self.queue.index).len() as u64;
            self.queue.context.stopping.cancel();
            return self.queue.context.summary.update(|summary| summary.handed_back += not_running);
        }
        if let Err(error) = self.unsubscribe().await {
            tracing::debug!(%error, "the channel was gone before the subscription ended");
        }
        // Also if an earlier try to end them got no answer: settling must not wait for that.
        self.queue.intake.subscribed(self.queue.index, 0);
        let not_running = self.queue.intake.empty(self.queue.index);
        self.hand_back(&not_running, "the service is stopping");
        self.queue.context.stopping.cancel();
    }

    /// Waits for the running handlers, then for their acks to be written.
    async fn finish(&mut self) {
        let queue = self.queue;
        let is_lost = tokio::select! {
            biased;
            () = queue.handlers_end() => false,
            () = self.lost_while_stopping() => true,
        };
        if is_lost {
            // They have nothing to settle any more.
            queue.handlers_end().await;
        } else if !self.line().allows_single_return() {
            self.close().await;
        } else {
            queue.shutdown.within(self.flush_settlements()).await;
        }
    }

    /// Returns when the channel is gone while the service is stopping. Then no handler may send a
    /// copy of what the broker has again, and those of an ordered queue end.
    async fn lost_while_stopping(&mut self) {
        while self.channel.is_open() {
            tokio::time::sleep(CHECK_CHANNEL_EVERY).await;
        }
        self.queue.intake.lost(self.queue.index, false);
        self.session_ended.cancel();
    }

    /// Closes the channel of an ordered queue, which gives back all that it holds in its order
    /// (3.10, 4.0 and 4.3). By then no handler runs here, because the next process gets the
    /// messages at once.
    pub(super) async fn close(&self) {
        self.session_ended.cancel();
        let Session { queue, channel, .. } = self;
        let settled = async {
            queue.intake.idle(queue.index).await;
            self.flush_settlements().await
        };
        // In vain if a handler blocks its thread; then dropping the session closes the channel, and
        // so the connection is not waited for.
        if tokio::time::timeout(queue.consuming.answer_timeout() + CLOSE_DELAY, settled).await
            == Ok(true)
        {
            // Without an answer the connection is gone, or soon will be.
            let _ = queue.answer("closing a channel", channel.close("done")).await;
        }
    }

    /// Sends the acks, rejects and nacks that were collected, and waits until the broker has read
    /// them, and a little longer for it to apply them. A busy broker reads late, and loses those
    /// that it reads together with the close. Returns false if no answer came: the channel is gone,
    /// or soon will be.
    async fn flush_settlements(&self) -> bool {
        let is_answered = self.answer("settling", self.settling_channel.round_trip()).await.is_ok();
        if is_answered {
            tokio::time::sleep(CLOSE_DELAY).await;
        }
        is_answered
    }
}

/// Closes the channel, because lapin alone would only cancel each subscription, and keep the
/// channel until the broker has answered. Meanwhile the next process would get messages of an
/// ordered queue before those that are held here. And a subscription that was given up before it
/// was answered would stay, with all that is delivered to it.
impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.session_ended.cancel();
        self.settling_channel.send();
        let (channel, limit) = (self.channel.clone(), self.queue.consuming.answer_timeout());
        match Handle::try_current() {
            // Later, so that the last acks are not lost. In an ordered queue the close has to come
            // before lapin's cancel.
            Ok(runtime) if self.line().allows_single_return() => {
                runtime.spawn(async move {
                    tokio::time::sleep(CLOSE_DELAY).await;
                    tokio::time::timeout(limit, channel.close("done")).await
                });
            }
            _ => {
                queued(channel.close("done"));
            }
        }
    }
}
