//! The text shown for a short string that is not UTF-8.

use std::fmt::Write as _;

/// The stand-in of these bytes, or `None` if they are UTF-8: `\xFC` replaces each invalid byte, and
/// `\x5C` a backslash. The same bytes always give the same stand-in. It has a backslash and at most
/// 255 bytes; a longer one is cut, and ends in `…\` and a fingerprint of all bytes.
pub(crate) fn stand_in(bytes: &[u8]) -> Option<String> {
    if std::str::from_utf8(bytes).is_ok() {
        return None;
    }
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\x5C"));
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02X}");
        }
    }
    if text.len() > MAX_SHORT_STRING {
        // Keeps long strings distinct that differ only after the cut.
        let tail = format!("…\\{:016X}", fingerprint(bytes));
        let mut end = MAX_SHORT_STRING - tail.len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.replace_range(end.., &tail);
    }
    Some(text)
}

/// Whether a text may be a stand-in.
pub(crate) fn may_be_stand_in(text: &[u8]) -> bool {
    text.contains(&b'\\')
}

/// The most bytes in an AMQP short string.
pub(crate) const MAX_SHORT_STRING: usize = 255;

/// FNV-1a, which must stay the same in all versions: parked messages contain stand-ins.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{MAX_SHORT_STRING, may_be_stand_in, stand_in};

    #[test]
    fn text_needs_no_stand_in_and_other_bytes_are_escaped() {
        for text in ["", "order-17", "Müller", "back\\slash", "\0"] {
            assert_eq!(stand_in(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(stand_in(b"M\xFCller").as_deref(), Some("M\\xFCller"));
        assert_eq!(stand_in(b"\x8F\xC3").as_deref(), Some("\\x8F\\xC3"));
    }

    #[test]
    fn long_bytes_that_differ_at_their_end_have_different_stand_ins() {
        let (one, other) =
            ([[0xFF; 254].as_slice(), b"1"].concat(), [[0xFF; 254].as_slice(), b"2"].concat());
        assert_ne!(stand_in(&one), stand_in(&other));
    }

    proptest! {
        #![proptest_config(crate::inputs::inputs(256))]

        #[test]
        fn a_stand_in_is_a_short_string_with_a_backslash(bytes in prop::collection::vec(any::<u8>(), 0..=MAX_SHORT_STRING)) {
            prop_assert_eq!(stand_in(&bytes).is_none(), std::str::from_utf8(&bytes).is_ok());
            if let Some(text) = stand_in(&bytes) {
                prop_assert!(text.len() <= MAX_SHORT_STRING && may_be_stand_in(text.as_bytes()), "{text}");
            }
        }
    }
}
