//! Exchanges and their bindings: which queues a message goes to.

use std::collections::BTreeMap;

use lapin::types::{AMQPValue, FieldTable};

use crate::headers::{is_same_value, string};
use crate::message::Message;
use crate::names::Name;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExchangeType {
    Direct,
    Fanout,
    Topic,
    Headers,
}

impl ExchangeType {
    pub(crate) const ALL: [Self; 4] = [Self::Direct, Self::Fanout, Self::Topic, Self::Headers];

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Fanout => "fanout",
            Self::Topic => "topic",
            Self::Headers => "headers",
        }
    }
}

/// Where a binding leads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Destination {
    Queue(Name),
    Exchange(Name),
}

#[derive(Debug, Clone)]
struct Binding {
    destination: Destination,
    arguments: FieldTable,
}

#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) kind: ExchangeType,
    pub(crate) is_durable: bool,
    pub(crate) arguments: FieldTable,
    /// By their routing key.
    bindings: BTreeMap<Name, Vec<Binding>>,
}

impl Exchange {
    pub(crate) fn new(kind: ExchangeType, is_durable: bool, arguments: FieldTable) -> Self {
        Self { kind, is_durable, arguments, bindings: BTreeMap::new() }
    }

    /// Where a message goes that has no binding here.
    pub(crate) fn alternate(&self) -> Option<&str> {
        string(&self.arguments, "alternate-exchange")
    }

    pub(crate) fn is_bound(&self) -> bool {
        !self.bindings.is_empty()
    }

    pub(crate) fn bind(&mut self, destination: Destination, key: Name, arguments: FieldTable) {
        let bindings = self.bindings.entry(key).or_default();
        if !bindings
            .iter()
            .any(|other| other.destination == destination && other.arguments == arguments)
        {
            bindings.push(Binding { destination, arguments });
        }
    }

    pub(crate) fn unbind(&mut self, destination: &Destination, key: &str, arguments: &FieldTable) {
        self.retain(|other_key, other| {
            other_key != key || other.destination != *destination || other.arguments != *arguments
        });
    }

    /// The destination is gone.
    pub(crate) fn unbind_all(&mut self, destination: &Destination) {
        self.retain(|_, other| other.destination != *destination);
    }

    fn retain(&mut self, is_kept: impl Fn(&str, &Binding) -> bool) {
        self.bindings.retain(|key, bindings| {
            bindings.retain(|binding| is_kept(key, binding));
            !bindings.is_empty()
        });
    }

    /// Calls back with each destination whose binding matches.
    pub(crate) fn route<'a>(&'a self, message: &Message, mut visit: impl FnMut(&'a Destination)) {
        let headers = message.properties.headers().as_ref();
        for (key, bindings) in &self.bindings {
            let is_match = |binding: &Binding| match self.kind {
                ExchangeType::Direct => message.routing_keys.contains(key),
                ExchangeType::Fanout => true,
                ExchangeType::Topic => {
                    message.routing_keys.iter().any(|routing_key| matches_topic(key, routing_key))
                }
                ExchangeType::Headers => matches_headers(&binding.arguments, headers),
            };
            bindings
                .iter()
                .filter(|binding| is_match(binding))
                .for_each(|binding| visit(&binding.destination));
        }
    }
}

/// `*` stands for one word, `#` for any number of them.
fn matches_topic(pattern: &str, key: &str) -> bool {
    // An empty key has no words, rather than an empty one.
    let key: Vec<_> = if key.is_empty() { Vec::new() } else { key.split('.').collect() };
    matches_words(&pattern.split('.').collect::<Vec<_>>(), &key)
}

fn matches_words(pattern: &[&str], key: &[&str]) -> bool {
    match (pattern, key) {
        ([], []) => true,
        (["#", rest @ ..], _) => (0..=key.len())
            .any(|skipped| matches_words(rest, key.get(skipped..).unwrap_or_default())),
        (["*", pattern @ ..], [_, key @ ..]) => matches_words(pattern, key),
        ([word, pattern @ ..], [other, key @ ..]) => word == other && matches_words(pattern, key),
        _ => false,
    }
}

/// Whether the headers match a binding's arguments. Names that begin with `x-` do not take part,
/// except in `all-with-x` and `any-with-x` (all versions).
fn matches_headers(arguments: &FieldTable, headers: Option<&FieldTable>) -> bool {
    let kind = string(arguments, "x-match").unwrap_or("all");
    let is_with_x = kind.ends_with("-with-x");
    let mut compared = arguments
        .into_iter()
        .filter(|(key, _)| {
            key.as_str() != "x-match" && (is_with_x || !key.as_str().starts_with("x-"))
        })
        .map(|(key, wanted)| {
            let found = headers.and_then(|headers| headers.inner().get(key.as_str()));
            // A binding without a value asks for the presence of the header.
            found.is_some_and(|found| *wanted == AMQPValue::Void || is_same_value(wanted, found))
        });
    if kind.starts_with("any") {
        compared.any(|is_match| is_match)
    } else {
        compared.all(|is_match| is_match)
    }
}
