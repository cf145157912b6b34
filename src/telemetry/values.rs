//! The values of a metric's attribute, kept few.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::retry::ledger::cut;
use crate::wire::stand_in::MAX_SHORT_STRING;

/// How many values are told apart. Without a limit, a service that puts ids where a name is meant
/// would create series without bound.
const MOST: usize = 50;
/// The semantic conventions' name for the rest.
const OTHER: &str = "_OTHER";

/// The values that an attribute had so far. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Values(Arc<Mutex<HashSet<String>>>);

impl Values {
    /// This value, cut off where a name in AMQP ends, or `_OTHER` if there are many others already.
    pub fn bounded(&self, value: &str) -> String {
        let value = cut(value, MAX_SHORT_STRING);
        let mut values = lock(&self.0);
        if values.contains(value) || (values.len() < MOST && values.insert(value.to_owned())) {
            return value.to_owned();
        }
        OTHER.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_values_are_kept_and_the_rest_share_one() {
        let values = Values::default();
        for number in 0..MOST {
            assert_eq!(values.bounded(&number.to_string()), number.to_string());
        }
        assert_eq!(values.bounded("one more"), OTHER);
        assert_eq!(values.clone().bounded("0"), "0");
    }

    #[test]
    fn a_long_value_is_cut_off_between_two_characters() {
        let long = "\u{e9}".repeat(5_000);
        assert_eq!(Values::default().bounded(&long), "\u{e9}".repeat(127));
    }
}
