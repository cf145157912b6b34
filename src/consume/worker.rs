//! One queue's consumer: opens one session after the other, for as long as the service runs.

use std::time::Duration;

use tokio::time::Instant;

use crate::broker::connection::pause;
use crate::consume::session::Session;
use crate::consume::work_queue::WorkQueue;
use crate::error::Error;

/// A session that is lost sooner than this, without a single delivery, is one more failure in a
/// row. Otherwise a message that breaks the connection when it is delivered, as headers over the
/// frame limit do, would break it several times a second.
const STEADY_AFTER: Duration = Duration::from_secs(10);

/// For how long a limit has kept a queue from being consumed for the first time.
#[derive(Default)]
struct Waiting(Option<Instant>);

impl Waiting {
    /// Whether the queue is given up because of this error.
    fn is_over(&mut self, error: &Error, startup_timeout: Duration) -> bool {
        if error.limit().is_none() {
            self.0 = None;
            return !error.is_transient();
        }
        self.0.get_or_insert_with(Instant::now).elapsed() >= startup_timeout
    }
}

impl WorkQueue {
    /// Consumes the queue until the shutdown is requested and done.
    ///
    /// # Errors
    ///
    /// Only before the queue is consumed for the first time, if the broker refuses to declare or to
    /// consume it. A limit is waited for during `broker.startup_timeout`, as an unreachable broker
    /// is. A missing permission to read the queue is no such refusal: it is retried until the
    /// shutdown, as is every failure after the queue has been consumed once.
    pub(crate) async fn run(self) -> Result<(), Error> {
        let (shutdown, queue) = (&self.shutdown, self.context.config.queue.as_str());
        let (mut failures, mut started, mut has_consumed, mut was_taken_back) =
            (0, false, false, false);
        let mut waiting = Waiting::default();
        loop {
            let opened = tokio::select! {
                biased;
                () = shutdown.requested() => {
                    self.stop().await;
                    return Ok(());
                }
                opened = self.open(was_taken_back) => opened,
            };
            let error = match opened {
                Err(error)
                    if !started && waiting.is_over(&error, self.consuming.startup_timeout()) =>
                {
                    return Err(error);
                }
                Err(error) => error,
                Ok(mut session) => {
                    started = true;
                    let since = Instant::now();
                    let Err(error) = session.run().await else { return Ok(()) };
                    // A get may have brought a message before there was a subscription.
                    has_consumed |= session.has_consumed || session.has_taken;
                    if session.is_paused {
                        tracing::info!(queue, "paused: gave back all that was held, in its order");
                        (failures, was_taken_back) = (0, false);
                        continue;
                    }
                    let is_refused =
                        matches!(error, Error::Refused { .. } | Error::UnsuitableQueue { .. });
                    if !has_consumed && is_refused {
                        return Err(error);
                    }
                    was_taken_back = session.is_taken_back;
                    let is_unanswered = matches!(error, Error::Timeout { .. });
                    if is_unanswered {
                        // Its node may have lost the others. What else it carries goes on.
                        self.consuming.abandon(&session.connection);
                    }
                    if session.has_taken || (since.elapsed() > STEADY_AFTER && !is_unanswered) {
                        failures = 0;
                    }
                    error
                }
            };
            self.context.not_consuming(Some(&error));
            let pause = pause(failures);
            failures += 1;
            tracing::warn!(queue, %error, "not consuming; retrying in {pause:.1?}");
            tokio::select! {
                biased;
                () = tokio::time::sleep(pause) => {}
                // Seen above.
                () = shutdown.requested() => {}
            }
        }
    }

    /// Opens a session. After an ack timeout, waits for the end of an alarm first.
    ///
    /// An ordered queue's handlers of the session before must have ended: its messages come again.
    async fn open(&self, was_taken_back: bool) -> Result<Session<'_>, Error> {
        if !self.context.line.lets_handlers_outlive_the_session() {
            self.intake.idle(self.index).await;
        }
        if was_taken_back {
            self.wait_out_alarm().await;
        }
        let connection = self.consuming.get().await?;
        if let Err(error) = self.prepare(&connection).await {
            // Otherwise the scout's connection failed, not this one.
            if self.keeper.scout().works_elsewhere() {
                self.consuming.leave(&connection, &error);
            }
            return Err(error);
        }
        // One channel too many would end the sessions of the other queues.
        let place = self.keeper.scout().place_to_consume().await?;
        let opened = Session::open(self, connection.clone(), place).await;
        opened.inspect_err(|error| {
            self.keeper.scout().note_limit(error);
            self.consuming.leave(&connection, error);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Limit;

    fn at_limit() -> Error {
        let problem = "NOT_ALLOWED".to_owned().into();
        Error::Limit { what: "connecting".to_owned(), limit: Limit::NodeConnections, problem }
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_for_which_a_limit_is_waited_for_begins_with_the_first_limit_in_a_row() {
        let (mut waiting, limit) = (Waiting::default(), Duration::from_secs(30));
        let away = Error::Connect { broker: "b:5672".to_owned(), problem: "".to_owned().into() };
        let refused = Error::Refused { what: "".to_owned(), problem: "".to_owned().into() };
        for error in [&away, &at_limit()] {
            assert!(!waiting.is_over(error, limit));
            tokio::time::advance(Duration::from_secs(20)).await;
        }
        assert!(!waiting.is_over(&at_limit(), limit), "only the time at the limit counts");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!waiting.is_over(&away, limit), "a broker that is away is waited for");
        assert!(!waiting.is_over(&at_limit(), limit), "the time begins again");
        tokio::time::advance(limit).await;
        assert!(waiting.is_over(&at_limit(), limit));
        assert!(waiting.is_over(&refused, limit), "waiting does not help");
    }
}
