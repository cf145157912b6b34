//! How a subscription or a channel is lost, what the broker says about it, and what that tells of
//! its ack timeout.

use std::pin::pin;
use std::time::Duration;

use super::{CHECK_CHANNEL_EVERY, Session};
use crate::broker::connection::pause;
use crate::consume::ack_timeout::{is_ack_timeout, named_in};
use crate::consume::inbox::Rules;
use crate::consume::work_queue::WorkQueue;
use crate::error::{Error, Limit, Problem};

/// How long the broker may take to delete a queue after it has cancelled the subscriptions. Until
/// then the queue may still be found, and the binding that follows a declare may find none: the
/// broker then closes the whole connection with 541 (4.3).
const DELETION: Duration = Duration::from_millis(300);

/// The broker does not say which.
const WHY_CANCELLED: &str = "the queue was deleted, its node went away, or a message was not settled within the broker's consumer_timeout: \
    broker.consumer_timeout should say it, and for an existing quorum queue queue_type = \"quorum\" should be set";

impl Session<'_> {
    /// What ended the session. A request that fails because the channel has ended, or gets no
    /// answer, does not say why; the broker or, if the connection has ended, the subscriptions do.
    /// If it was the ack timeout, it is noted.
    pub(super) fn reason_for(&mut self, error: Error) -> Error {
        let told = self.channel.closed_by_broker().or_else(|| self.subscriptions.error());
        let says_why = !matches!(error, Error::Lost { .. } | Error::Timeout { .. });
        let error = match told {
            Some(told) if !says_why => self.lost_by(Problem::of_lapin(&told)),
            _ => error,
        };
        if let Some(Limit::ChannelConsumers { most }) = error.limit() {
            self.queue.keeper.scout().set_most_consumers(*most);
        }
        let text = error.to_string();
        if is_ack_timeout(&text) {
            self.is_taken_back = true;
            self.taken_back_after(named_in(&text));
        }
        error
    }

    /// The broker has taken back a message that was not settled within this time, if it is known.
    /// If the settings know of a longer time, says so once, and settles what comes from now on in
    /// the shorter one: a message that cannot be held for so long is requeued, and parked at the
    /// delivery limit.
    fn taken_back_after(&self, timeout: Option<Duration>) {
        let WorkQueue { ack_timeout, context, .. } = self.queue;
        // A get may have brought it, and cannot ask for a longer timeout.
        self.queue.intake.refuses_gets(self.queue.index);
        context.summary.update(|summary| summary.taken_back += 1);
        if let Some(timeout) = timeout
            && ack_timeout.named(timeout)
        {
            let limit = Rules::start_limit(&context.config, timeout);
            self.queue.intake.limit_start(self.queue.index, limit);
            let text = humantime::format_duration;
            tracing::warn!(
                queue = %self.name(),
                "the broker took back a message that was not settled within {}, and broker.consumer_timeout is {}: set \
                 broker.consumer_timeout = \"{}\", or raise consumer_timeout on the broker, and restart this service; until it is \
                 restarted, a message that waits longer in this process is given back, which the broker counts",
                text(timeout), text(ack_timeout.configured), text(timeout)
            );
        }
    }

    /// The broker has ended the subscription: the queue was deleted, its node went away, or (from
    /// 4.3 on) a message was not settled in time. What is unsettled can still be settled here.
    pub(super) async fn cancelled(&mut self) -> Result<(), Error> {
        self.check_channel()?;
        let error =
            self.lost_by(format!("the broker cancelled the subscription: {WHY_CANCELLED}").into());
        // The broker does not say why.
        let is_timeout = self.queue.ack_timeout.is_over_after(self.settling_channel.held_for());
        if !self.line().allows_single_return() {
            self.is_taken_back = is_timeout;
            // Another process may be active by now. Only a closed channel gives back what is held
            // here.
            return Err(error);
        }
        self.unsubscribe().await?;
        tracing::warn!(queue = %self.name(), "the broker cancelled the subscription: {WHY_CANCELLED}; subscribing again");
        self.queue.context.not_consuming(Some(&error));
        self.is_consuming = false;
        self.is_taken_back = is_timeout;
        self.declare_again().await?;
        self.is_taken_back = false;
        Ok(())
    }

    /// Declares the queue again. If the ack timeout may have expired, first waits until no alarm is
    /// in effect. Meanwhile hands back late deliveries and checks the channel: without a
    /// subscription, nothing else would notice that it was closed, and after that no copies of its
    /// messages may be sent.
    async fn declare_again(&self) -> Result<(), Error> {
        let declare = async {
            tokio::time::sleep(DELETION).await;
            if self.is_taken_back {
                self.queue.wait_out_alarm().await;
            }
            let position = self.queue.index.position();
            // What this session holds is settled meanwhile.
            outlast_limits(|| self.queue.keeper.declare(&self.connection, position)).await
        };
        let mut declare = pin!(declare);
        loop {
            tokio::select! {
                biased;
                () = self.queue.shutdown.requested() => return Ok(()),
                declared = &mut declare => return declared,
                () = tokio::time::sleep(CHECK_CHANNEL_EVERY) => {}
            }
            self.check_channel()?;
            let late = *self.late.borrow();
            if let Some(late) = late {
                self.hand_back_unstarted(late);
            }
        }
    }

    pub(super) fn check_channel(&self) -> Result<(), Error> {
        if self.channel.is_open() {
            return Ok(());
        }
        Err(self.lost_by("the channel was closed".to_owned().into()))
    }

    pub(super) fn lost_by(&self, problem: Problem) -> Error {
        Error::of_end(format!("consuming queue {:?}", self.name()), problem)
    }
}

/// Declares until no limit leaves it without room, of which the scout says so.
async fn outlast_limits<F: Future<Output = Result<(), Error>>>(
    declare: impl Fn() -> F,
) -> Result<(), Error> {
    for tries in 0.. {
        match declare().await {
            Err(error) if error.limit().is_some_and(Limit::is_of_the_client) => {
                tokio::time::sleep(pause(tries)).await;
            }
            other => return other,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// How declaring ends, and how much is left, if it goes like this.
    async fn declared(mut limits: Vec<Limit>) -> (Result<(), Error>, usize) {
        limits.reverse();
        let left = RefCell::new(limits);
        let declare = || async {
            let problem = || "NOT_ALLOWED".to_owned().into();
            let error = |limit| Error::Limit { what: String::new(), limit, problem: problem() };
            left.borrow_mut().pop().map_or(Ok(()), |limit| Err(error(limit)))
        };
        (outlast_limits(declare).await, left.into_inner().len())
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_outlasts_a_limit_of_channels_and_connections_and_no_other() {
        let user = || Limit::UserChannels { user: "svc".to_owned() };
        let queues = || Limit::VhostQueues { vhost: "/".to_owned() };
        let (declared_in_the_end, left) =
            declared(vec![user(), Limit::NodeConnections, user()]).await;
        assert!(declared_in_the_end.is_ok() && left == 0);
        let (refused, left) = declared(vec![user(), queues(), user()]).await;
        assert_eq!((refused.unwrap_err().limit(), left), (Some(&queues()), 1));
    }
}
