//! Groups messages that failed alike, in bounded memory, and makes the texts of one kind of error
//! alike: whatever differs from message to message becomes a placeholder. Pure.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::Serialize;

use crate::parked::message::ParkedMessage;
use rehop::Timestamp;
use rehop::internals::cut;

/// Messages that failed alike: the same reason, class, normalised error and destination.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Group {
    /// What its messages have in common.
    #[serde(flatten)]
    pub kind: MessageKind,
    /// How many they are.
    pub count: u64,
    /// The sum of their bodies' sizes.
    pub bytes: u64,
    /// When the first was parked.
    pub oldest: Option<Timestamp>,
    /// When the last was parked.
    pub newest: Option<Timestamp>,
    /// How many were replayed before, and parked again.
    pub replayed_before: u64,
    /// The ids of the first few chains.
    pub samples: Vec<String>,
}

/// What the messages of a group have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
pub struct MessageKind {
    /// Why they were parked.
    pub reason: String,
    /// The class of the last failure.
    pub class: Option<String>,
    /// The text of the last failure, [normalised](crate::parked::normalise).
    pub error: Option<String>,
    /// The work queue that a replay would send them to.
    pub destination: Option<String>,
}

impl MessageKind {
    /// Whether this stands for all kinds that are not told apart.
    #[doc(hidden)]
    pub fn is_rest(&self) -> bool {
        self.reason == REST
    }

    pub(crate) fn of(message: &ParkedMessage) -> Self {
        Self {
            reason: message.reason.clone(),
            class: message.class.clone(),
            error: message.error.as_deref().map(normalise),
            destination: message.destination.clone(),
        }
    }
}

/// How many groups are told apart. Further messages are counted in one group for the rest.
pub(crate) const MAX_GROUPS: usize = 1_000;
/// The reason of the group for the rest.
const REST: &str = "(more kinds)";
const SAMPLES: usize = 3;

/// Counts messages by group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Groups(BTreeMap<MessageKind, Group>);

/// One message of a group.
pub(crate) struct Member<'a> {
    pub(crate) chain: &'a str,
    pub(crate) size: u64,
    pub(crate) parked_at: Option<Timestamp>,
    pub(crate) was_replayed: bool,
}

impl Groups {
    pub(crate) fn add(&mut self, message: &ParkedMessage) {
        let member = Member {
            chain: &message.chain,
            size: message.size,
            parked_at: message.parked_at,
            was_replayed: message.replays > 0,
        };
        self.add_member(MessageKind::of(message), &member);
    }

    pub(crate) fn add_member(&mut self, mut kind: MessageKind, member: &Member<'_>) {
        if self.0.len() >= MAX_GROUPS && !self.0.contains_key(&kind) {
            kind = MessageKind {
                reason: REST.to_owned(),
                class: None,
                error: None,
                destination: None,
            };
        }
        let group = self.0.entry(kind).or_insert_with_key(|kind| Group {
            kind: kind.clone(),
            count: 0,
            bytes: 0,
            oldest: None,
            newest: None,
            replayed_before: 0,
            samples: Vec::new(),
        });
        group.count += 1;
        group.bytes += member.size;
        group.replayed_before += u64::from(member.was_replayed);
        if let Some(at) = member.parked_at {
            group.oldest = Some(group.oldest.map_or(at, |oldest| oldest.min(at)));
            group.newest = Some(group.newest.map_or(at, |newest| newest.max(at)));
        }
        if group.samples.len() < SAMPLES {
            group.samples.push(member.chain.to_owned());
        }
    }

    /// The groups, the largest first.
    pub(crate) fn into_sorted(self) -> Vec<Group> {
        let mut groups: Vec<_> = self.0.into_values().collect();
        groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.kind.cmp(&b.kind)));
        groups
    }
}

/// A normalised text has at most this many bytes.
const MAX_BYTES: usize = 200;

