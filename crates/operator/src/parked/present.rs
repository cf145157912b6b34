//! What a queue has already, so that an import leaves it out. Pure.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// How often a queue has each message, by chain and body.
#[derive(Debug, Default)]
pub(super) struct Present(HashMap<u64, u32>);

impl Present {
    pub(super) fn add(&mut self, identity: u64) {
        *self.0.entry(identity).or_default() += 1;
    }

    /// Removes one such message. False if none is left.
    pub(super) fn take(&mut self, identity: u64) -> bool {
        let Some(left) = self.0.get_mut(&identity).filter(|left| **left > 0) else { return false };
        *left -= 1;
        true
    }
}

/// What tells messages apart.
pub(super) fn identity(chain: &str, body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (chain, body).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_that_is_there_stands_for_one() {
        let (one, other) = (identity("chain", b"one"), identity("chain", b"other"));
        let mut present = Present::default();
        present.add(one);
        present.add(one);
        assert_eq!([one, other, one, one].map(|identity| present.take(identity)), [true, false, true, false]);
        assert_ne!(identity("chain-2", b"one"), one);
    }
}
