//! Selects messages. Pure.

use std::str::FromStr;
use std::time::SystemTime;

use serde_json::Value;

use crate::parked::group::normalise;
use crate::parked::json_path::JsonPath;
use crate::parked::message::ParkedMessage;
use rehop::Timestamp;

/// Selects messages. Whatever is not set does not matter; a message must pass everything that is
/// set.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Filter {
    /// Why it was parked, such as `exhausted`.
    pub reason: Option<String>,
    /// The class of its last failure. Empty: it has none.
    pub class: Option<String>,
    /// A text that its last failure's contains, as it is or normalised.
    pub error: Option<String>,
    /// The whole text of its last failure, as it is or normalised. Empty: it has none.
    pub error_is: Option<String>,
    /// The work queue that a replay would send it to. Empty: nothing tells it.
    pub destination: Option<String>,
    /// A pattern for its original routing key, as of a topic exchange: `*` is one word and `#` any
    /// number of them.
    pub key: Option<String>,
    /// Parked at this time or later. Messages that do not say when they were parked do not pass.
    pub since: Option<Timestamp>,
    /// Parked before this time.
    pub until: Option<Timestamp>,
    /// The ids of chains, any of which passes. Empty: any chain.
    pub chains: Vec<String>,
    /// Conditions on the body or the headers.
    pub conditions: Vec<Condition>,
    /// Sent back by this replay, and parked again; or discarded by this discard or edit.
    pub run: Option<String>,
    /// At most this many messages, the oldest first. Those that an operation leaves where they are
    /// count, too.
    pub limit: Option<u64>,
}

impl Filter {
    /// Messages with one of these chain ids.
    pub fn chain(chain: impl Into<String>) -> Self {
        Self { chains: vec![chain.into()], ..Self::default() }
    }

    /// The messages of this run: those that a discard or an edit has moved to the discarded queue,
    /// or that a replay has sent back and that parked again.
    pub fn run(run: impl Into<String>) -> Self {
        Self { run: Some(run.into()), ..Self::default() }
    }

    /// Whether nothing says which messages are meant. `limit` does not: it takes the oldest of any
    /// kind.
    pub fn has_no_criteria(&self) -> bool {
        // Every text contains an empty one.
        let error = self.error.clone().filter(String::is_empty);
        *self == Self { limit: self.limit, error, ..Self::default() }
    }

    /// Whether a message passes, `limit` aside.
    pub(crate) fn passes(&self, message: &ParkedMessage, content: &Content<'_>) -> bool {
        let is = |wanted: &Option<String>, value: Option<&str>| {
            wanted.as_deref().is_none_or(|it| value == Some(it))
        };
        let parked_at = |test: &dyn Fn(Timestamp) -> bool| message.parked_at.is_some_and(test);
        is(&self.reason, Some(&message.reason))
            && is_or_none(&self.class, message.class.as_deref())
            && is_or_none(&self.destination, message.destination.as_deref())
            && (is(&self.run, message.replay_run.as_deref())
                || is(&self.run, message.discard_run.as_deref()))
            && self.error_is.as_ref().is_none_or(|text| is_error(message.error.as_deref(), text))
            && self.error.as_ref().is_none_or(|part| has_error(message.error.as_deref(), part))
            && self.key.as_ref().is_none_or(|pattern| key_matches(pattern, &message.routing_key))
            && self.since.is_none_or(|since| parked_at(&|at| at >= since))
            && self.until.is_none_or(|until| parked_at(&|at| at < until))
            && (self.chains.is_empty() || self.chains.contains(&message.chain))
            && (self.conditions.is_empty() || content.meet(&self.conditions))
    }