/// The text of an error without what differs from message to message: quoted text becomes `'…'`,
/// ids and hexadecimal numbers of at least eight digits become `<id>`, and numbers become `<n>`,
/// but for the status of an HTTP answer that its reason follows. White space and control characters
/// become single spaces.
///
/// ```
/// use rehop_operator::parked::normalise;
/// assert_eq!(normalise("order 4711 not found"), normalise("order 12 not found"));
/// assert_eq!(normalise("no customer \"Ada\" in 10.0.0.7"), "no customer '…' in <n>.<n>.<n>.<n>");
/// assert_eq!(normalise("order 7: 503 Service Unavailable"), "order <n>: 503 Service Unavailable");
/// ```
pub fn normalise(error: &str) -> String {
    let mut normal = String::with_capacity(error.len().min(MAX_BYTES));
    let mut rest = error;
    while let Some(first) = rest.chars().next() {
        if normal.len() > MAX_BYTES {
            break;
        }
        if let Some(after) = quoted(rest, first, normal.chars().last()) {
            normal.push_str("'…'");
            rest = after;
        } else if let Some(status) = http_status(rest) {
            normal.push_str(status);
            rest = &rest[status.len()..];
        } else if first.is_alphanumeric() {
            let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            let (word, after) = split_word(&rest[..end], &rest[end..], rest);
            push_word(&mut normal, word);
            rest = after;
        } else {
            rest = &rest[first.len_utf8()..];
            match first {
                c if c.is_whitespace() || c.is_control() => {
                    if !normal.is_empty() && !normal.ends_with(' ') {
                        normal.push(' ');
                    }
                }
                c => normal.push(c),
            }
        }
    }
    if normal.len() > MAX_BYTES {
        return format!("{}…", cut(&normal, MAX_BYTES));
    }
    normal.truncate(normal.trim_end().len());
    normal
}

/// What comes after a quoted text that begins here. An apostrophe inside a word quotes nothing.
fn quoted(text: &str, first: char, before: Option<char>) -> Option<&str> {
    let close = match first {
        '"' | '`' => first,
        '\'' if !before.is_some_and(char::is_alphanumeric) => '\'',
        '\u{201c}' => '\u{201d}',
        _ => return None,
    };
    let inner = &text[first.len_utf8()..];
    let end = inner.find(close)?;
    Some(&inner[end + close.len_utf8()..])
}

/// The status of an HTTP answer that begins here, without its reason: one with which a server does
/// not do what it is asked for, written as the relay and many clients write it.
fn http_status(text: &str) -> Option<&str> {
    let (number, _) = text.split_at_checked(3)?;
    let status = number.parse::<StatusCode>().ok().filter(|status| status.as_u16() >= 300)?;
    let after = text.strip_prefix(&status.to_string())?;
    (!after.starts_with(char::is_alphanumeric)).then_some(number)
}

/// Hyphens hold ids together, as in UUIDs.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

/// A word with hyphens is one only if it is an id; otherwise its first part is a word of its own.
fn split_word<'a>(word: &'a str, after: &'a str, all: &'a str) -> (&'a str, &'a str) {
    if is_id(word) || !word.contains('-') {
        return (word, after);
    }
    let end = word.find('-').filter(|end| *end > 0).unwrap_or(word.len());
    (&word[..end], &all[end..])
}

/// Hexadecimal digits with at least one decimal digit among them, or letters and digits mixed, long
/// enough to be no word.
fn is_id(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let is_hex = word.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let letters = word.bytes().filter(u8::is_ascii_alphabetic).count();
    (word.len() >= 8 && is_hex && digits > 0 && letters > 0)
        || (word.starts_with("0x") && word.len() > 2)
        || (word.len() >= 12 && digits >= 3 && letters >= 3 && !word.contains('_'))
}

