//! Texts of messages, for a terminal. Anyone may have written them, so nothing in them may command it.

use std::time::SystemTime;

use rehop::Timestamp;
use serde::Serialize;

/// The text on one line: characters that a terminal obeys or does not show are escaped.
pub(crate) fn line(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut safe, c| {
        if is_unsafe(c) {
            safe.extend(c.escape_default())
        } else {
            safe.push(c)
        }
        safe
    })
}

/// The same with line ends and tabs as they are.
pub(super) fn lines(text: &str) -> String {
    text.split('\n')
        .map(|part| part.split('\t').map(line).collect::<Vec<_>>().join("\t"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A line of at most so many characters.
pub(super) fn short(text: &str, characters: usize) -> String {
    let safe = line(text);
    if safe.chars().count() <= characters {
        return safe;
    }
    safe.chars().take(characters.saturating_sub(1)).chain(['…']).collect()
}

/// JSON that is safe to print: JSON itself escapes only some control characters. The others occur only inside strings.
pub(super) fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(escape_json(&serde_json::to_string_pretty(value)?))
}

/// The same on one line.
pub(super) fn json_line(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(escape_json(&serde_json::to_string(value)?))
}

fn escape_json(json: &str) -> String {
    use std::fmt::Write;
    json.chars().fold(String::with_capacity(json.len()), |mut safe, c| {
        if c != '\n' && is_unsafe(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
        safe
    })
}

/// Control characters, and those that reorder or hide what is around them.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// A time. One before 1970 or after 9999, which `humantime` cannot format, is given in milliseconds.
pub(super) fn time(at: Option<Timestamp>) -> String {
    /// The last second of the year 9999.
    const LAST: i64 = 253_402_300_799_000;
    match at {
        None => "-".to_owned(),
        Some(at) if !(0..=LAST).contains(&at.as_millis()) => at.to_string(),
        Some(at) => humantime::format_rfc3339_seconds(SystemTime::from(at)).to_string(),
    }
}

/// How long ago, in its two largest units.
pub(super) fn age(at: Option<Timestamp>, now: Timestamp) -> String {
    let Some(at) = at else { return "-".to_owned() };
    let age = now.since(at);
    let whole = std::time::Duration::from_secs(age.as_secs());
    let text = humantime::format_duration(whole).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// A number with separators between its thousands.
pub(super) fn number(number: u64) -> String {
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

/// A number of bytes.
pub(super) fn bytes(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} B"),
        10_000..=9_999_999 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1024 / 1024),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        for (text, safe) in [
            ("plain äöü 語", "plain äöü 語"),
            ("\u{1b}[31mred\u{7}", "\\u{1b}[31mred\\u{7}"),
            ("c1 \u{9b}2J", "c1 \\u{9b}2J"),
            ("two\r\nlines", "two\\r\\nlines"),
            ("\u{202e}desrever", "\\u{202e}desrever"),
            ("\u{200b}\u{feff}\u{7f}", "\\u{200b}\\u{feff}\\u{7f}"),
        ] {
            assert_eq!(line(text), safe);
        }
        assert_eq!(lines("a\tb\n\u{1b}c"), "a\tb\n\\u{1b}c");
        assert_eq!((short("abcdef", 4), short("abc", 4)), ("abc…".to_owned(), "abc".to_owned()));
    }

    #[test]
    fn json_is_safe_and_still_says_the_same() {
        let value = serde_json::json!({"a\u{9b}": "\u{7f}\u{202e}\u{e0041}\n\u{1b}"});
        for text in [json(&value).unwrap(), json_line(&value).unwrap()] {
            assert!(!text.chars().any(|c| c != '\n' && is_unsafe(c)), "{text}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        }
    }

    #[test]
    fn any_time_can_be_shown() {
        let at = |millis| Some(Timestamp::from_millis(millis));
        assert_eq!((time(None).as_str(), time(at(1_700_000_000_999)).as_str()), ("-", "2023-11-14T22:13:20Z"));
        assert_eq!(time(at(253_402_300_799_000)), "9999-12-31T23:59:59Z");
        for millis in [i64::MIN, -1, 253_402_300_800_000, i64::MAX] {
            assert_eq!(time(at(millis)), format!("{millis} ms"));
            age(at(millis), Timestamp::from_millis(0));
        }
    }

    #[test]
    fn numbers_and_sizes_are_readable() {
        assert_eq!([0, 999, 1_000, 48_211, 1_234_567].map(number), ["0", "999", "1,000", "48,211", "1,234,567"]);
        assert_eq!([12, 10_240, 33_554_432].map(bytes), ["12 B", "10 KiB", "32 MiB"]);
    }
}
