//! Why a service cannot start.

use std::path::PathBuf;
use std::time::Duration;

use crate::settings::{SettingsError, WaitStrategy};
use crate::topology::Role;

mod limit;
mod mismatch;
mod problem;
mod queue_kind;
mod unreachable;

pub use limit::Limit;
pub use problem::Problem;
pub use queue_kind::QueueKind;
pub(crate) use unreachable::in_slow_handshake;

pub use mismatch::namespace_of;
use mismatch::{inequivalent, of_namespace, remedy};
use queue_kind::{of_exclusive, of_queue_type};

crate::debug::debug_is_display!(Error);

/// Why a service could not start.
///
/// Its text is complete, so its [`source`](std::error::Error::source) is `None`; [`Problem::cause`]
/// has the error behind it. Once started, a service logs such errors, reconnects, and declares and
/// subscribes again.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings are wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A name of an exchange or queue is too long.
    #[error("the name {name:?} has {} bytes, and AMQP carries 255 at most", name.len())]
    Name {
        /// The name.
        name: String,
    },
    /// One queue was given two handlers.
    #[error("queue {queue:?} has two handlers; give it one, which can tell messages apart itself")]
    TwoHandlers {
        /// The queue.
        queue: String,
    },
    /// No queue was given a handler, so there is nothing to do.
    #[error("the service has no consumer; add one with Service::consumer")]
    NoConsumer,
    /// No connection could be made.
    #[error("cannot reach the broker at {broker}: {problem}; {}", unreachable::advice(problem))]
    Connect {
        /// Host and port.
        broker: String,
        /// What happened.
        problem: Problem,
    },
    /// No connection could be made to any of several addresses.
    #[error(
        "cannot reach any node of the broker: {}; check that one runs, and broker.urls",
        of_each(tried)
    )]
    ConnectAny {
        /// What happened at each address: [`Connect`](Self::Connect) or [`Timeout`](Self::Timeout).
        tried: Vec<Self>,
    },
    /// The file that holds the password cannot be used.
    #[error("cannot use the password file {}: {problem}; check broker.password_file", path.display())]
    PasswordFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: Problem,
    },
    /// The broker rejected the user, the password, or the user's access to the virtual host.
    #[error(
        "the broker at {broker} refused user {user:?}: {problem}; check broker.username, broker.password or broker.password_file, and the virtual host"
    )]
    Login {
        /// Host and port.
        broker: String,
        /// The user.
        user: String,
        /// What the broker said.
        problem: Problem,
    },
    /// A limit of the broker, or of this machine, is reached. Tried again, because others may make
    /// room, or somebody may raise the limit.
    #[error("{limit}, so {what} is refused: {}. {problem}", limit.remedy())]
    Limit {
        /// What was tried.
        what: String,
        /// The limit.
        limit: Limit,
        /// What the broker or the system said.
        problem: Problem,
    },
    /// The certificates could not be used, or the broker's was not trusted.
    #[error(
        "no TLS connection to the broker at {broker}: {problem}; check broker.tls and the name in broker.url"
    )]
    Tls {
        /// Host and port.
        broker: String,
        /// What happened.
        problem: Problem,
    },
    /// A queue or exchange exists with another argument than the settings ask for. Nothing was
    /// changed.
    #[error("{what} exists with {argument} {found} where {wanted} is needed; nothing was changed: {}",
        of_namespace(argument, wanted, found).unwrap_or_else(|| remedy(*role, argument).to_owned()))]
    Mismatch {
        /// The queue or exchange.
        what: String,
        /// The argument that differs; the broker names only the first.
        argument: String,
        /// Its value in the settings.
        wanted: String,
        /// Its value in the broker.
        found: String,
        /// What the queue is for; `None` for an exchange.
        role: Option<Role>,
        /// What the broker said.
        problem: Problem,
    },
    /// A queue that others have declared is of a kind that cannot be consumed as the settings say.
    #[error("queue {queue:?} {kind}")]
    UnsuitableQueue {
        /// The queue.
        queue: String,
        /// What it is.
        kind: QueueKind,
        /// What the broker said.
        problem: Problem,
    },
    /// The broker is too old for the way in which a queue's messages are to wait.
    #[error(
        "queue {queue:?} waits by strategy {:?}, which this broker does not know (RabbitMQ has it from {since}): upgrade it, or set \
         retry.strategy = \"ladder\"", strategy.as_str()
    )]
    UnknownStrategy {
        /// The queue.
        queue: String,
        /// How its messages are to wait.
        strategy: WaitStrategy,
        /// The first version of RabbitMQ that knows it.
        since: &'static str,
    },
    /// The user may not do what is needed.
    #[error(
        "{what} needs a permission that the user does not have: {problem}; see \"Least permissions\" in the topology page"
    )]
    Permission {
        /// What was tried.
        what: String,
        /// What the broker said, with the resource and the kind of access.
        problem: Problem,
    },
    /// An exchange or queue that another program declares does not exist.
    #[error(
        "{what} failed, because something does not exist: {problem}; declare it first, for instance with `rehop topology declare`"
    )]
    Missing {
        /// What was tried.
        what: String,
        /// What the broker said.
        problem: Problem,
    },
    /// A queue exists, but no node can serve it now: its node is down, or its process has stopped
    /// or does not answer.
    #[error("{what} is not possible now: {problem}; check the cluster's nodes")]
    Unavailable {
        /// What was tried.
        what: String,
        /// What the broker said.
        problem: Problem,
    },
    /// The broker has no exchanges of the type that the strategy `delayed-exchange` needs.
    #[error(
        "the broker knows no exchange type \"x-delayed-message\", which exchange {exchange:?} needs ({problem}): enable the plugin \
         rabbitmq_delayed_message_exchange on every node, or set retry.strategy = \"ladder\""
    )]
    NoDelayedExchange {
        /// The exchange.
        exchange: String,
        /// What the broker said.
        problem: Problem,
    },
    /// The broker refused something for another reason.
    #[error("the broker refused {what}: {problem}")]
    Refused {
        /// What was tried.
        what: String,
        /// What the broker said.
        problem: Problem,
    },
    /// The management API, which this needs, cannot be used, or is not named.
    #[error("the broker's management API is needed: {problem}")]
    Management {
        /// What happened; it names no credentials.
        problem: Problem,
    },
    /// Wait queues that a prune had unbound and then kept could not be bound again. Messages that
    /// are to wait in them go to the stray queue.
    #[error(
        "still unbound: {}; until they are bound, messages that are to wait there go to the stray queue, and a service may not notice. Run \
         `rehop topology declare` with the settings of the service that uses them, or prune again if none does: {problem}",
        bindings.join(", ")
    )]
    StillUnbound {
        /// Each queue, and the exchange to which it was bound.
        bindings: Vec<String>,
        /// Why they could not be bound.
        problem: Problem,
    },
    /// The broker did not answer.
    #[error(
        "the broker did not answer within {} while {what}; neither a cluster without a majority nor a port that is not for AMQP answers",
        humantime::format_duration(*limit)
    )]
    Timeout {
        /// What was tried.
        what: String,
        /// How long it may take.
        limit: Duration,
    },
    /// The connection ended meanwhile.
    #[error("the connection was lost while {what}: {problem}")]
    Lost {
        /// What was tried.
        what: String,
        /// How it ended.
        problem: Problem,
    },
}

