//! What the management API does not tell: it leaves out what the broker has not counted yet, and
//! most of what it counts where it collects no statistics. Pure.

use std::collections::BTreeSet;

use super::observed::{Management, Node, QueueDetails};
use super::subject::Subject;
use rehop::topology::{Queue, Role};

/// Why something may be left out.
pub(super) const UNTOLD: &str = "the broker has not counted yet, or collects no statistics \
    (management_agent.disable_metrics_collector); look again after 10 seconds";
const WITHOUT_STATISTICS: &str = "the broker collects no statistics, or shows none; see \
    management_agent.disable_metrics_collector and management.disable_stats in its configuration";

/// How many names are told.
const NAMED: usize = 3;

/// All that the checks did not see.
pub(super) fn untold(subject: &Subject, seen: &Management) -> Vec<String> {
    let mut consumers: BTreeSet<_> = queues(subject, seen, |wanted, details| {
        wanted.role == Role::Work && details.subscriptions.is_none()
    });
    let unseen = seen.consumers.iter().filter(|(_, subscriptions)| subscriptions.is_none());
    consumers.extend(unseen.map(|(queue, _)| queue.as_str()));
    let stuck = queues(subject, seen, |_, details| {
        details.kind == "quorum" && details.messages_dlx.is_none()
    });
    let members = queues(subject, seen, |_, details| {
        details.kind == "quorum" && (details.members.is_none() || details.online.is_none())
    });
    let nodes = seen.nodes.iter().filter(|node| is_untold(node));
    let mut all = untold_policies(subject, seen);
    all.extend(line("messages that cannot be dead-lettered, in queues", &stuck, seen));
    let what = "the consumers, their ack timeouts and the wait queues that they use, of queues";
    all.extend(line(what, &consumers, seen));
    all.extend(line("the members of queues", &members, seen));
    let nodes = nodes.map(|node| node.name.as_str()).collect();
    all.extend(line("the versions, alarms and partitions of nodes", &nodes, seen));
    all
}

/// The policies that the checks did not see.
pub(super) fn untold_policies(subject: &Subject, seen: &Management) -> Vec<String> {
    let queues = queues(subject, seen, |_, details| details.effective_policy.is_none());
    line("the policies that apply to queues", &queues, seen).into_iter().collect()
}

/// The queues of the topology of which something is not told.
fn queues<'a>(
    subject: &'a Subject,
    seen: &Management,
    is_untold: impl Fn(&Queue, &QueueDetails) -> bool,
) -> BTreeSet<&'a str> {
    let all = subject.topology.queues.iter().filter(|wanted| {
        seen.queues.get(&wanted.name).is_some_and(|details| is_untold(wanted, details))
    });
    all.map(|queue| queue.name.as_str()).collect()
}

/// A node that does not run tells nothing of itself.
fn is_untold(node: &Node) -> bool {
    node.running != Some(false)
        && (node.running.is_none()
            || node.mem_alarm.is_none()
            || node.disk_free_alarm.is_none()
            || node.partitions.is_none()
            || node.version().is_none())
}

fn line(what: &str, names: &BTreeSet<&str>, seen: &Management) -> Option<String> {
    let shown: Vec<_> = names.iter().take(NAMED).map(|name| format!("{name:?}")).collect();
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let overview = seen.overview.as_ref();
    let why = match overview.is_some_and(|overview| overview.is_without_statistics) {
        true => WITHOUT_STATISTICS,
        false => UNTOLD,
    };
    (!names.is_empty()).then(|| format!("{what} {}{more}: {why}", shown.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::doctor::observed::Overview;
    use rehop::Settings;

    /// What is not told of the queue "orders" and of a node with these details.
    fn told(queue: Value, node: Value) -> Vec<String> {
        let mut settings = Settings::default();
        settings.queue_mut("orders");
        let mut seen = Management::default();
        seen.queues.insert("orders".to_owned(), serde_json::from_value(queue).unwrap());
        seen.nodes.push(serde_json::from_value(node).unwrap());
        seen.consumers.insert("orders".to_owned(), seen.queues["orders"].subscriptions.clone());
        untold(&Subject::of(&settings).unwrap(), &seen)
    }

    fn counted() -> Value {
        json!({
            "type": "quorum", "messages": 0, "messages_dlx": 0, "consumers": 0, "members": ["a"],
            "online": ["a"], "consumer_details": [], "effective_policy_definition": [],
        })
    }

    fn running() -> Value {
        json!({
            "name": "one", "running": true, "mem_alarm": false, "disk_free_alarm": false,
            "partitions": [], "applications": [{ "name": "rabbit", "version": "4.3.6" }],
        })
    }

    #[test]
    fn each_field_that_is_missing_is_said_to_be_unseen() {
        assert_eq!(told(counted(), running()), [""; 0]);
        for (field, says) in [
            ("messages_dlx", "messages that cannot be dead-lettered, in queues \"orders\""),
            ("members", "the members of queues \"orders\""),
            ("online", "the members of queues \"orders\""),
            ("consumer_details", "the consumers, their ack timeouts"),
            ("effective_policy_definition", "the policies that apply to queues \"orders\""),
        ] {
            let mut queue = counted();
            queue.as_object_mut().unwrap().remove(field);
            let unseen = told(queue, running());
            assert!(unseen.len() == 1 && unseen[0].starts_with(says), "{field}: {unseen:?}");
        }
        for field in ["running", "mem_alarm", "disk_free_alarm", "partitions", "applications"] {
            let mut node = running();
            node.as_object_mut().unwrap().remove(field);
            let unseen = told(counted(), node);
            assert!(
                unseen.len() == 1 && unseen[0].contains("nodes \"one\""),
                "{field}: {unseen:?}"
            );
        }
        assert_eq!(told(counted(), json!({ "name": "one", "running": false })), [""; 0]);
        let mut classic = counted();
        classic["type"] = "classic".into();
        classic.as_object_mut().unwrap().remove("messages_dlx");
        assert_eq!(told(classic, running()), [""; 0], "a classic queue has no such count");
    }

    #[test]
    fn the_first_few_names_are_told_with_the_reason_if_it_is_known() {
        let names = BTreeSet::from(["a", "b", "c", "d", "e"]);
        let mut seen = Management::default();
        let unsure = line("queues", &names, &seen).unwrap();
        assert!(unsure.starts_with("queues \"a\", \"b\", \"c\" and 2 more: "), "{unsure}");
        assert!(unsure.contains("has not counted yet"), "{unsure}");
        seen.overview = Some(Overview { is_without_statistics: true, version: None });
        let sure = line("queues", &names, &seen).unwrap();
        assert!(sure.contains("collects no statistics, or shows none"), "{sure}");
        assert_eq!(line("queues", &BTreeSet::new(), &seen), None);
    }
}
