//! Which messages a binding takes, by what is known of their routing keys.

use serde_json::{Map, Value};

use super::observed::BindingDetails;

/// What is known of the routing keys of some messages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Keys {
    /// All are this one.
    One(String),
    /// All match this pattern of a topic exchange.
    Like(String),
    /// Nothing.
    Any,
}

/// How many of some messages a binding takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Share {
    /// None of them.
    Nothing,
    /// Those with the right routing key or headers, if there are any.
    Part,
    /// All of them.
    All,
}

impl Keys {
    /// The keys of the messages that come by this binding of an exchange of this type.
    pub(super) fn by(kind: &str, binding: &BindingDetails) -> Self {
        match kind {
            "direct" => Self::One(binding.routing_key.clone()),
            "topic" => Self::Like(binding.routing_key.clone()),
            _ => Self::Any,
        }
    }

    /// The keys of those messages among these that such a binding takes.
    pub(super) fn taken(&self, kind: &str, binding: &BindingDetails, share: Share) -> Self {
        match Self::by(kind, binding) {
            narrower @ (Self::One(_) | Self::Like(_)) if share == Share::Part => narrower,
            Self::One(_) | Self::Like(_) | Self::Any => self.clone(),
        }
    }
}

/// How many of the messages with these keys a binding of an exchange of this type takes.
pub(super) fn share(kind: &str, binding: &BindingDetails, keys: &Keys) -> Share {
    let bound = binding.routing_key.as_str();
    match (kind, keys) {
        ("fanout", _) => Share::All,
        ("direct", Keys::One(key)) => if_so(key == bound, Share::All),
        ("direct", Keys::Like(pattern)) => if_so(overlap(pattern, bound), Share::Part),
        ("topic", _) if bound == "#" => Share::All,
        ("topic", Keys::One(key)) => if_so(overlap(bound, key), Share::All),
        ("topic", Keys::Like(pattern)) if pattern == bound => Share::All,
        ("topic", Keys::Like(pattern)) => if_so(overlap(bound, pattern), Share::Part),
        ("headers", _) => by_headers(&binding.arguments),
        // Nothing is known of the keys, or of what a plugin's exchange does with them.
        _ => Share::Part,
    }
}

fn if_so(is_so: bool, share: Share) -> Share {
    if is_so { share } else { Share::Nothing }
}

/// No headers are known. Those whose names begin with `x-` only count where the binding says so
/// (3.10, 4.0 and 4.3).
fn by_headers(arguments: &Map<String, Value>) -> Share {
    let kind = arguments.get("x-match").and_then(Value::as_str).unwrap_or("all");
    let counts =
        |name: &String| name != "x-match" && (kind.ends_with("-with-x") || !name.starts_with("x-"));
    match arguments.keys().any(counts) {
        true => Share::Part,
        false => if_so(kind.starts_with("all"), Share::All),
    }
}

/// Whether a routing key can match both of these patterns of topic exchanges: `*` stands for a
/// word, and `#` for any number of words.
fn overlap(one: &str, other: &str) -> bool {
    let (one, other) = (words(one), words(other));
    // Whether what is left of both patterns from here on overlaps; from the ends back, so that it
    // takes no longer the more `#` there are.
    let mut rest = vec![vec![false; other.len() + 1]; one.len() + 1];
    for at in (0..=one.len()).rev() {
        for by in (0..=other.len()).rev() {
            rest[at][by] = match (one.get(at), other.get(by)) {
                (None, None) => true,
                (Some(&"#"), word) => rest[at + 1][by] || word.is_some() && rest[at][by + 1],
                (word, Some(&"#")) => rest[at][by + 1] || word.is_some() && rest[at + 1][by],
                (Some(word), Some(same)) => {
                    (word == same || *word == "*" || *same == "*") && rest[at + 1][by + 1]
                }
                (None, Some(_)) | (Some(_), None) => false,
            };
        }
    }
    rest[0][0]
}

