//! What an address or a form asks for: a place, and which of its messages. Pure.

use std::time::SystemTime;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::door::Fields;
use rehop_operator::parked::{Filter, Place, parse_time};

/// How many messages a page looks at, unless it is asked for all.
pub(super) const FIRST: u64 = 1_000;

/// The fields of an address that select messages, in the order in which a page writes them.
const FILTERS: [&str; 15] = [
    "reason",
    "class",
    "no_class",
    "error",
    "error_is",
    "no_error",
    "destination",
    "no_destination",
    "key",
    "chain",
    "where",
    "since",
    "until",
    "run",
    "limit",
];

/// Fields whose texts are taken as they are, also with spaces around them.
const EXACT: [&str; 6] = ["reason", "class", "error_is", "destination", "key", "chain"];

/// A field that says that there is none takes the place of the one that says which. An empty field
/// would be a missing one.
const NONE: [(&str, &str); 3] =
    [("class", "no_class"), ("error_is", "no_error"), ("destination", "no_destination")];

/// A place, and which of its messages. Written into an address, it can be sent to a colleague.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Address {
    pub(super) place: Place,
    pub(super) filter: Filter,
    /// Whether all messages are looked at, and not only the first.
    pub(super) all: bool,
    /// The filter's fields as they were written.
    fields: Vec<(&'static str, String)>,
}

impl Address {
    /// # Errors
    ///
    /// When a field cannot be understood, with a text for people.
    pub(super) fn parse(fields: &Fields, queues: &[String]) -> Result<Self, String> {
        let place = match (fields.get("queue"), fields.get("place")) {
            (None, Some("stray")) => Place::Stray,
            (None, Some("discarded")) => Place::Discarded,
            // A queue that nobody has asked for is not looked at: that would declare its parked
            // queue.
            (Some(queue), None) if queues.iter().any(|known| known == queue) => Place::queue(queue),
            (Some(_), None) => {
                return Err("This page does not serve that queue; name it with --queue.".to_owned());
            }
            _ => return Err("The address names no queue.".to_owned()),
        };
        let mut address = Self {
            place,
            filter: Filter::default(),
            all: fields.get("all").is_some(),
            fields: Vec::new(),
        };
        for name in FILTERS {
            let exact = || fields.exact(name).filter(|_| EXACT.contains(&name));
            if let Some(value) = fields.get(name).map(|trimmed| exact().unwrap_or(trimmed)) {
                address.set(name, value)?;
            }
        }
        Ok(address)
    }

    /// The same place without any filter.
    pub(super) fn of(place: Place) -> Self {
        Self { place, filter: Filter::default(), all: false, fields: Vec::new() }
    }

    /// This one with another field of the filter. A value that cannot be understood changes
    /// nothing.
    pub(super) fn with(mut self, name: &'static str, value: &str) -> Self {
        let _ = self.set(name, value);
        self
    }

    /// This one, looking at all messages.
    pub(super) fn at_all(mut self) -> Self {
        self.all = true;
        self
    }

    fn set(&mut self, name: &'static str, value: &str) -> Result<(), String> {
        let (filter, text) = (&mut self.filter, value.to_owned());
        // How long ago it was is written as the time, so that a plan and what is done are about the
        // same messages.
        let written = match name {
            "since" | "until" => match humantime::parse_duration(value) {
                Ok(_) => {
                    humantime::format_rfc3339_millis(parse_time(value, SystemTime::now())?.into())
                        .to_string()
                }
                Err(_) => text.clone(),
            },
            _ => text.clone(),
        };
        match name {
            "reason" => filter.reason = Some(text),
            "class" => filter.class = Some(text),
            "no_class" => filter.class = Some(String::new()),
            "error" => filter.error = Some(text),
            "error_is" => filter.error_is = Some(text),
            "no_error" => filter.error_is = Some(String::new()),
            "destination" => filter.destination = Some(text),
            "no_destination" => filter.destination = Some(String::new()),
            "key" => filter.key = Some(text),
            "chain" => filter.chains = vec![text],
            "run" => filter.run = Some(text),
            "where" => filter.conditions = vec![value.parse()?],
            "since" => filter.since = Some(parse_time(&written, SystemTime::now())?),
            "until" => filter.until = Some(parse_time(&written, SystemTime::now())?),
            _ => {
                filter.limit = Some(
                    value.parse().map_err(|_| format!("{value:?} is not a number of messages."))?,
                )
            }
        }
        let opposite = NONE.iter().find_map(|(some, none)| match name {
            _ if name == *some => Some(*none),
            _ if name == *none => Some(*some),
            _ => None,
        });
        self.fields.retain(|(key, _)| *key != name && Some(*key) != opposite);
        self.fields.push((name, written));
        Ok(())
    }

