//! What to do about a broker that cannot be reached.

use std::time::Duration;

use super::{Problem, describe};

/// How the standard library's error begins, whatever the resolver adds.
const NO_ADDRESS: &str = "failed to lookup address information";

/// How the text ends if the broker may have ended a handshake that took too long.
const TOO_SLOW: &str = "which is how RabbitMQ ends one that takes longer than handshake_timeout";

/// The broker, or something on the way, has ended a connection so long after it was there.
pub(crate) fn in_slow_handshake(error: &lapin::Error, took: Duration) -> Problem {
    let text = format!("{} after {took:.1?} of the handshake, {TOO_SLOW}", describe(error));
    Problem::new(text, error.clone())
}

/// What to check, as a part of an error's text.
pub(super) fn advice(problem: &Problem) -> &'static str {
    if problem.to_string().starts_with(NO_ADDRESS) {
        "check the host in broker.url, and the name service of this machine"
    } else if problem.to_string().ends_with(TOO_SLOW) {
        "check the port in broker.url, find what is slow on the way to the broker, or raise handshake_timeout in rabbitmq.conf"
    } else {
        "check that it is running, and check broker.url"
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn what_to_check_depends_on_whose_fault_it_is() {
        let advice_of = |error: io::Error| advice(&Problem::of_lapin(&lapin::Error::from(error)));
        let unknown = io::Error::other("failed to lookup address information: Name or service …");
        assert!(advice_of(unknown).contains("name service"));
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(advice_of(refused), "check that it is running, and check broker.url");
        assert_eq!(
            advice(&"no".to_owned().into()),
            "check that it is running, and check broker.url"
        );
    }
}
