//! Why there is no answer.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io;
use std::time::Duration;

use hyper_util::client::legacy;
use rehop::Failure;
use rehop::settings::Treatment;

use super::answer::Treatments;

pub(super) const TIMEOUT: &str = "http_timeout";
pub(super) const CONNECT: &str = "http_connect";
pub(super) const CONNECTION: &str = "http_connection";
pub(super) const UNREADABLE: &str = "http_unreadable";
pub(super) const NO_DESCRIPTOR: &str = "no_file_descriptor";

/// The shortest wait that there is, after a message has waited for as long as a request may take.
const NO_DESCRIPTOR_DELAY: Duration = Duration::from_millis(1);

/// Its text is stored with the message. It does not name the URL.
#[derive(Debug)]
pub(super) enum Missing {
    /// It did not come within this time.
    Late(Duration),
    /// There was no connection, or it failed.
    Failed(legacy::Error),
    /// For this long, the process had no file descriptor for a connection.
    NoDescriptor(Duration),
    /// The request cannot be said in HTTP.
    Unsendable(http::Error),
}

impl Treatments {
    /// The failure if there was no answer.
    pub(super) fn missing(&self, missing: &Missing) -> Result<(), Failure> {
        let (treatment, delay) = match missing {
            // The endpoint had no part in it.
            Missing::NoDescriptor(_) => (Treatment::Defer, Some(NO_DESCRIPTOR_DELAY)),
            Missing::Late(_) | Missing::Failed(_) | Missing::Unsendable(_) => {
                (Treatment::Transient, None)
            }
        };
        self.failure(missing.class().to_owned(), treatment, missing.to_string(), delay)
    }
}

impl Missing {
    pub(super) fn class(&self) -> &'static str {
        match self {
            Self::Late(_) => TIMEOUT,
            Self::NoDescriptor(_) => NO_DESCRIPTOR,
            Self::Failed(error) if error.is_connect() => CONNECT,
            Self::Failed(error) if sources(error).any(is_unreadable) => UNREADABLE,
            Self::Failed(_) | Self::Unsendable(_) => CONNECTION,
        }
    }

    /// Whether there was no connection because there was no file descriptor for it.
    pub(super) fn is_out_of_descriptors(&self) -> bool {
        let Self::Failed(error) = self else { return false };
        // A resolver that cannot open a socket does not say why it fails.
        error.is_connect() && (sources(error).any(is_out_of_files) || has_no_descriptor())
    }

    /// Whether an established connection ended, and not only this request on it.
    pub(super) fn is_lost_connection(&self) -> bool {
        let is_failed = matches!(self, Self::Failed(_)) && self.class() == CONNECTION;
        is_failed && self.http2_errors().all(h2::Error::is_io)
    }

    /// Whether the endpoint says over HTTP/2 that it has not processed the request, or the request
    /// was not sent. On a GOAWAY, h2 fails only the requests after the last stream that it names.
    pub(super) fn is_unprocessed(&self, has_body: bool) -> bool {
        let is_refused = self.http2_errors().any(|error| {
            let is_refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
            error.is_remote() && (error.is_go_away() || is_refused)
        });
        is_refused || self.was_not_sent(has_body)
    }

    /// Whether the connection ended while the request waited to be sent: for its turn, or over
    /// HTTP/2 for a stream, whose number the endpoint may limit. hyper cancels the one, and drops
    /// the other. Its headers may have been sent by then, which is all of it if it has no body.
    fn was_not_sent(&self, has_body: bool) -> bool {
        let Self::Failed(error) = self else { return false };
        let mut errors = sources(error).filter_map(|it| it.downcast_ref::<hyper::Error>());
        errors.any(|error| error.is_canceled() || has_body && error.is_user())
    }

    /// Whether only this request was reset, so that its connection is still usable.
    pub(super) fn is_reset(&self) -> bool {
        self.http2_errors().any(h2::Error::is_reset)
    }

    fn http2_errors(&self) -> impl Iterator<Item = &h2::Error> {
        let error = if let Self::Failed(error) = self { Some(error) } else { None };
        error.into_iter().flat_map(|error| sources(error)).filter_map(|it| it.downcast_ref())
    }
}

fn is_out_of_files(error: &(dyn Error + 'static)) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    let number = error.downcast_ref().and_then(io::Error::raw_os_error);
    matches!(number, Some(ENFILE | EMFILE))
}

fn has_no_descriptor() -> bool {
    File::open("/dev/null").is_err_and(|error| is_out_of_files(&error))
}

/// Whether the endpoint sent what is not HTTP, or what is more than the client reads.
fn is_unreadable(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse)
        || error.downcast_ref::<h2::Error>().is_some_and(h2::Error::is_library)
}

fn sources<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = error.source();
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = match self {
            Self::Late(timeout) => {
                let timeout = humantime::format_duration(*timeout);
                return write!(f, "the endpoint did not answer within {timeout}");
            }
            Self::NoDescriptor(time) => {
                let time = humantime::format_duration(*time);
                return write!(
                    f,
                    "the relay had no file descriptor for a connection within {time}"
                );
            }
            Self::Unsendable(error) => return write!(f, "the request cannot be sent: {error}"),
            Self::Failed(error) => error,
        };
        f.write_str(match self.class() {
            CONNECT => "cannot connect to the endpoint",
            UNREADABLE => "the endpoint's answer cannot be read",
            _ => "the connection to the endpoint ended before its answer",
        })?;
        // The client's own text says only at which of its steps it failed.
        for source in sources(error) {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}
