//! The trouble that copies have with an exchange, and its log lines.

use std::time::{Duration, Instant};

use crate::broker::lane::cause::Trouble;

/// How long an exchange must be without trouble before it is reported as recovered.
const RECOVERED_AFTER: Duration = Duration::from_secs(10);

/// Each trouble is logged once, until the exchange has recovered.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    /// How many copies are in trouble.
    copies: usize,
    logged: Vec<Trouble>,
    /// Since when none is.
    calm_since: Option<Instant>,
}

impl Troubles {
    /// A copy is in trouble; `is_first` if it was not before. `answer` is what the broker said.
    pub(super) fn note(&mut self, exchange: &str, trouble: Trouble, answer: &str, is_first: bool) {
        self.copies += usize::from(is_first);
        self.calm_since = None;
        if !self.logged.contains(&trouble) {
            self.logged.push(trouble);
            let answer = (!answer.is_empty()).then_some(answer);
            let advice = advice(trouble);
            tracing::warn!(
                exchange,
                answer,
                "{advice} Copies are retried until the broker accepts them; their messages stay unacked"
            );
        }
    }

    pub(super) fn one_less(&mut self, now: Instant) {
        self.copies -= 1;
        self.calm_since = (self.copies == 0).then_some(now);
    }

    pub(super) fn look(&mut self, exchange: &str, now: Instant) {
        if self.calm_since.is_some_and(|since| now.saturating_duration_since(since) >= RECOVERED_AFTER) {
            (self.calm_since, self.logged) = (None, Vec::new());
            tracing::info!(exchange, "the broker accepts copies to this exchange again");
        }
    }
}

fn advice(trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::Refused => "the broker refuses copies; is a queue full?",
        Trouble::Forbidden => "copies are not allowed; does the user have write permission on this exchange?",
        Trouble::Missing => "the exchange does not exist; declaring it again if topology is \"declare\".",
        Trouble::Unroutable => "copies are unroutable; do the alternate exchange and the stray queue still exist?",
        Trouble::Unconfirmed => "confirms are late on a live connection; has a quorum queue lost its majority?",
        Trouble::Malformed => "the broker closed the channel or connection because of a copy; retrying it alone.",
        Trouble::NoChannel => "no channel can be opened for copies; is channel_max too low for this service?",
        Trouble::Closed => "the broker closed the channel that carried a copy; see the broker's log.",
    }
}
