//! The trouble that copies have with an exchange, and its log lines.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::broker::lane::NotTaken;
use crate::broker::lane::{Blame, Cause};
use crate::clock;
use crate::lock::lock;

/// How long an exchange must be without trouble before it is logged as recovered.
const RECOVERED_AFTER: Duration = Duration::from_secs(10);

/// How often to call [`Troubles::log_recovery`].
pub(super) const CHECK_RECOVERY_EVERY: Duration = Duration::from_secs(5);

/// The trouble that copies have with one exchange. Each line is logged once, until the exchange has
/// recovered.
pub(super) struct Troubles {
    exchange: String,
    episode: Mutex<Episode>,
}

#[derive(Debug, Default)]
struct Episode {
    /// How many copies are in trouble.
    copies: usize,
    logged: Vec<String>,
    /// Since when none is.
    calm_since: Option<Instant>,
    /// Whether the broker has accepted a copy since the last trouble. Those in trouble may only
    /// have been given up.
    has_accepted: bool,
}

impl Troubles {
    pub(super) fn new(exchange: String) -> Self {
        Self { exchange, episode: Mutex::default() }
    }

    /// Logs it if the exchange has recovered.
    pub(super) fn log_recovery(&self) {
        if self.take_recovery() {
            tracing::info!(
                exchange = self.exchange,
                "the broker accepts copies to this exchange again"
            );
        }
    }

    /// Whether the exchange has recovered. If so, the next trouble is news.
    fn take_recovery(&self) -> bool {
        let mut episode = lock(&self.episode);
        let is_calm =
            episode.calm_since.is_some_and(|since| clock::elapsed(since) >= RECOVERED_AFTER);
        let has_recovered = is_calm && episode.has_accepted;
        if has_recovered {
            *episode = Episode::default();
        }
        has_recovered
    }

    /// The broker has accepted a copy.
    pub(super) fn accepted(&self) {
        lock(&self.episode).has_accepted = true;
    }
}

/// Counts a copy as in trouble, from its first trouble until this is dropped.
pub(super) struct CopyTrouble<'a> {
    of: &'a Troubles,
    is_counted: bool,
}

impl<'a> CopyTrouble<'a> {
    pub(super) fn new(of: &'a Troubles) -> Self {
        Self { of, is_counted: false }
    }

    /// It was not taken. Logs what that means, and what the broker said.
    pub(super) fn not_taken(&mut self, why: &NotTaken) {
        self.note(advice(why), why.cause().map(|cause| cause.problem.text()));
    }

    /// Its confirm is late although the connection is alive, as with a quorum queue that has no
    /// majority.
    pub(super) fn unconfirmed(&mut self) {
        let what = "confirms are late on a live connection; has a quorum queue lost its majority?";
        self.note(retried(what), None);
    }

    /// Logs this, if it is new for the exchange.
    fn note(&mut self, line: String, answer: Option<&str>) {
        let mut episode = lock(&self.of.episode);
        episode.copies += usize::from(!std::mem::replace(&mut self.is_counted, true));
        (episode.calm_since, episode.has_accepted) = (None, false);
        if !episode.logged.contains(&line) {
            tracing::warn!(exchange = self.of.exchange, answer, "{line}");
            episode.logged.push(line);
        }
    }
}

impl Drop for CopyTrouble<'_> {
    fn drop(&mut self) {
        if self.is_counted {
            let mut episode = lock(&self.of.episode);
            episode.copies -= 1;
            episode.calm_since = (episode.copies == 0).then(clock::now);
        }
    }
}

/// What it is, what to look at, and what becomes of the copies.
fn advice(why: &NotTaken) -> String {
    let blame = why.cause().map(Cause::blame);
    retried(match why {
        NotTaken::Nacked => "the broker refuses copies; is a queue full?",
        NotTaken::Returned => {
            "copies are unroutable; do the alternate exchange and the stray queue still exist?"
        }
        NotTaken::NoLane(_) => {
            "no channel can be opened for copies; is a limit of channels reached?"
        }
        NotTaken::LaneClosed(cause) if cause.code == Some(403) => {
            "copies are not allowed; does the user have write permission on this exchange?"
        }
        NotTaken::LaneClosed(cause) if cause.code == Some(404) => {
            "the exchange does not exist; declaring it again if topology is \"declare\"."
        }
        NotTaken::LaneClosed(_) | NotTaken::Disconnected(_) if blame == Some(Blame::Copy) => {
            return "the broker closed the channel or connection because of a copy; it is retried \
                    alone, and given up if this happens three times"
                .to_owned();
        }
        // Copies that were not sent are in no trouble.
        NotTaken::LaneClosed(_) | NotTaken::Disconnected(_) | NotTaken::NotSent => {
            "the broker closed the channel or connection that carried a copy; see the broker's log."
        }
    })
}

fn retried(what: &str) -> String {
    format!("{what} Copies are retried until the broker accepts them; their messages stay unacked")
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_exchange_has_recovered_when_a_copy_was_accepted_and_not_when_those_in_trouble_end()
    {
        let troubles = Troubles::new("x".to_owned());
        troubles.accepted();
        let mut copy = CopyTrouble::new(&troubles);
        copy.not_taken(&NotTaken::Nacked);
        drop(copy);
        advance(2 * RECOVERED_AFTER).await;
        assert!(!troubles.take_recovery(), "it was only given up");
        troubles.accepted();
        assert!(troubles.take_recovery());
        advance(2 * RECOVERED_AFTER).await;
        assert!(!troubles.take_recovery(), "it is said once");
        let mut copy = CopyTrouble::new(&troubles);
        copy.not_taken(&NotTaken::Nacked);
        troubles.accepted();
        assert!(!troubles.take_recovery(), "one is still refused");
        drop(copy);
        advance(RECOVERED_AFTER).await;
        assert!(troubles.take_recovery());
    }
    #[test]
    fn what_is_said_of_a_copy_that_was_not_taken_depends_on_what_the_broker_said() {
        let cause = |code| Cause { code, ..Cause::of("") };
        let closed = |code| NotTaken::LaneClosed(cause(Some(code)));
        for (why, says) in [
            (NotTaken::Nacked, "is a queue full?"),
            (NotTaken::Returned, "copies are unroutable"),
            (NotTaken::NoLane(cause(Some(504))), "no channel can be opened"),
            (closed(403), "copies are not allowed"),
            (closed(404), "the exchange does not exist"),
            (closed(406), "because of a copy"),
            (closed(320), "see the broker's log"),
            (closed(541), "see the broker's log"),
            (NotTaken::Disconnected(cause(Some(501))), "because of a copy"),
            (NotTaken::Disconnected(cause(Some(541))), "see the broker's log"),
        ] {
            let line = advice(&why);
            assert!(line.contains(says), "{why:?}: {line}");
            let is_retried =
                line.ends_with("until the broker accepts them; their messages stay unacked");
            assert_eq!(is_retried, says != "because of a copy", "{line}");
        }
    }
}
