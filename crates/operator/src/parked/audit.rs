//! What the log says of an operation. Pure.

use crate::parked::filter::Filter;
use rehop::Timestamp;

/// Which messages an operation is about. What messages contain stays out of the log, so conditions and texts of errors are only counted.
pub(super) fn selection(filter: &Filter) -> String {
    let millis = |at: Option<Timestamp>| at.map(|at| at.as_millis().to_string());
    let number = |number: usize| (number > 0).then(|| number.to_string());
    let parts = [
        ("reason", filter.reason.clone()),
        ("class", filter.class.clone()),
        ("destination", filter.destination.clone()),
        ("key", filter.key.clone()),
        ("since_ms", millis(filter.since)),
        ("until_ms", millis(filter.until)),
        ("chains", (!filter.chains.is_empty()).then(|| filter.chains.join(","))),
        ("errors", number(filter.error.iter().chain(&filter.error_is).count())),
        ("conditions", number(filter.conditions.len())),
        ("run", filter.run.clone()),
        ("limit", filter.limit.map(|limit| limit.to_string())),
    ];
    let set = parts.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    let set = set.collect::<Vec<_>>().join(" ");
    if set.is_empty() { "all".to_owned() } else { set }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_told_without_what_messages_contain() {
        assert_eq!(selection(&Filter::default()), "all");
        let filter = Filter {
            class: Some("http_503".to_owned()),
            error: Some("no customer Ada".to_owned()),
            since: Some(Timestamp::from_millis(1_700_000_000_000)),
            conditions: vec!["body.customer == \"Ada\"".parse().unwrap()],
            limit: Some(7),
            ..Filter::chain("5f0c")
        };
        assert_eq!(
            selection(&filter),
            "class=http_503 since_ms=1700000000000 chains=5f0c errors=1 conditions=1 limit=7"
        );
    }
}
