//! What went wrong, and the error that it came from.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::describe;

/// What went wrong, in the words of the broker, the network or a file. It names no credentials.
#[derive(Clone)]
pub struct Problem(Arc<Inner>);

struct Inner {
    text: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl Problem {
    /// The error behind it, if there is one, for a downcast: for a file an
    /// [`io::Error`](std::io::Error), otherwise an error of the AMQP client, which has the
    /// `io::Error` among its sources if the network failed. Its text may repeat this one's.
    pub fn cause(&self) -> Option<&(dyn Error + 'static)> {
        self.0.cause.as_deref().map(|cause| cause as &(dyn Error + 'static))
    }

    pub(crate) fn of_lapin(error: &lapin::Error) -> Self {
        Self::new(describe(error), error.clone())
    }

    /// The lapin error behind it, if there is one.
    pub(crate) fn as_lapin(&self) -> Option<&lapin::Error> {
        self.cause()?.downcast_ref()
    }

    pub(crate) fn text(&self) -> &str {
        &self.0.text
    }

    #[doc(hidden)]
    pub fn new(text: impl Into<String>, cause: impl Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { text: text.into(), cause: Some(Box::new(cause)) }))
    }
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self(Arc::new(Inner { text, cause: None }))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

crate::debug::debug_is_display!(Problem);

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// What the broker, the network or a file said.
    fn problem(error: &crate::Error) -> &Problem {
        use crate::Error::{Lost, Mismatch, Permission};
        let (Lost { problem, .. } | Mismatch { problem, .. } | Permission { problem, .. }) = error
        else {
            panic!("{error:?}")
        };
        problem
    }

    /// Whether an error of this type is among the causes.
    fn is_caused_by<E: Error + 'static>(problem: &Problem) -> bool {
        std::iter::successors(problem.cause(), |error| (**error).source())
            .any(|error| error.is::<E>())
    }

    #[test]
    fn an_error_says_all_in_its_text_and_leads_to_its_cause() {
        let lost = lapin::Error::from(io::Error::from(io::ErrorKind::ConnectionReset));
        let error = crate::Error::of_operation("declaring queue orders", &lost);
        assert_eq!(
            error.to_string(),
            "the connection was lost while declaring queue orders: connection reset"
        );
        assert!(error.source().is_none(), "it would repeat the text");
        for error in [&error, &error.clone()] {
            assert_eq!(problem(error).to_string(), "connection reset");
            assert!(is_caused_by::<io::Error>(problem(error)));
        }
    }

    #[test]
    fn a_delivery_that_ended_the_connection_is_told_from_other_losses() {
        let problem =
            lapin::types::parsing::parse_short_string(&[2_u8, 0xFF, 0xFE][..]).unwrap_err();
        let malformed = lapin::Error::from(lapin::ErrorKind::ParsingError(problem));
        let error = crate::Error::of_operation("reading queue \"q\"", &malformed);
        assert!(error.is_transient() && error.is_by_delivery());
        let lost = crate::Error::of_operation(
            "x",
            &lapin::Error::from(io::Error::from(io::ErrorKind::ConnectionReset)),
        );
        assert!(!lost.is_by_delivery());
    }

    #[test]
    fn the_brokers_answer_is_a_cause_also_of_a_mismatch() {
        for text in [
            "ACCESS_REFUSED - no",
            "PRECONDITION_FAILED - inequivalent arg 'x' for queue 'q' in vhost '/': received '5' but current is '3'",
        ] {
            let code = if text.starts_with('A') { 403 } else { 406 };
            let answer = lapin::protocol::AMQPError::from_id(code, text.into()).unwrap();
            let error = crate::Error::of_operation(
                "declaring queue q",
                &lapin::ErrorKind::ProtocolError(answer).into(),
            );
            assert_eq!(problem(&error).to_string(), text);
            assert!(is_caused_by::<lapin::protocol::AMQPError>(problem(&error)));
        }
    }

    #[test]
    fn a_name_that_the_broker_repeats_commands_no_terminal() {
        let text =
            "NOT_FOUND - no queue '\u{1b}]0;owned\u{7}\u{9b}2J\u{202e} \"ü語\"\\\n' in vhost '/'";
        let answer = lapin::protocol::AMQPError::from_id(404, text.into()).unwrap();
        let problem =
            Problem::of_lapin(&lapin::Error::from(lapin::ErrorKind::ProtocolError(answer)));
        let shown =
            r#"NOT_FOUND - no queue '\u{1b}]0;owned\u{7}\u{9b}2J\u{202e} "ü語"\\n' in vhost '/'"#;
        assert_eq!(problem.to_string(), shown);
    }

    #[test]
    fn a_problem_may_have_no_cause() {
        assert!(Problem::from("the channel was closed".to_owned()).cause().is_none());
    }
}
