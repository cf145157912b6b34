//! How a service is doing.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::broker::connection::Link;
use crate::error::Error;
use crate::lock::lock;
use crate::timestamp::Timestamp;

/// How a service is doing: for probes and status pages. It is cheap to clone and to ask, and asks
/// the broker nothing.
///
/// ```no_run
/// # use rehop::{Failure, Message};
/// # async fn run(settings: rehop::Settings) -> Result<(), Box<dyn std::error::Error>> {
/// let service = rehop::Service::new(&settings)
///     .consumer("orders", |order: Message<u64>| async move { Ok::<_, Failure>(println!("{}", order.body)) });
/// let status = service.status();
/// tokio::spawn(async move {
///     loop {
///         tokio::time::sleep(std::time::Duration::from_secs(60)).await;
///         for problem in status.problems() {
///             eprintln!("not ready: {problem}");
///         }
///     }
/// });
/// service.await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Status(Arc<Inner>);

/// A status may outlive its service, and must not keep the connections of one that was dropped
/// open.
struct Inner {
    consuming: Weak<Link>,
    publishing: Weak<Link>,
    queues: Mutex<Vec<Arc<QueueState>>>,
}

/// How one queue is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStatus {
    /// The queue.
    pub queue: String,
    /// Whether it is consumed. A paused queue counts as consumed.
    pub is_consuming: bool,
    /// Whether it was paused or drained through a [`ServiceHandle`](crate::ServiceHandle), and has
    /// not been resumed.
    pub is_paused: bool,
    /// Since when it has been consumed, or not.
    pub since: Timestamp,
    /// Deliveries that this process holds, whether they wait for a handler, are being handled, or
    /// wait between two attempts.
    pub in_flight: u64,
    /// Why the queue was last not consumed. It is kept when the queue is consumed again. It may
    /// name hosts and users, so do not show it to everybody.
    pub last_error: Option<String>,
}

/// The state of the connections by which a service consumes and publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// Whether the connection that consumes is open.
    pub is_consuming_open: bool,
    /// Whether the connection that publishes is open.
    pub is_publishing_open: bool,
    /// Whether the broker blocks the connection that publishes, as it does during a memory or disk
    /// alarm.
    pub is_publishing_blocked: bool,
}

impl Status {
    pub(crate) fn new(consuming: &Arc<Link>, publishing: &Arc<Link>) -> Self {
        let (consuming, publishing) = (Arc::downgrade(consuming), Arc::downgrade(publishing));
        Self(Arc::new(Inner { consuming, publishing, queues: Mutex::default() }))
    }

    /// Adds a queue that is not consumed yet.
    pub(crate) fn add(&self, queue: &str) {
        lock(&self.0.queues).push(Arc::new(QueueState::new(queue)));
    }

    pub(crate) fn state(&self, queue: &str) -> Arc<QueueState> {
        let found = lock(&self.0.queues).iter().find(|state| state.queue == queue).cloned();
        found.unwrap_or_else(|| Arc::new(QueueState::new(queue)))
    }

    /// The service's queues, in the order in which they were added.
    pub fn queues(&self) -> Vec<QueueStatus> {
        lock(&self.0.queues).iter().map(|state| state.status()).collect()
    }

    /// The service's connections.
    pub fn connections(&self) -> ConnectionStatus {
        let state = |link: &Weak<Link>| link.upgrade().map(|link| link.state());
        let (consuming, publishing) = (state(&self.0.consuming), state(&self.0.publishing));
        ConnectionStatus {
            is_consuming_open: consuming.is_some_and(|state| state.is_open),
            is_publishing_open: publishing.is_some_and(|state| state.is_open),
            is_publishing_blocked: publishing.is_some_and(|state| state.is_blocked),
        }
    }

    /// Whether copies can be published: the connection is open, and the broker does not block it.
    /// While they cannot, failed messages are kept and nothing is lost.
    pub fn can_publish(&self) -> bool {
        let connections = self.connections();
        connections.is_publishing_open && !connections.is_publishing_blocked
    }

    /// Whether every queue is consumed and copies can be published. It is false before the service
    /// is awaited, and from the shutdown on.
    pub fn is_ready(&self) -> bool {
        self.problems().is_empty()
    }

    /// What keeps the service from being ready, one line for each problem. The lines name queues,
    /// but neither hosts nor users, so that a probe may show them; [`QueueStatus::last_error`] says
    /// more.
    pub fn problems(&self) -> Vec<String> {
        let mut problems: Vec<_> =
            lock(&self.0.queues).iter().filter_map(|state| state.problem()).collect();
        let connections = self.connections();
        if lock(&self.0.queues).is_empty() {
            problems.push("the service has no queue".to_owned());
        }
        if !connections.is_publishing_open {
            problems.push("the connection that publishes is not open".to_owned());
        } else if connections.is_publishing_blocked {
            problems.push(
                "the broker blocks publishing, as it does during a memory or disk alarm".to_owned(),
            );
        }
        problems
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Status")
            .field("queues", &self.queues())
            .field("connections", &self.connections())
            .finish()
    }
}

