//! How far jitter has spread the waits of messages that failed together. Pure.

use std::ops::RangeInclusive;

use serde::Serialize;

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Spread {
    /// In milliseconds, the shortest first.
    waits: Vec<u64>,
    least: u64,
    most: u64,
    is_within: bool,
}

impl Spread {
    pub(crate) fn of(mut waits: Vec<u64>, bounds: RangeInclusive<u64>) -> Self {
        waits.sort_unstable();
        let is_within = waits.iter().all(|wait| bounds.contains(wait));
        Self { waits, least: *bounds.start(), most: *bounds.end(), is_within }
    }

    pub(crate) fn text(&self) -> String {
        let Self { waits, least, most, is_within } = self;
        let shown: Vec<_> = waits.iter().map(u64::to_string).collect();
        let is_within = if *is_within { "each within" } else { "NOT each within" };
        format!(
            "Jitter: {} refunds failed together, and waited for {} ms, {is_within} {least} to {most} ms.",
            waits.len(),
            shown.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_sorted_and_compared_with_their_bounds() {
        let spread = |waits: &[u64]| Spread::of(waits.to_vec(), 800..=1600).text();
        assert_eq!(
            spread(&[1600, 800, 900]),
            "Jitter: 3 refunds failed together, and waited for 800, 900, 1600 ms, each within 800 to 1600 ms."
        );
        assert!(spread(&[799]).contains("NOT each within"));
        assert!(spread(&[1601]).contains("NOT each within"));
    }
}