impl Error {
    /// Whether trying again can help: the broker is away or busy, and nothing is wrong with what
    /// was asked of it.
    pub fn is_transient(&self) -> bool {
        use Error::{Connect, ConnectAny, Lost, Timeout, Unavailable};
        let is_away = matches!(
            self,
            Connect { .. } | ConnectAny { .. } | Unavailable { .. } | Timeout { .. }
        );
        is_away || matches!(self, Lost { .. } | Self::Limit { .. })
    }

    /// The limit that is reached, if that is what this is.
    #[doc(hidden)]
    pub fn limit(&self) -> Option<&Limit> {
        match self {
            Self::Limit { limit, .. } => Some(limit),
            _ => None,
        }
    }

    /// Whether a delivery ended the connection, such as that of a message whose headers are larger
    /// than a frame. It comes again on the next connection.
    pub(crate) fn is_by_delivery(&self) -> bool {
        matches!(self, Self::Lost { problem, .. } if problem.as_lapin().is_some_and(is_frame_error))
    }

    /// Whether the connection cannot open a channel any more, and has to be replaced.
    #[doc(hidden)]
    pub fn is_used_up(&self) -> bool {
        matches!(self, Self::Lost { problem, .. } if problem.as_lapin().is_some_and(is_used_up))
    }

