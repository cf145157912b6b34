//! A queue or exchange that exists with another argument: what the broker says, and what to do
//! about it.

use crate::topology::Role;

/// Reads `PRECONDITION_FAILED - inequivalent arg 'x-delivery-limit' for queue 'q' in vhost '/':
/// received '5' but current is '3'` and its variants, alike on 3.10, 4.0 and 4.3: thing, argument,
/// wanted value, found value.
pub(super) fn inequivalent(text: &str) -> Option<(String, String, String, String)> {
    let rest = text.split_once("inequivalent arg '")?.1;
    let (argument, rest) = rest.split_once("' for ")?;
    let (kind, rest) = rest.split_once(" '")?;
    let (name, rest) = rest.split_once("' in vhost")?;
    let (received, current) = rest.split_once("received ")?.1.split_once(" but current is ")?;
    let value = |text: &str| {
        if text.starts_with("none") {
            return "none".to_owned();
        }
        match text.split_once('\'').and_then(|(_, rest)| rest.split_once('\'')) {
            Some((value, _)) => format!("'{value}'"),
            None => text.to_owned(),
        }
    };
    Some((format!("{kind} {name:?}"), argument.to_owned(), value(received), value(current)))
}

/// A queue's dead-letter exchange tells which namespace declared the queue. Without a setting, the
/// namespace is the program's name: renaming the program, or declaring with the tool, changes it.
pub(super) fn of_namespace(argument: &str, wanted: &str, found: &str) -> Option<String> {
    let namespace = |exchange: &str| namespace_of(exchange.trim_matches('\'')).map(str::to_owned);
    match (argument, namespace(found), namespace(wanted)) {
        ("x-dead-letter-exchange", Some(found), Some(wanted)) if found != wanted => Some(format!(
            "the queue belongs to namespace {found:?}, and this is namespace {wanted:?}. If the service is the same, set namespace = \
             {found:?}; the default is the program's name. Another service needs queues of its own"
        )),
        _ => None,
    }
}

/// The namespace of an exchange that rehop's queues dead-letter to.
pub fn namespace_of(exchange: &str) -> Option<&str> {
    let namespace =
        [".park", ".stray", ".return"].iter().find_map(|end| exchange.strip_suffix(end));
    namespace.filter(|namespace| !namespace.is_empty())
}

/// What to do about a queue or exchange that exists with another argument.
pub(super) fn remedy(role: Option<Role>, argument: &str) -> &'static str {
    match role {
        None => "delete it when nothing uses it and start again, or choose another namespace",
        // To take the queue as it is would be wrong for these two: messages would not wait, or not
        // stay in order.
        Some(Role::Work) if argument.starts_with("x-delayed-retry-") => {
            "keep the retry.strategy and retry.delays that the queue was declared for, or drain it, delete it and start again, or \
             take another queue: see \"A queue for native or for order\" in the page \"Which way to wait?\""
        }
        Some(Role::Work) if argument == "x-single-active-consumer" => {
            "keep the consume.order that the queue was declared for, or drain it, delete it and start again, or take another \
             queue: see \"A queue for native or for order\" in the page \"Which way to wait?\""
        }
        Some(Role::Work) => {
            "adapt the settings to it, or delete it when it is empty and start again, or take the queue as it is with \
             declare = \"existing\""
        }
        Some(Role::Wait | Role::Discarded) => "delete it when it is empty and start again",
        Some(Role::Parked) => {
            "delete it when it is empty and start again; if it holds messages, name another queue with `parked`, start again, \
             and unbind this one: see \"A parked or stray queue of an earlier version\" in the migration page"
        }
        Some(Role::Stray) => {
            "delete it when it is empty and start again; if it holds messages, move them to another queue first: see \"A \
             parked or stray queue of an earlier version\" in the migration page"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{inequivalent, of_namespace, remedy};
    use crate::topology::Role;

    #[test]
    fn the_remedy_for_another_strategy_or_order_names_the_keys_and_does_not_take_the_queue_as_it_is()
     {
        let work = |argument| remedy(Some(Role::Work), argument);
        for (argument, keys) in [
            ("x-delayed-retry-type", &["retry.strategy", "retry.delays"][..]),
            ("x-delayed-retry-min", &["retry.strategy", "retry.delays"]),
            ("x-delayed-retry-max", &["retry.strategy", "retry.delays"]),
            ("x-single-active-consumer", &["consume.order"]),
        ] {
            let text = work(argument);
            assert!(keys.iter().all(|key| text.contains(key)), "{argument}: {text}");
            assert!(text.contains("drain it") && !text.contains("existing"), "{argument}: {text}");
        }
        assert!(work("x-delivery-limit").contains("declare = \"existing\""));
        let wait = remedy(Some(Role::Wait), "x-message-ttl");
        assert_eq!(remedy(Some(Role::Wait), "x-single-active-consumer"), wait);
    }

    /// The page is named in errors.
    #[test]
    fn the_page_that_a_remedy_names_has_that_section() {
        assert!(
            include_str!("../docs/waiting.md").contains("\n## A queue for native or for order\n")
        );
    }

    #[test]
    fn a_queue_of_another_namespace_is_recognised_by_its_dead_letter_exchange() {
        let text =
            of_namespace("x-dead-letter-exchange", "'billing.park'", "'orders.park'").unwrap();
        assert!(
            text.contains("belongs to namespace \"orders\"")
                && text.contains("set namespace = \"orders\""),
            "{text}"
        );
        for (argument, wanted, found) in [
            ("x-dead-letter-exchange", "'billing.park'", "'theirs'"),
            ("x-dead-letter-exchange", "'billing.park'", "none"),
            ("x-delivery-limit", "'5'", "'3'"),
        ] {
            assert_eq!(of_namespace(argument, wanted, found), None, "{argument} {found}");
        }
    }

    #[test]
    fn a_differing_argument_is_read_from_what_the_broker_says() {
        let check = |text: &str, expected: [&str; 4]| {
            let (what, argument, wanted, found) = inequivalent(text).unwrap();
            assert_eq!([what, argument, wanted, found], expected.map(str::to_owned), "{text}");
        };
        check(
            "PRECONDITION_FAILED - inequivalent arg 'x-delivery-limit' for queue 'e10' in vhost '/': received '5' but current is '3'",
            ["queue \"e10\"", "x-delivery-limit", "'5'", "'3'"],
        );
        check(
            "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'a b' in vhost '/': received none but current is the value '3' of type 'signedint'",
            ["queue \"a b\"", "x-message-ttl", "none", "'3'"],
        );
        check(
            "PRECONDITION_FAILED - inequivalent arg 'x-delivery-limit' for queue 'q' in vhost '/': received the value '1000' of type 'signedint' but current is none",
            ["queue \"q\"", "x-delivery-limit", "'1000'", "none"],
        );
        check(
            "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'x' in vhost '/': received 'topic' but current is 'direct'",
            ["exchange \"x\"", "type", "'topic'", "'direct'"],
        );
        assert_eq!(inequivalent("PRECONDITION_FAILED - something else"), None);
    }
}
