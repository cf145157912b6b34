//! How many messages a subscription may bring at a time. Pure.

/// How many bytes of bodies may be on their way to this process, and again as many on their way from it.
pub(super) const BYTES_UNDER_WAY: u64 = 64 * 1024 * 1024;
/// The first subscription brings one message. The second brings this many, or as many as are moved at a time, unless the first message
/// shows that these would be too large.
const SECOND: u64 = 256;

/// How many messages the next subscription may bring. One message first, for its delivery count and its size; then as many as are
/// wanted and memory allows, by the average size of those that were `taken`. `moving`: how many are moved at a time, and how many have
/// stayed.
pub(super) fn prefetch(
    subscriptions: usize,
    wanted: u64,
    moving: Option<(u64, u64)>,
    (taken, bytes): (u64, u64),
) -> u16 {
    let most = match subscriptions {
        0 => 1,
        1 => moving.map_or(0, |(at_once, _)| at_once).max(SECOND),
        _ => u64::MAX,
    };
    let moving = moving.map_or(u64::MAX, |(at_once, kept)| at_once.max(kept / 4));
    let in_memory = BYTES_UNDER_WAY / (bytes / taken.max(1)).max(1);
    u16::try_from(most.min(wanted).min(moving).min(in_memory)).unwrap_or(u16::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_brings_no_more_than_memory_allows_but_always_one_message() {
        const ALL: u64 = 100_000;
        const MIB: u64 = 1024 * 1024;
        for (subscriptions, wanted, moving, taken, expected) in [
            (0, ALL, None, (0, 0), 1),
            (1, ALL, None, (1, 0), 256),
            (1, 7, None, (1, 1_000), 7),
            (1, ALL, None, (1, 16 * MIB), 4),
            (1, ALL, None, (1, 100 * MIB), 1),
            (2, ALL, None, (257, 257 * 1_024), u16::MAX),
            (2, ALL, None, (257, 257 * MIB), 64),
            (1, ALL, Some((500, 0)), (1, 1_000), 500),
            (1, ALL, Some((500, 0)), (1, 16 * MIB), 4),
            (1, ALL, Some((100, 0)), (1, 1_000), 100),
            (2, ALL, Some((100, 4_000)), (4_100, 4_100), 1_000),
            (2, 0, None, (1, 1), 1),
        ] {
            assert_eq!(
                prefetch(subscriptions, wanted, moving, taken),
                expected,
                "{subscriptions} {moving:?} {taken:?}"
            );
        }
    }
}
