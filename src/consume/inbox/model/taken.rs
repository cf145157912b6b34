//! A delivery, as a process of the model holds it.

use super::Channel;
use crate::consume::inbox::Fingerprint;

#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) message: usize,
    pub(super) key: u64,
    pub(super) channel: Channel,
    /// How often the message had come back.
    pub(super) count: u32,
    /// How many attempts have failed since it arrived. A hold does not reset it.
    pub(super) failed: u32,
}

impl Fingerprint for Taken {
    fn fingerprint(&self) -> u64 {
        self.message as u64
    }

    fn order_key(&self) -> u64 {
        self.key
    }
}