    /// Which messages these are, for the log. What messages contain stays out of it, so conditions
    /// and texts of errors are only counted.
    pub(super) fn in_log(&self) -> String {
        let millis = |at: Option<Timestamp>| at.map(|at| at.as_millis().to_string());
        let number = |number: usize| (number > 0).then(|| number.to_string());
        let parts = [
            ("reason", self.reason.clone()),
            ("class", self.class.clone()),
            ("destination", self.destination.clone()),
            ("key", self.key.clone()),
            ("since_ms", millis(self.since)),
            ("until_ms", millis(self.until)),
            ("chains", (!self.chains.is_empty()).then(|| self.chains.join(","))),
            ("errors", number(self.error.iter().chain(&self.error_is).count())),
            ("conditions", number(self.conditions.len())),
            ("run", self.run.clone()),
            ("limit", self.limit.map(|limit| limit.to_string())),
        ];
        let set = parts.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        let set = set.collect::<Vec<_>>().join(" ");
        if set.is_empty() { "all".to_owned() } else { set }
    }
}

/// A time as people write it, for [`Filter::since`] and [`Filter::until`]: a date with or without a
/// time, in UTC, such as `2026-11-20T08:00:00Z`, `2026-11-20 08:00` or `2026-11-20`; or how long
/// before `now` it was, such as `2h`, but not before 1970.
///
/// # Errors
///
/// When the text is neither, with a text for people.
pub fn parse_time(text: &str, now: SystemTime) -> Result<Timestamp, String> {
    let full = match text.len() {
        10 => format!("{text}T00:00:00"),
        16 => format!("{text}:00"),
        _ => text.to_owned(),
    };
    if let Ok(time) = humantime::parse_rfc3339_weak(&full) {
        return Ok(time.into());
    }
    let ago = humantime::parse_duration(text).ok().and_then(|ago| now.checked_sub(ago));
    // No text is written for a time before.
    let ago = ago.map(|at| at.max(SystemTime::UNIX_EPOCH));
    ago.map(Timestamp::from).ok_or_else(|| {
        format!("{text:?} is not a time such as 2026-11-20T08:00:00Z, or 2h for two hours ago")
    })
}

/// An empty text stands for none.
fn is_or_none(wanted: &Option<String>, value: Option<&str>) -> bool {
    wanted.as_deref().is_none_or(|wanted| value.unwrap_or_default() == wanted)
}

fn is_error(error: Option<&str>, text: &str) -> bool {
    let error = error.unwrap_or_default();
    error == text || (!text.is_empty() && normalise(error) == text)
}

fn has_error(error: Option<&str>, part: &str) -> bool {
    let Some(error) = error else { return part.is_empty() };
    error.contains(part) || normalise(error).contains(part)
}

/// As a topic exchange matches: words are separated by dots.
fn key_matches(pattern: &str, key: &str) -> bool {
    let key: Vec<_> = key.split('.').collect();
    // Which beginnings of the key the pattern's words so far match. No pattern takes longer than
    // its length times the key's.
    let mut matched = vec![false; key.len() + 1];
    matched[0] = true;
    for word in pattern.split('.') {
        let mut next = vec![false; key.len() + 1];
        if word == "#" {
            let mut reached = false;
            for (index, before) in matched.iter().enumerate() {
                reached |= before;
                next[index] = reached;
            }
        } else {
            for (index, part) in key.iter().enumerate() {
                next[index + 1] = matched[index] && (word == "*" || word == *part);
            }
        }
        matched = next;
    }
    matched[key.len()]
}

/// A message's body and headers, parsed when the first condition asks for them.
pub(crate) struct Content<'a> {
    body: &'a [u8],
    headers: &'a dyn Fn() -> Value,
}

impl<'a> Content<'a> {
    pub(crate) fn new(body: &'a [u8], headers: &'a dyn Fn() -> Value) -> Self {
        Self { body, headers }
    }

    fn meet(&self, conditions: &[Condition]) -> bool {
        let body: Value = if conditions.iter().any(|condition| condition.part == Part::Body) {
            serde_json::from_slice(self.body).unwrap_or(Value::Null)
        } else {
            Value::Null
        };
        let headers = if conditions.iter().any(|condition| condition.part == Part::Header) {
            (self.headers)()
        } else {
            Value::Null
        };
        conditions.iter().all(|condition| {
            let document = if condition.part == Part::Body { &body } else { &headers };
            condition.path.any(document, &|seen| seen == &condition.value) == condition.is_equal
        })
    }
}