/// How one queue is doing, as its consumer keeps it.
#[derive(Debug)]
pub(crate) struct QueueState {
    queue: String,
    in_flight: AtomicU64,
    is_paused: AtomicBool,
    phase: Mutex<Phase>,
}

#[derive(Debug)]
struct Phase {
    is_consuming: bool,
    since: Timestamp,
    last_error: Option<Error>,
}

impl QueueState {
    fn new(queue: &str) -> Self {
        let phase = Phase { is_consuming: false, since: Timestamp::now(), last_error: None };
        Self {
            queue: queue.to_owned(),
            in_flight: AtomicU64::new(0),
            is_paused: AtomicBool::new(false),
            phase: Mutex::new(phase),
        }
    }

    pub(crate) fn consuming(&self, now: Timestamp) {
        self.change(true, now);
    }

    /// `error` says why, unless the service is stopping.
    pub(crate) fn not_consuming(&self, error: Option<&Error>, now: Timestamp) {
        self.change(false, now);
        if error.is_some() {
            lock(&self.phase).last_error = error.cloned();
        }
    }

    pub(crate) fn paused(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    pub(crate) fn received(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn released(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    fn change(&self, is_consuming: bool, now: Timestamp) {
        let mut phase = lock(&self.phase);
        if phase.is_consuming != is_consuming {
            (phase.is_consuming, phase.since) = (is_consuming, now);
        }
    }

    fn status(&self) -> QueueStatus {
        let phase = lock(&self.phase);
        QueueStatus {
            queue: self.queue.clone(),
            is_consuming: phase.is_consuming,
            is_paused: self.is_paused.load(Ordering::Relaxed),
            since: phase.since,
            in_flight: self.in_flight.load(Ordering::Relaxed),
            last_error: phase.last_error.as_ref().map(Error::to_string),
        }
    }

    /// Why the queue is not consumed.
    fn problem(&self) -> Option<String> {
        let (phase, queue) = (lock(&self.phase), &self.queue);
        let problem = format!("queue {queue:?} has not been consumed since {}", phase.since);
        match &phase.last_error {
            _ if phase.is_consuming => None,
            Some(error) => Some(format!("{problem}: {}", error.in_short())),
            None => Some(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::error::Problem;

    fn lost(problem: &str) -> Error {
        Error::Lost { what: "consuming".to_owned(), problem: problem.to_owned().into() }
    }

    #[test]
    fn a_state_lasts_until_it_changes_and_the_last_error_is_kept() {
        let state = QueueState::new("orders");
        let at = Timestamp::from_millis;
        let seen = |state: &QueueState| {
            let status = state.status();
            (status.is_consuming, status.since.as_millis(), status.last_error)
        };
        let (first, second) = (lost("first"), lost("second"));
        state.consuming(at(1));
        state.consuming(at(2));
        assert_eq!(seen(&state), (true, 1, None));
        state.not_consuming(Some(&first), at(3));
        state.not_consuming(Some(&second), at(4));
        assert_eq!(seen(&state), (false, 3, Some(second.to_string())));
        state.not_consuming(Some(&first), at(5));
        state.consuming(at(6));
        assert_eq!(seen(&state), (true, 6, Some(first.to_string())));
        state.not_consuming(None, at(7));
        assert_eq!(seen(&state), (false, 7, Some(first.to_string())));
    }

    #[test]
    fn a_problem_names_the_queue_but_neither_host_nor_user() {
        let state = QueueState::new("orders");
        assert!(state.problem().unwrap().contains("queue \"orders\" has not been consumed since"));
        let (broker, user) = ("rabbit.internal:5672".to_owned(), "billing".to_owned());
        let problem: Problem =
            "ACCESS_REFUSED - access to vhost '/' refused for user 'billing'".to_owned().into();
        state
            .not_consuming(Some(&Error::Login { broker, user, problem }), SystemTime::now().into());
        let shown = state.problem().unwrap();
        assert!(shown.ends_with(": the broker refused the login"), "{shown}");
        assert!(!shown.contains("rabbit.internal") && !shown.contains("billing"), "{shown}");
        assert!(state.status().last_error.unwrap().contains("billing"));
        state.consuming(SystemTime::now().into());
        assert_eq!(state.problem(), None);
    }
}
