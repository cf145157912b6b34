//! What the outbox asks for.

use super::{CopyId, LaneId};
use crate::broker::lane::cause::Trouble;

/// What the outbox wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Give the connection up, if there is one, and open another. Answered by `connected` or `connection_lost`.
    Connect,
    /// Find out whether the connection is alive. Answered by `probed`, or not.
    Probe,
    /// Answered by `lane_opened` or `lane_closed`, or not.
    OpenLane(LaneId),
    CloseLane(LaneId),
    /// `again` when it was sent before.
    Send {
        lane: LaneId,
        id: CopyId,
        again: bool,
    },
    /// Declare the topology again. Answered by `repaired`.
    Repair,
    Confirmed(CopyId),
    Unpublishable(CopyId, String),
    Report(Report),
}

/// A change that an operator wants to know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    /// From now on copies to this exchange wait.
    Trouble { exchange: String, trouble: Trouble, text: String },
    /// No copy to this exchange has been in trouble for a while.
    Recovered { exchange: String },
    /// The broker closed the lane of an exchange, and did not blame the exchange.
    Doubt { text: String, unconfirmed: usize },
    /// The connection is gone or cannot be made.
    Disconnected { text: String, unconfirmed: usize },
}
