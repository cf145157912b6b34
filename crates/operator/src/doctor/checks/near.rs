//! Limits of the broker that are reached, or nearly.

use crate::doctor::check::Check;
use crate::doctor::observed::Observed;
use crate::doctor::report::Finding;
use crate::doctor::usage::usages;

pub(super) fn check(seen: &Observed) -> Vec<Finding> {
    let all = seen.management.iter().flat_map(usages);
    // Memory is reported by its alarm.
    let near = all.filter(|usage| usage.is_near() && !usage.what.starts_with("memory"));
    near.map(|usage| {
        let effect = if usage.is_reached() { "nothing is left" } else { "little is left" };
        let seen = format!("{usage}: {effect}");
        Finding::new(Check::LimitNear, usage.what, seen, usage.remedy)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::observed::{LimitsSeen, Management};

    #[test]
    fn a_limit_that_is_nearly_reached_is_found_with_the_way_to_raise_it() {
        let limits = |value| Some(vec![serde_json::from_value(json!({ "value": value })).unwrap()]);
        let seen = LimitsSeen {
            user: "svc".to_owned(),
            vhost: "a b".to_owned(),
            of_user: limits(json!({ "max-connections": 1 })),
            of_vhost: limits(json!({ "max-queues": 10 })),
            connections: serde_json::from_value(json!([{ "user": "svc", "vhost": "a b" }]))
                .unwrap(),
            queues: Some(9),
        };
        let management = Management { limits: seen, ..Management::default() };
        let found = check(&Observed { management: Some(management), ..Observed::default() });
        let told: Vec<_> = found.iter().map(|it| (it.seen.as_str(), it.remedy.as_str())).collect();
        assert_eq!(told[0].0, "1 of 1: nothing is left");
        assert!(
            told[0].1.contains("set_user_limits \"svc\" '{\"max-connections\": N}'"),
            "{told:?}"
        );
        assert_eq!(told[1].0, "9 of 10: little is left");
        assert!(
            told[1].1.contains("set_vhost_limits -p \"a b\" '{\"max-queues\": N}'"),
            "{told:?}"
        );
        assert_eq!(told.len(), 2);
    }
}