/// A condition such as `body.customer == "x"`, `body.items[0].id != 7` or `header.tenant == "a"`.
/// The right side is JSON; a text need not be quoted. `*` in a path is any one field or element,
/// `**` any number of them. A body that is not JSON has no fields.
///
/// ```
/// let condition: rehop_operator::parked::Condition = "body.customer == \"x\"".parse()?;
/// assert!("customer = x".parse::<rehop_operator::parked::Condition>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    part: Part,
    path: JsonPath,
    is_equal: bool,
    value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Body,
    Header,
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a condition such as body.customer == \"x\"");
        // The operator that comes first; the value may contain the other one.
        let at = [("==", true), ("!=", false)]
            .into_iter()
            .filter_map(|(sign, is)| Some((text.find(sign)?, is)))
            .min();
        let (at, is_equal) = at.ok_or_else(wrong)?;
        let (path, value) = (text[..at].trim(), text[at + 2..].trim());
        let (part, path) = if let Some(path) = path.strip_prefix("body") {
            (Part::Body, path)
        } else if let Some(path) = path.strip_prefix("header") {
            (Part::Header, path)
        } else {
            return Err(wrong());
        };
        if !path.starts_with(['.', '[']) {
            return Err(wrong());
        }
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        Ok(Self { part, path: path.strip_prefix('.').unwrap_or(path).parse()?, is_equal, value })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::inputs::inputs;
    use crate::parked::samples::sample;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn passes(filter: &Filter, body: &str) -> bool {
        let [replay_run, discard_run] = ["replay", "discard"].map(|run| Some(run.to_owned()));
        let parked_at = Some(Timestamp::from_millis(NOW.as_millis() - 60_000));
        let message = ParkedMessage { parked_at, replay_run, discard_run, ..sample() };
        let headers = || json!({"tenant": "a"});
        filter.passes(&message, &Content::new(body.as_bytes(), &headers))
    }

    #[test]
    fn everything_that_is_set_must_match() {
        let all = Filter::default();
        assert!(
            passes(&all, "")
                && all.has_no_criteria()
                && Filter { limit: Some(1), ..all.clone() }.has_no_criteria()
        );
        let text = |text: &str| Some(text.to_owned());
        let ago = |seconds: i64| Some(Timestamp::from_millis(NOW.as_millis() - seconds * 1000));
        let condition = |text: &str| vec![text.parse().unwrap()];
        for (filter, expected) in [
            (Filter { reason: text("exhausted"), ..all.clone() }, true),
            (Filter { reason: text("permanent"), ..all.clone() }, false),
            (Filter { class: text("http_503"), ..all.clone() }, true),
            (Filter { class: text("other"), ..all.clone() }, false),
            (Filter { error: text("order 7"), ..all.clone() }, true),
            (Filter { error: text("order <n>"), ..all.clone() }, true),
            (Filter { error: text("order 8"), ..all.clone() }, false),
            (Filter { class: text(""), ..all.clone() }, false),
            (Filter { error_is: text("order 7 is not there"), ..all.clone() }, true),
            (Filter { error_is: text("order <n> is not there"), ..all.clone() }, true),
            (Filter { error_is: text("order <n> is not"), ..all.clone() }, false),
            (Filter { error_is: text(""), ..all.clone() }, false),
            (Filter { destination: text("orders"), ..all.clone() }, true),
            (Filter { destination: text("order"), ..all.clone() }, false),
            (Filter { destination: text(""), ..all.clone() }, false),
            (Filter::run("replay"), true),
            (Filter::run("discard"), true),
            (Filter::run("another"), false),
            (Filter { key: text("order.*"), ..all.clone() }, true),
            (Filter { key: text("invoice.#"), ..all.clone() }, false),
            (Filter { since: ago(61), until: ago(59), ..all.clone() }, true),
            (Filter { since: ago(59), ..all.clone() }, false),
            (Filter { until: ago(60), ..all.clone() }, false),
            (Filter::chain("chain-7"), true),
            (Filter::chain("chain-8"), false),
            (Filter { conditions: condition("body.customer == \"x\""), ..all.clone() }, true),
            (Filter { conditions: condition("body.customer == x"), ..all.clone() }, true),
            (Filter { conditions: condition("body.customer != \"x\""), ..all.clone() }, false),
            (Filter { conditions: condition("body.items[0].id == 7"), ..all.clone() }, true),
            (Filter { conditions: condition("header.tenant == \"a\""), ..all.clone() }, true),
            (Filter { conditions: condition("header.tenant == \"b\""), ..all.clone() }, false),
            (Filter { reason: text("exhausted"), class: text("other"), ..all.clone() }, false),
        ] {
            assert_eq!(
                passes(&filter, r#"{"customer": "x", "items": [{"id": 7}]}"#),
                expected,
                "{filter:?}"
            );
            assert!(!filter.has_no_criteria(), "{filter:?}");
        }
        assert!(!passes(&Filter { conditions: condition("body.a == 1"), ..all }, "not JSON"));
    }

    #[test]
    fn a_time_is_written_as_a_date_or_as_how_long_ago_it_was() {
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
        let millis = |text| parse_time(text, now).map(Timestamp::as_millis);
        assert_eq!(millis("2023-11-14T22:13:20Z"), Ok(1_700_000_000_000));
        assert_eq!(millis("2023-11-14 22:13:20"), Ok(1_700_000_000_000));
        assert_eq!(millis("2023-11-14T22:13"), Ok(1_699_999_980_000));
        assert_eq!(millis("2h"), Ok(1_699_992_800_000));
        assert_eq!(millis("100y"), Ok(0), "not before 1970");
        assert_eq!(millis("2023-11-14"), Ok(1_699_920_000_000));
        for wrong in ["", "yesterday", "2023-11", "20231114T0", "7"] {
            assert!(millis(wrong).unwrap_err().contains("is not a time"), "{wrong}");
        }
    }

    #[test]
    fn a_filter_can_say_that_there_is_no_class_no_error_and_no_destination() {
        let none = Some(String::new());
        let bare = ParkedMessage { class: None, error: None, destination: None, ..sample() };
        for filter in [
            Filter { class: none.clone(), ..Filter::default() },
            Filter { error_is: none.clone(), ..Filter::default() },
            Filter { destination: none.clone(), ..Filter::default() },
        ] {
            let passes = |message| filter.passes(message, &Content::new(b"", &|| Value::Null));
            assert_eq!((passes(&bare), passes(&sample())), (true, false), "{filter:?}");
        }
    }

    #[test]
    fn keys_are_matched_as_a_topic_exchange_does() {
        for (pattern, key, expected) in [
            ("order.created", "order.created", true),
            ("order.*", "order.created", true),
            ("order.*", "order", false),
            ("order.*", "order.created.eu", false),
            ("order.#", "order", true),
            ("order.#", "order.created.eu", true),
            ("#", "", true),
            ("#.eu", "order.created.eu", true),
            ("*.created.#", "order.created", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(key_matches(pattern, key), expected, "{pattern} {key}");
        }
    }

    #[test]
    fn a_malformed_condition_is_refused() {
        for text in [
            "",
            "body",
            "body.a",
            "body == 1",
            "customer == 1",
            "body.a = 1",
            "bodyx == 1",
            "body.. == 1",
        ] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
        assert!("body.a == \"!=\"".parse::<Condition>().unwrap().is_equal);
    }

    #[test]
    fn a_selection_is_told_without_what_messages_contain() {
        assert_eq!(Filter::default().in_log(), "all");
        let filter = Filter {
            class: Some("http_503".to_owned()),
            error: Some("no customer Ada".to_owned()),
            since: Some(Timestamp::from_millis(1_700_000_000_000)),
            conditions: vec!["body.customer == \"Ada\"".parse().unwrap()],
            limit: Some(7),
            ..Filter::chain("5f0c")
        };
        assert_eq!(
            filter.in_log(),
            "class=http_503 since_ms=1700000000000 chains=5f0c errors=1 conditions=1 limit=7"
        );
    }

    proptest! {
        #![proptest_config(inputs(1_000))]

        #[test]
        fn no_text_makes_a_condition_or_a_pattern_panic(text in ".{0,60}", key in "[a.#*]{0,255}") {
            let _ = text.parse::<Condition>();
            let _ = key_matches(&key, &text);
            let _ = key_matches(&text, &key);
        }
    }
}