    /// A field of the filter as it was written.
    pub(super) fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    /// The fields that name the place and the messages, for a form.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let place = match &self.place {
            Place::Queue(queue) => ("queue", queue.clone()),
            Place::Stray => ("place", "stray".to_owned()),
            Place::Discarded => ("place", "discarded".to_owned()),
        };
        let all = self.all.then(|| ("all", "1".to_owned()));
        std::iter::once(place).chain(self.fields.iter().cloned()).chain(all).collect()
    }

    /// The same, as the query of an address.
    pub(super) fn query(&self) -> String {
        let pairs = self.fields().into_iter().map(|(name, value)| {
            format!("{name}={}", utf8_percent_encode(&value, NON_ALPHANUMERIC))
        });
        pairs.collect::<Vec<_>>().join("&")
    }

    /// How many messages are looked at, at most.
    pub(super) fn scan(&self) -> Option<u64> {
        if self.all { None } else { Some(FIRST) }
    }

    /// The filter in words; empty if there is none.
    pub(super) fn in_words(&self) -> String {
        self.fields
            .iter()
            .map(|(name, value)| match name.strip_prefix("no_") {
                Some(what) => format!("no {what}"),
                None => format!("{} {value}", name.replace('_', " ")),
            })
            .collect::<Vec<_>>()
            .join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        Fields(
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        )
    }

    fn parse(pairs: &[(&str, &str)]) -> Result<Address, String> {
        Address::parse(&fields(pairs), &["orders".to_owned(), "a&b=/ü".to_owned()])
    }

    #[test]
    fn an_address_is_the_same_after_it_was_written_and_read() {
        let all = [
            ("queue", "a&b=/ü"),
            ("reason", "exhausted"),
            ("no_class", "1"),
            ("error", "<script> & \"quotes\""),
            ("error_is", " <script> & \"quotes\" "),
            ("destination", "a&b=/ü"),
            ("key", "orders.#"),
            ("chain", "4bf9-00f0"),
            ("where", "body.customer == \"x\""),
            ("since", "2026-11-22T01:02"),
            ("until", "2026-11-22 01:02:03"),
            ("run", "0123"),
            ("limit", "5"),
            ("all", "1"),
        ];
        let address = parse(&all).unwrap();
        let query = address.query();
        assert!(
            query.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'<' && byte != b'"'),
            "{query}"
        );
        let read: Vec<_> = query.split('&').map(|pair| pair.split_once('=').unwrap()).collect();
        let decoded: Vec<_> = read
            .iter()
            .map(|(name, value)| {
                (
                    *name,
                    percent_encoding::percent_decode_str(value).decode_utf8().unwrap().into_owned(),
                )
            })
            .collect();
        let decoded: Vec<_> = decoded.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(parse(&decoded).unwrap(), address);
        assert_eq!((address.filter.limit, address.scan()), (Some(5), None));
        assert_eq!(address.filter.error_is.as_deref(), Some(" <script> & \"quotes\" "));
    }

    #[test]
    fn an_address_can_say_that_there_is_none() {
        let address =
            parse(&[("queue", "orders"), ("class", "io"), ("no_class", "1"), ("no_error", "1")])
                .unwrap();
        assert_eq!(
            (address.filter.class.as_deref(), address.filter.error_is.as_deref()),
            (Some(""), Some(""))
        );
        assert_eq!(
            (address.in_words().as_str(), address.field("class")),
            ("no class, no error", "")
        );
        let address = address.with("class", "io").with("no_destination", "1");
        assert_eq!(
            (address.filter.class.as_deref(), address.filter.destination.as_deref()),
            (Some("io"), Some(""))
        );
        assert_eq!(address.in_words(), "no error, class io, no destination");
    }

    #[test]
    fn a_field_that_cannot_be_understood_is_an_error_in_words() {
        for (wrong, says) in [
            (&[("queue", "other")][..], "--queue"),
            (&[], "names no queue"),
            (&[("queue", "orders"), ("place", "stray")], "names no queue"),
            (&[("place", "everywhere")], "names no queue"),
            (&[("queue", "orders"), ("limit", "many")], "not a number"),
            (&[("queue", "orders"), ("until", "old")], "2h"),
            (&[("queue", "orders"), ("since", "yesterday")], "not a time"),
            (&[("queue", "orders"), ("where", "x")], "not a condition"),
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(says), "{wrong:?}: {error}");
        }
    }

    #[test]
    fn how_long_ago_it_was_is_a_fixed_time_from_then_on() {
        let long_ago = parse(&[("queue", "orders"), ("since", "100y")]).unwrap();
        assert_eq!(long_ago.field("since"), "1970-01-01T00:00:00.000Z");
        let address = parse(&[("queue", "orders"), ("since", "2h"), ("until", "1h")]).unwrap();
        let fields = address.fields();
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert!(!fields.contains(&("since", "2h")), "{fields:?}");
        assert_eq!(parse(&fields).unwrap(), address);
        assert!(address.filter.since < address.filter.until);
    }

    #[test]
    fn another_value_of_a_field_replaces_the_one_before() {
        let address = Address::of(Place::Stray)
            .with("reason", "expired")
            .with("reason", "exhausted")
            .with("limit", "x");
        assert_eq!(
            (address.query().as_str(), address.filter.limit),
            ("place=stray&reason=exhausted", None)
        );
        assert_eq!((address.field("reason"), address.field("class")), ("exhausted", ""));
        assert_eq!(address.in_words(), "reason exhausted");
        assert_eq!(address.at_all().query(), "place=stray&reason=exhausted&all=1");
    }
}
