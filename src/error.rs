//! Errors of running a consumer.

use std::time::Duration;

use crate::settings::SettingsError;

/// `unwrap()`, and a `main` that returns an error, print it by `Debug`; what to do next stands in its text.
macro_rules! debug_is_display {
    ($($error:ty),+) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, formatter)
            }
        }
    )+};
}
pub(crate) use debug_is_display;

debug_is_display!(Error);

/// Why a consumer could not start.
///
/// Once it runs, nothing of this ends it: it reconnects, declares and subscribes again, and logs what is wrong.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings are wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// No connection could be made.
    #[error("cannot reach the broker at {broker}: {problem}; check that it runs, and broker.url")]
    Connect {
        /// Host and port.
        broker: String,
        /// What happened.
        problem: String,
    },
    /// The broker does not know the user, its password, or its right to the virtual host.
    #[error(
        "the broker at {broker} refused user {user:?}: {problem}; check broker.username, broker.password and the virtual host"
    )]
    Login {
        /// Host and port.
        broker: String,
        /// The user.
        user: String,
        /// What the broker said.
        problem: String,
    },
    /// The certificates could not be used, or the broker's was not trusted.
    #[error("no TLS connection to the broker at {broker}: {problem}; check broker.tls and the name in broker.url")]
    Tls {
        /// Host and port.
        broker: String,
        /// What happened.
        problem: String,
    },
    /// A queue or exchange exists with another argument than the settings ask for. Nothing was changed.
    #[error(
        "{what} exists with {argument} {found} where {wanted} is needed; nothing was changed: adapt the settings to it, or \
         delete it when it is empty and start again, or take the queue as it is with declare = \"existing\""
    )]
    Mismatch {
        /// The queue or exchange.
        what: String,
        /// The argument that differs; the broker names only the first.
        argument: String,
        /// Its value in the settings.
        wanted: String,
        /// Its value in the broker.
        found: String,
    },
    /// The user may not do what is needed.
    #[error("{what} needs a permission that the user does not have: {problem}; see \"Permissions\" in the README")]
    Permission {
        /// What was tried.
        what: String,
        /// What the broker said, with the resource and the kind of access.
        problem: String,
    },
    /// An exchange or queue that somebody else declares is not there.
    #[error(
        "{what} failed, because something does not exist: {problem}; declare it first, for instance with `rehop topology declare`"
    )]
    Missing {
        /// What was tried.
        what: String,
        /// What the broker said.
        problem: String,
    },
    /// A queue exists and cannot be served now: its node is down, its process has stopped or does not answer.
    #[error("{what} is not possible now: {problem}; check the cluster's nodes")]
    Unavailable {
        /// What was tried.
        what: String,
        /// What the broker said.
        problem: String,
    },
    /// The broker refused something for another reason.
    #[error("the broker refused {what}: {problem}")]
    Refused {
        /// What was tried.
        what: String,
        /// What the broker said.
        problem: String,
    },
    /// The broker did not answer.
    #[error(
        "the broker did not answer within {} while {what}; a cluster without a majority answers nothing", humantime::format_duration(*limit)
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
        problem: String,
    },
}

impl Error {
    /// Whether trying again can help: the broker is away or busy, and nothing is wrong with what was asked of it.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Unavailable { .. } | Self::Timeout { .. } | Self::Lost { .. })
    }

    /// What the broker's answer to an operation means. `what` reads like "declaring queue orders".
    pub(crate) fn of_operation(what: impl Into<String>, error: &lapin::Error) -> Self {
        let what = what.into();
        let lapin::ErrorKind::ProtocolError(answer) = error.kind() else {
            return Self::Lost { what, problem: describe(error) };
        };
        let problem = answer.get_message().to_string();
        match answer.get_id() {
            403 => Self::Permission { what, problem },
            // Told from a queue that cannot be served by its text alone: "no queue 'q' in vhost '/'" (3.10, 4.0 and 4.3).
            404 if problem.starts_with("NOT_FOUND - no ") => Self::Missing { what, problem },
            404 => Self::Unavailable { what, problem },
            406 => match inequivalent(&problem) {
                Some((what, argument, wanted, found)) => Self::Mismatch { what, argument, wanted, found },
                None => Self::Refused { what, problem },
            },
            // The broker stops, or an operator closed the connection.
            320 | 541 => Self::Lost { what, problem },
            _ => Self::Refused { what, problem },
        }
    }
}

/// An error in lapin's words. Its text names no credentials: those are in the URL only.
pub(crate) fn describe(error: &lapin::Error) -> String {
    match error.kind() {
        lapin::ErrorKind::IOError(error) => error.to_string(),
        lapin::ErrorKind::ProtocolError(answer) => answer.get_message().to_string(),
        _ => error.to_string(),
    }
}

/// Reads `PRECONDITION_FAILED - inequivalent arg 'x-delivery-limit' for queue 'q' in vhost '/': received '5' but current is
/// '3'` and its variants, alike on 3.10, 4.0 and 4.3: thing, argument, wanted value, found value.
fn inequivalent(text: &str) -> Option<(String, String, String, String)> {
    let rest = text.split_once("inequivalent arg '")?.1;
    let (argument, rest) = rest.split_once("' for ")?;
    let (kind, rest) = rest.split_once(" '")?;
    let (name, rest) = rest.split_once("' in vhost")?;
    let (received, current) = rest.split_once("received ")?.1.split_once(" but current is ")?;
    let value = |text: &str| {
        if text.starts_with("none") {
            return "none".to_owned();
        }
        match text.split_once('\'').and_then(|(_, rest)| rest.split_once('\'')) {
            Some((value, _)) => format!("'{value}'"),
            None => text.to_owned(),
        }
    };
    Some((format!("{kind} {name:?}"), argument.to_owned(), value(received), value(current)))
}

#[cfg(test)]
mod tests {
    use super::inequivalent;

    #[test]
    fn a_differing_argument_is_read_from_what_the_broker_says() {
        let check = |text: &str, expected: [&str; 4]| {
            let (what, argument, wanted, found) = inequivalent(text).unwrap();
            assert_eq!([what, argument, wanted, found], expected.map(str::to_owned), "{text}");
        };
        check(
            "PRECONDITION_FAILED - inequivalent arg 'x-delivery-limit' for queue 'e10' in vhost '/': received '5' but current is '3'",
            ["queue \"e10\"", "x-delivery-limit", "'5'", "'3'"],
        );
        check(
            "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'a b' in vhost '/': received none but current is the value '3' of type 'signedint'",
            ["queue \"a b\"", "x-message-ttl", "none", "'3'"],
        );
        check(
            "PRECONDITION_FAILED - inequivalent arg 'x-delivery-limit' for queue 'q' in vhost '/': received the value '1000' of type 'signedint' but current is none",
            ["queue \"q\"", "x-delivery-limit", "'1000'", "none"],
        );
        check(
            "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'x' in vhost '/': received 'topic' but current is 'direct'",
            ["exchange \"x\"", "type", "'topic'", "'direct'"],
        );
        assert_eq!(inequivalent("PRECONDITION_FAILED - something else"), None);
    }
}
