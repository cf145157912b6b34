//! What went wrong, and the error that it came from.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::describe;

/// What went wrong, in the words of the broker, the network or a file. [`source`](Error::source) is the error behind it, if
/// there is one.
///
/// Its text names no credentials.
#[derive(Clone)]
pub struct Problem(Arc<Inner>);

struct Inner {
    text: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl Problem {
    /// The lapin error behind it, if there is one.
    pub(crate) fn of_lapin(&self) -> Option<&lapin::Error> {
        self.0.cause.as_deref().and_then(|cause| cause.downcast_ref())
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

impl From<&lapin::Error> for Problem {
    fn from(error: &lapin::Error) -> Self {
        Self::new(describe(error), error.clone())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

crate::debug::debug_is_display!(Problem);

impl Error for Problem {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.cause.as_deref().map(|cause| cause as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// The texts of an error's sources, and whether the last of them is of this type.
    fn sources<E: Error + 'static>(error: &dyn Error) -> (Vec<String>, bool) {
        let sources: Vec<_> = std::iter::successors(error.source(), |error| (**error).source()).collect();
        (sources.iter().map(ToString::to_string).collect(), sources.last().is_some_and(|last| last.is::<E>()))
    }

    #[test]
    fn an_error_leads_to_what_caused_it() {
        let lost = lapin::Error::from(io::Error::from(io::ErrorKind::ConnectionReset));
        let error = crate::Error::of_operation("declaring queue orders", &lost);
        assert_eq!(error.to_string(), "the connection was lost while declaring queue orders: connection reset");
        let (texts, ends_with_io_error) = sources::<io::Error>(&error);
        assert_eq!(
            (texts.first().map(String::as_str), ends_with_io_error),
            (Some("connection reset"), true),
            "{texts:?}"
        );
        let (copied, ends_with_io_error) = sources::<io::Error>(&error.clone());
        assert_eq!((copied, ends_with_io_error), (texts, true));
    }

    #[test]
    fn a_delivery_that_ended_the_connection_is_told_from_other_losses() {
        let problem = lapin::types::parsing::parse_short_string(&[2_u8, 0xFF, 0xFE][..]).unwrap_err();
        let malformed = lapin::Error::from(lapin::ErrorKind::ParsingError(problem));
        let error = crate::Error::of_operation("reading queue \"q\"", &malformed);
        assert!(error.is_transient() && error.is_by_delivery());
        let lost =
            crate::Error::of_operation("x", &lapin::Error::from(io::Error::from(io::ErrorKind::ConnectionReset)));
        assert!(!lost.is_by_delivery());
    }

    #[test]
    fn the_brokers_answer_is_a_source_also_of_a_mismatch() {
        for text in [
            "ACCESS_REFUSED - no",
            "PRECONDITION_FAILED - inequivalent arg 'x' for queue 'q' in vhost '/': received '5' but current is '3'",
        ] {
            let code = if text.starts_with('A') { 403 } else { 406 };
            let answer = lapin::protocol::AMQPError::from_id(code, text.into()).unwrap();
            let error =
                crate::Error::of_operation("declaring queue q", &lapin::ErrorKind::ProtocolError(answer).into());
            let (texts, ends_with_answer) = sources::<lapin::protocol::AMQPError>(&error);
            assert!(texts[0] == text && ends_with_answer, "{texts:?}");
        }
    }

    #[test]
    fn a_name_that_the_broker_repeats_commands_no_terminal() {
        let text = "NOT_FOUND - no queue '\u{1b}]0;owned\u{7}\u{9b}2J\u{202e} \"ü語\"\\\n' in vhost '/'";
        let answer = lapin::protocol::AMQPError::from_id(404, text.into()).unwrap();
        let problem = Problem::from(&lapin::Error::from(lapin::ErrorKind::ProtocolError(answer)));
        let shown = r#"NOT_FOUND - no queue '\u{1b}]0;owned\u{7}\u{9b}2J\u{202e} "ü語"\\n' in vhost '/'"#;
        assert_eq!(problem.to_string(), shown);
    }

    #[test]
    fn a_problem_without_a_cause_ends_the_chain() {
        let error = crate::Error::Lost { what: "x".to_owned(), problem: "the channel was closed".to_owned().into() };
        assert_eq!(sources::<Problem>(&error), (vec!["the channel was closed".to_owned()], true));
    }
}
