//! What travels.

use lapin::Error;
use rehop_simulator::{ChannelNumber, ConnectionId, Method, Sent, Time};

/// Something that travels. Parcels that are due at the same time arrive in the order in which they
/// were sent.
pub(super) struct Parcel {
    pub(super) due: Time,
    pub(super) number: u64,
    pub(super) load: Load,
}

pub(super) enum Load {
    ToBroker(ConnectionId, ChannelNumber, Method),
    ToClient(Sent),
    /// The client has asked for the end of the connection.
    Close(ConnectionId),
    BrokerNotices(ConnectionId),
    ClientNotices(ConnectionId, Error),
}

impl Ord for Parcel {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl PartialOrd for Parcel {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Parcel {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Parcel {}
