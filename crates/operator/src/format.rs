//! Numbers, sizes, times and bytes as text, alike in the tool and on the page. Pure.

use std::time::SystemTime;

use rehop::Timestamp;

/// With commas between the thousands.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many of something, such as `1 wait` or `2 waits`.
pub fn counted(number: u64, one: &str) -> String {
    format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A size in bytes: small multiples of a unit with one digit after the point.
pub fn size(bytes: u64) -> String {
    let of = |unit: u64, name: &str| {
        let multiple = bytes as f64 / unit as f64;
        if multiple < 9.95 {
            format!("{multiple:.1} {name}")
        } else {
            format!("{multiple:.0} {name}")
        }
    };
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => of(1024, "KiB"),
        _ => of(1_048_576, "MiB"),
    }
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A time in UTC, such as `2026-11-22T01:02:03Z`. One before 1970 or after 9999, which `humantime`
/// cannot format, is given in milliseconds.
pub fn time(at: Timestamp) -> String {
    /// The last second of the year 9999.
    const LAST: i64 = 253_402_300_799_000;
    if !(0..=LAST).contains(&at.as_millis()) {
        return at.to_string();
    }
    humantime::format_rfc3339_seconds(SystemTime::from(at)).to_string()
}

/// The text on one line: characters that a terminal obeys or that nobody sees are escaped.
pub fn line(text: &str) -> String {
    visible(text, &[])
}

/// The same with line ends and tabs as they are.
pub fn lines(text: &str) -> String {
    visible(text, &['\n', '\t'])
}

fn visible(text: &str, kept: &[char]) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut safe, c| {
        if is_unsafe(c) && !kept.contains(&c) {
            safe.extend(c.escape_default())
        } else {
            safe.push(c)
        }
        safe
    })
}

/// Control characters, and those that reorder or hide what is around them.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_sizes_are_readable() {
        assert_eq!(
            [0, 999, 1_000, 48_211, 1_234_567].map(count),
            ["0", "999", "1,000", "48,211", "1,234,567"]
        );
        assert_eq!(
            [0, 1, 2_000].map(|number| counted(number, "wait")),
            ["0 waits", "1 wait", "2,000 waits"]
        );
        let sizes = [0, 1_023, 1_536, 10_188, 10_240, 1_048_576, 33_554_432].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.5 KiB", "9.9 KiB", "10 KiB", "1.0 MiB", "32 MiB"]);
    }

    #[test]
    fn bytes_have_two_digits_each() {
        assert_eq!((hex(&[]), hex(&[0, 0x0a, 0xff])), (String::new(), "000aff".to_owned()));
    }

    #[test]
    fn any_time_can_be_shown() {
        assert_eq!(time(Timestamp::from_millis(1_700_000_000_999)), "2023-11-14T22:13:20Z");
        assert_eq!(time(Timestamp::from_millis(253_402_300_799_000)), "9999-12-31T23:59:59Z");
        for millis in [i64::MIN, -1, 253_402_300_800_000, i64::MAX] {
            assert_eq!(
                time(Timestamp::from_millis(millis)),
                format!("{millis} ms since the Unix epoch")
            );
        }
    }
}
