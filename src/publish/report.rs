//! The log lines of publishing.

use super::outbox::Report;
use crate::broker::lane::cause::Trouble;

pub(super) fn log(report: &Report) {
    match report {
        Report::Trouble { exchange, trouble, text } => {
            let advice = match trouble {
                Trouble::Refused => "the broker refuses copies; is a queue full?",
                Trouble::Forbidden => "copies are not allowed; does the user have write permission on this exchange?",
                Trouble::Missing => "the exchange does not exist; declaring it again if topology is \"declare\".",
                Trouble::Unroutable => {
                    "copies are unroutable; do the alternate exchange and the stray queue still exist?"
                }
                Trouble::Unconfirmed => "confirms are late on a live connection; has a quorum queue lost its majority?",
                Trouble::Malformed => {
                    "the broker closed the channel or connection because of a copy; retrying it alone."
                }
                Trouble::Closed => "the broker closed the channel that carried a copy; see the broker's log.",
            };
            let answer = (!text.is_empty()).then_some(text.as_str());
            tracing::warn!(%exchange, answer, "{advice} Copies are retried until the broker accepts them; their messages stay unacked");
        }
        Report::Recovered { exchange } => tracing::info!(%exchange, "the broker accepts copies to this exchange again"),
        Report::Doubt { text, unconfirmed } => {
            tracing::warn!(cause = %text, unconfirmed, "the broker closed a publishing channel; trying each copy that was unconfirmed on it alone");
        }
        Report::Disconnected { text, unconfirmed } => {
            tracing::warn!(cause = %text, unconfirmed, "cannot publish; reconnecting");
        }
    }
}
