//! The broker's answers, as the task passes them on.

use super::{CopyId, LaneId};
use crate::broker::lane::cause::Cause;

#[derive(Debug, Clone)]
pub(super) enum Answer {
    Opened(LaneId),
    NotOpened(LaneId),
    Ack(LaneId, CopyId),
    Nack(LaneId, CopyId),
    Return(LaneId, CopyId),
    LaneClosed(LaneId, CopyId, Cause),
    ConnectionClosed(CopyId, Cause),
    Probed,
    Connected,
    NotConnected,
    Repaired,
}

impl Answer {
    /// Whose answer it is.
    pub(super) fn copy(&self) -> Option<CopyId> {
        match self {
            Self::Ack(_, id) | Self::Nack(_, id) | Self::Return(_, id) | Self::LaneClosed(_, id, _) => Some(*id),
            Self::Opened(_)
            | Self::NotOpened(_)
            | Self::ConnectionClosed(..)
            | Self::Probed
            | Self::Connected
            | Self::NotConnected
            | Self::Repaired => None,
        }
    }

    /// In which of the two queues the task finds it. Answers of one queue come in order; those of the other may overtake them.
    pub(super) fn queue(&self) -> usize {
        usize::from(self.copy().is_none())
    }
}