fn push_word(normal: &mut String, word: &str) {
    if is_id(word) {
        return normal.push_str("<id>");
    }
    let mut in_number = false;
    for c in word.chars() {
        match (c.is_numeric(), in_number) {
            (true, false) => normal.push_str("<n>"),
            (true, true) => {}
            (false, _) => normal.push(c),
        }
        in_number = c.is_numeric();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::inputs::{inputs, texts};
    use crate::parked::samples::sample;

    fn parked(error: &str, at: i64) -> ParkedMessage {
        ParkedMessage {
            error: Some(error.to_owned()),
            parked_at: Some(Timestamp::from_millis(at)),
            ..sample()
        }
    }

    #[test]
    fn messages_that_failed_alike_are_one_group_and_the_largest_comes_first() {
        let mut groups = Groups::default();
        groups.add(&parked("no customer 9", 30));
        for (number, at) in [(1, 50), (2, 20), (3, 40), (4, 60)] {
            groups.add(&parked(&format!("order {number} failed"), at));
        }
        groups.add(&ParkedMessage { replays: 2, ..parked("order 5 failed", 10) });
        let groups = groups.into_sorted();
        let [first, second] = &groups[..] else { panic!("{groups:?}") };
        assert_eq!(
            (first.kind.error.as_deref(), first.count, first.bytes),
            (Some("order <n> failed"), 5, 500)
        );
        let at = Timestamp::from_millis;
        assert_eq!(
            (first.oldest, first.newest, first.replayed_before),
            (Some(at(10)), Some(at(60)), 1)
        );
        assert_eq!((first.samples.len(), second.count), (3, 1));
    }

    #[test]
    fn messages_of_another_destination_are_another_group() {
        let mut groups = Groups::default();
        groups.add(&sample());
        groups.add(&ParkedMessage { destination: None, ..sample() });
        assert_eq!(groups.into_sorted().len(), 2);
    }

    #[test]
    fn the_number_of_groups_is_bounded_and_no_message_goes_uncounted() {
        let mut groups = Groups::default();
        for number in 0..2_000u32 {
            let letters: String = number
                .to_string()
                .chars()
                .map(|digit| char::from(b'a' + digit as u8 - b'0'))
                .collect();
            groups.add(&parked(&letters, 1));
        }
        let groups = groups.into_sorted();
        assert_eq!(
            (groups.len(), groups.iter().map(|group| group.count).sum::<u64>()),
            (MAX_GROUPS + 1, 2_000)
        );
        assert_eq!((groups[0].kind.reason.as_str(), groups[0].count), (REST, 1_000));
    }

    #[test]
    fn texts_that_differ_in_numbers_ids_and_quotes_are_alike() {
        for (error, normal) in [
            ("order 4711 not found", "order <n> not found"),
            ("timeout after 3.5s", "timeout after <n>.<n>s"),
            ("no row 4bf92f3577b34da6a3ce929d0e0e4736", "no row <id>"),
            ("id 123e4567-e89b-12d3-a456-426614174000 is taken", "id <id> is taken"),
            ("at 0x7ffeaa", "at <id>"),
            ("cannot parse \"Ada\"", "cannot parse '…'"),
            ("cannot parse 'Ada' or `Bob`", "cannot parse '…' or '…'"),
            ("cannot parse \u{201c}Ada\u{201d}", "cannot parse '…'"),
            ("can't open customer's file", "can't open customer's file"),
            (
                "the endpoint answered 503 Service Unavailable",
                "the endpoint answered 503 Service Unavailable",
            ),
            ("error (418 I'm a teapot) for 7", "error (418 I'm a teapot) for <n>"),
            ("answered 599 <unknown status code>", "answered 599 <unknown status code>"),
            ("answered 1503 Service Unavailable", "answered <n> Service Unavailable"),
            ("404 Not Founded, 503", "<n> Not Founded, <n>"),
            ("read-only transaction", "read-only transaction"),
            ("line\n\tbreak \u{1b}[31mred", "line break [<n>mred"),
            ("customer cus_NffrFeUfNV2Hib", "customer cus_NffrFeUfNV<n>Hib"),
            ("an open \" quote 7", "an open \" quote <n>"),
            ("", ""),
        ] {
            assert_eq!(normalise(error), normal, "{error:?}");
        }
    }

    #[test]
    fn an_id_mixes_digits_and_letters_and_is_too_long_for_a_word() {
        for (word, normal) in [
            // Hexadecimal, with or without hyphens.
            ("4bf92f35", "<id>"),
            ("4bf9-2f35", "<id>"),
            ("4bf92f3", "<n>bf<n>f<n>"),
            ("deadbeef", "deadbeef"),
            ("2024-05-01", "<n>-<n>-<n>"),
            ("0x", "<n>x"),
            // Of any letters.
            ("NffrFeUfN123", "<id>"),
            ("123456789xyz", "<id>"),
            ("NffrFeUf123", "NffrFeUf<n>"),
            ("NffrFeUfNV12", "NffrFeUfNV<n>"),
            ("1234567890xy", "<n>xy"),
            ("Nffr_eUfN123", "Nffr_eUfN<n>"),
            // Only a part of the word is one.
            ("pre-0x7f", "pre-<id>"),
        ] {
            assert_eq!(normalise(word), normal, "{word}");
        }
    }

    #[test]
    fn a_long_text_is_cut() {
        let normal = normalise(&"word ".repeat(1_000));
        assert!(normal.len() < MAX_BYTES + 16 && normal.ends_with('…'), "{normal}");
        let [fits, is_too_long] = [MAX_BYTES, MAX_BYTES + 1].map(|length| "x".repeat(length));
        assert_eq!(normalise(&fits), fits);
        assert_eq!(normalise(&is_too_long), fits + "…");
    }

    proptest! {
        #![proptest_config(inputs(1_000))]

        #[test]
        fn any_text_is_normalised_to_one_short_line_without_control_characters(text in texts(600)) {
            let normal = normalise(&text);
            prop_assert!(normal.len() <= MAX_BYTES + '…'.len_utf8());
            prop_assert!(!normal.chars().any(char::is_control), "{:?}", normal);
        }

        #[test]
        fn the_number_in_an_error_does_not_matter(one: u32, other: u32) {
            prop_assert_eq!(normalise(&format!("order {one} failed")), normalise(&format!("order {other} failed")));
        }
    }
}