    /// What is wrong in a few words, without the names of hosts and users and without the broker's
    /// text: for those who may not know them, such as clients of a probe.
    pub(crate) fn in_short(&self) -> &'static str {
        match self {
            Self::Settings(_) | Self::Name { .. } | Self::TwoHandlers { .. } | Self::NoConsumer => {
                "the settings are wrong"
            }
            Self::Connect { .. } | Self::ConnectAny { .. } => "the broker cannot be reached",
            Self::PasswordFile { .. } => "the password file cannot be used",
            Self::Login { .. } => "the broker refused the login",
            Self::Limit { .. } => "a limit is reached",
            Self::Tls { .. } => "there is no TLS connection",
            Self::Mismatch { .. } => "something exists with other arguments",
            Self::UnsuitableQueue { .. } => "a queue is of an unsuitable kind",
            Self::Permission { .. } => "a permission is missing",
            Self::Missing { .. } => "something does not exist",
            Self::Unavailable { .. } => "no node can serve the queue",
            Self::Refused { .. } => "the broker refused something",
            Self::UnknownStrategy { .. } | Self::NoDelayedExchange { .. } => {
                "the broker does not know a strategy to wait"
            }
            Self::Management { .. } => "the management API cannot be used",
            Self::StillUnbound { .. } => "wait queues are not bound",
            Self::Timeout { .. } => "the broker does not answer",
            Self::Lost { .. } => "the connection or its channel was lost",
        }
    }

    /// What it means that no address could be connected to. An error that waiting cannot mend, such
    /// as a refused login, and a limit, come before nodes that are down.
    pub(crate) fn of_all_addresses(mut tried: Vec<Self>) -> Self {
        let is_telling = |error: &Self| !error.is_transient() || error.limit().is_some();
        match tried.iter().position(is_telling) {
            Some(telling) => tried.swap_remove(telling),
            None if tried.len() == 1 => tried.remove(0),
            None => Self::ConnectAny { tried },
        }
    }

    /// What the broker's answer to an operation means. `what` reads like "declaring queue orders".
    #[doc(hidden)]
    pub fn of_operation(what: impl Into<String>, error: &lapin::Error) -> Self {
        let what = what.into();
        let lapin::ErrorKind::ProtocolError(answer) = error.kind() else {
            return Self::of_end(what, Problem::of_lapin(error));
        };
        let (text, problem) = (answer.get_message().as_str(), Problem::of_lapin(error));
        if let Some(limit) = Limit::of_answer(answer.get_id(), text) {
            return Self::Limit { what, limit, problem };
        }
        match answer.get_id() {
            403 => Self::Permission { what, problem },
            // Only its text tells it from a queue that cannot be served: "no queue 'q' in vhost
            // '/'" (3.10, 4.0 and 4.3).
            404 if text.starts_with("NOT_FOUND - no ") => Self::Missing { what, problem },
            404 => Self::Unavailable { what, problem },
            405 => match of_exclusive(text) {
                Some(queue) => Self::UnsuitableQueue { queue, kind: QueueKind::Exclusive, problem },
                None => Self::Refused { what, problem },
            },
            406 => match inequivalent(text) {
                Some((what, argument, wanted, found)) => {
                    Self::Mismatch { what, argument, wanted, found, role: None, problem }
                }
                None => match of_queue_type(text) {
                    Some((queue, kind)) => Self::UnsuitableQueue { queue, kind, problem },
                    None => Self::Refused { what, problem },
                },
            },
            // The broker stops, or an operator closed the connection.
            320 | 541 => Self::Lost { what, problem },
            _ => Self::Refused { what, problem },
        }
    }

    /// What it means that the connection or the channel ended meanwhile.
    pub(crate) fn of_end(what: String, problem: Problem) -> Self {
        Self::Lost { what, problem }
    }

    /// What it means that a delayed exchange could not be declared. Without the plugin, 3.10 closes
    /// the connection with 503, and 4.0 and 4.3 close the channel with 406.
    pub(crate) fn without_plugin(self, exchange: &str) -> Self {
        match self {
            Self::Refused { problem, .. } => {
                Self::NoDelayedExchange { exchange: exchange.to_owned(), problem }
            }
            error => error,
        }
    }

    /// Adds what the queue is for, which decides what to do about it.
    pub(crate) fn with_role(mut self, queue: Role) -> Self {
        if let Self::Mismatch { role, .. } = &mut self {
            *role = Some(queue);
        }
        self
    }
}

fn of_each(tried: &[Error]) -> String {
    let each = tried.iter().map(|error| match error {
        Error::Connect { broker, problem } => format!("{broker}: {problem}"),
        other => other.to_string(),
    });
    each.collect::<Vec<_>>().join("; ")
}

/// Whether the connection has no number left for a channel: the broker allows few channels, or has
/// closed many.
pub(crate) fn is_used_up(error: &lapin::Error) -> bool {
    matches!(error.kind(), lapin::ErrorKind::ChannelsLimitReached)
}

/// Whether a frame that was too large, or malformed, ended the connection.
fn is_frame_error(error: &lapin::Error) -> bool {
    match error.kind() {
        lapin::ErrorKind::ProtocolError(answer) => answer.get_id() == 501,
        lapin::ErrorKind::ParsingError(_) => true,
        _ => false,
    }
}

/// The text of an error of lapin's, on one line. The broker repeats names that anyone may have
/// written, so characters that a terminal obeys or does not show are escaped. It names no
/// credentials: only the URL has them.
pub fn describe(error: &lapin::Error) -> String {
    let text = match error.kind() {
        lapin::ErrorKind::IOError(error) => error.to_string(),
        lapin::ErrorKind::ProtocolError(answer) => answer.get_message().to_string(),
        _ => error.to_string(),
    };
    text.chars().fold(String::with_capacity(text.len()), |mut safe, c| {
        match c {
            '"' | '\'' | '\\' => safe.push(c),
            c => safe.extend(c.escape_debug()),
        }
        safe
    })
}
