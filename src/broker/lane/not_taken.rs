//! Why a copy was not taken.

use super::cause::Cause;

/// Why the broker did not take a copy, or may not have taken it.
///
/// A lane reports the first four; only whoever opens lanes can know the other two.
#[derive(Debug, Clone)]
pub enum NotTaken {
    /// The broker nacked it, as a full queue does.
    Refused,
    /// It found no queue, so the broker returned it.
    Returned,
    /// It was not sent: its lane had ended, or the broker blocked the connection.
    NotSent,
    /// Its lane ended while it was under way. It may be stored.
    LaneClosed(Cause),
    /// The same, because its connection ended.
    Disconnected(Cause),
    /// No lane could be opened for it.
    NoLane(Cause),
}

impl NotTaken {
    /// Why its lane ended, or could not be opened.
    pub(crate) fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Refused | Self::Returned | Self::NotSent => None,
            Self::LaneClosed(cause) | Self::Disconnected(cause) | Self::NoLane(cause) => {
                Some(cause)
            }
        }
    }

    /// Whether its exchange is missing, or what that routes to.
    pub(crate) fn asks_for_repair(&self) -> bool {
        match self {
            Self::Returned => true,
            Self::LaneClosed(cause) => cause.code == Some(404),
            Self::Refused | Self::NotSent | Self::Disconnected(_) | Self::NoLane(_) => false,
        }
    }
}
