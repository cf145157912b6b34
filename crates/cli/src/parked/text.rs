//! Texts of messages, for a terminal. Anyone may have written them, so nothing in them may command
//! it.

use rehop::Timestamp;
use rehop_operator::format;
use rehop_operator::format::is_unsafe;
pub(crate) use rehop_operator::format::line;
use serde::Serialize;

/// A line of at most so many characters.
pub(super) fn short(text: &str, characters: usize) -> String {
    let safe = line(text);
    if safe.chars().count() <= characters {
        return safe;
    }
    safe.chars().take(characters.saturating_sub(1)).chain(['…']).collect()
}

/// JSON that is safe to print: JSON itself escapes only some control characters. The others occur
/// only inside strings.
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

/// A time, if there is one.
pub(super) fn time(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "-".to_owned(), format::time)
}

/// How long ago, in its two largest units.
pub(super) fn age(at: Option<Timestamp>, now: Timestamp) -> String {
    let Some(at) = at else { return "-".to_owned() };
    let age = now.since(at);
    let whole = std::time::Duration::from_secs(age.as_secs());
    let text = humantime::format_duration(whole).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
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
        assert_eq!(format::lines("a\tb\n\u{1b}c"), "a\tb\n\\u{1b}c");
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
    fn any_time_and_any_age_can_be_shown() {
        let at = |millis| Some(Timestamp::from_millis(millis));
        assert_eq!(
            (time(None).as_str(), time(at(1_700_000_000_999)).as_str()),
            ("-", "2023-11-14T22:13:20Z")
        );
        for millis in [i64::MIN, -1, 253_402_300_800_000, i64::MAX] {
            age(at(millis), Timestamp::from_millis(0));
        }
    }
}