/// An empty routing key has no words.
fn words(pattern: &str) -> Vec<&str> {
    if pattern.is_empty() { Vec::new() } else { pattern.split('.').collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bound(routing_key: &str, arguments: Value) -> BindingDetails {
        serde_json::from_value(json!({ "routing_key": routing_key, "arguments": arguments }))
            .unwrap()
    }

    #[test]
    fn two_patterns_overlap_if_a_key_matches_both() {
        let check = |one: &str, other: &str, expected: bool| {
            assert_eq!(overlap(one, other), expected, "{one:?} and {other:?}");
            assert_eq!(overlap(other, one), expected, "{other:?} and {one:?}");
        };
        check("order.created", "order.created", true);
        check("order.created", "order.*", true);
        check("order.created", "*.*", true);
        check("order.created", "order", false);
        check("order.created", "order.*.*", false);
        check("order.created", "order.#", true);
        check("order", "order.#", true);
        check("order.created", "#.created", true);
        check("order.created.eu", "order.#.eu", true);
        check("order.*", "*.created", true);
        check("order.*", "invoice.*", false);
        check("order.#", "#.created", true);
        check("#.a", "#.b", false);
        check("a.#", "#.a", true);
        check("#", "", true);
        check("*", "", false);
        check("", "", true);
        let many = ["#"; 120].join(".");
        check(&format!("{many}.a"), &format!("{many}.b"), false);
    }

    #[test]
    fn a_binding_takes_all_a_part_or_none_of_the_messages_with_some_keys() {
        let (one, like) =
            (|key: &str| Keys::One(key.to_owned()), |pattern: &str| Keys::Like(pattern.to_owned()));
        let check = |kind: &str, key: &str, keys: Keys, expected: Share| {
            assert_eq!(
                share(kind, &bound(key, json!({})), &keys),
                expected,
                "{kind} {key:?} {keys:?}"
            );
        };
        use Share::{All, Nothing, Part};
        check("fanout", "", Keys::Any, All);
        check("direct", "a", one("a"), All);
        check("direct", "a", one("b"), Nothing);
        check("direct", "a.b", like("a.*"), Part);
        check("direct", "b", like("a.*"), Nothing);
        check("direct", "a", Keys::Any, Part);
        check("topic", "a.*", one("a.b"), All);
        check("topic", "a.*", one("b.b"), Nothing);
        check("topic", "a.*", like("a.*"), All);
        check("topic", "#", like("a.*"), All);
        check("topic", "a.b", like("a.*"), Part);
        check("topic", "b.*", like("a.*"), Nothing);
        check("topic", "#", Keys::Any, All);
        check("topic", "a.#", Keys::Any, Part);
        check("x-consistent-hash", "1", one("a"), Part);
    }

    #[test]
    fn a_binding_of_a_headers_exchange_takes_a_part_if_a_header_counts() {
        let check = |arguments: Value, expected: Share| {
            assert_eq!(
                share("headers", &bound("", arguments.clone()), &Keys::Any),
                expected,
                "{arguments}"
            );
        };
        check(json!({}), Share::All);
        check(json!({ "x-match": "all" }), Share::All);
        check(json!({ "x-match": "any" }), Share::Nothing);
        check(json!({ "customer": 1 }), Share::Part);
        check(json!({ "x-match": "any", "customer": 1 }), Share::Part);
        check(json!({ "x-match": "all", "x-customer": 1 }), Share::All);
        check(json!({ "x-match": "all-with-x", "x-customer": 1 }), Share::Part);
    }

    #[test]
    fn a_part_has_the_keys_of_the_binding_that_takes_it() {
        let keys = Keys::Like("a.*".to_owned());
        let taken = |kind: &str, share| keys.taken(kind, &bound("a.b", json!({})), share);
        assert_eq!(taken("direct", Share::Part), Keys::One("a.b".to_owned()));
        assert_eq!(taken("topic", Share::Part), Keys::Like("a.b".to_owned()));
        assert_eq!(taken("topic", Share::All), keys);
        assert_eq!(taken("headers", Share::Part), keys);
    }
}
