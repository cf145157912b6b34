//! A delivery, as a process of the model holds it.

use std::time::Instant;

use super::Delivery;
use crate::consume::copy_deadline::CopyTime;
use crate::consume::inbox::Fingerprint;

#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) delivery: Delivery,
    pub(super) key: u64,
    /// How often the message had come back.
    pub(super) count: u32,
    /// How many attempts have failed since it arrived. A hold does not reset it.
    pub(super) failed: u32,
    /// Soon after this the broker takes it back, as far as its process knew when it came.
    pub(super) until: Instant,
    /// For how long the confirm of its copy is awaited, if it ends with one.
    pub(super) copy_time: CopyTime,
    /// It should wait here, but cannot, and may not go back either, because it is at its limit. So it ends with a copy, to be parked.
    pub(super) is_exhausted: bool,
}

impl Fingerprint for Taken {
    fn fingerprint(&self) -> u64 {
        self.delivery.message as u64
    }

    fn order_key(&self) -> u64 {
        self.key
    }
}
