//! The cluster: its nodes, versions and feature flags, and the members of quorum queues.

use std::collections::BTreeMap;

use super::queue;
use crate::doctor::check::Check;
use crate::doctor::observed::{Management, Node, Observed};
use crate::doctor::report::Finding;
use crate::doctor::subject::Subject;
use rehop::internals::QueueConfig;
use rehop::settings::WaitStrategy;
use rehop::topology::ExchangeKind;

pub(super) fn check(subject: &Subject, seen: &Observed) -> Vec<Finding> {
    let nodes = seen.management.iter().flat_map(|management| &management.nodes);
    let mut found: Vec<_> = nodes.flat_map(node).collect();
    if seen.is_blocked && !found.iter().any(|finding| finding.check == Check::Alarm) {
        let is_blocked = "it blocks connections that publish, so a memory or disk alarm is raised, and copies are not confirmed";
        let remedy = "run `rabbitmq-diagnostics alarms` to see which; free memory or disk space on that node";
        found.push(Finding::new(Check::Alarm, "the cluster", is_blocked, remedy));
    }
    found.extend(frames(seen.frame_max));
    let Some(management) = &seen.management else { return found };
    found.extend(versions(&management.nodes));
    found.extend(subject.configs.iter().filter_map(|config| native(config, &management.nodes)));
    found.extend(
        subject.configs.iter().filter_map(|config| delayed_exchange(config, subject, management)),
    );
    let disabled = management
        .flags
        .iter()
        .filter(|flag| flag.state == "disabled" && flag.stability == "stable");
    let names: Vec<_> = disabled.map(|flag| flag.name.as_str()).collect();
    if !names.is_empty() {
        found.push(Finding::new(
            Check::FeatureFlagDisabled,
            "the cluster",
            format!("disabled: {}", names.join(", ")),
            "run `rabbitmqctl enable_feature_flag all` once every node runs the same version",
        ));
    }
    found.extend(subject.topology.queues.iter().flat_map(|queue| members(&queue.name, management)));
    found
}

/// All headers of a message are in one frame. The broker's default fits what rehop usually writes.
fn frames(frame_max: u32) -> Option<Finding> {
    const DEFAULT: u32 = 128 * 1024;
    if !(1..DEFAULT).contains(&frame_max) {
        return None;
    }
    let seen = format!(
        "a frame may have {frame_max} bytes: a message whose headers leave no room for rehop's is parked instead of waiting"
    );
    let remedy = format!(
        "set frame_max of the broker, and of broker.url if it has one, to {DEFAULT}, the default"
    );
    Some(Finding::new(Check::FramesSmall, "the connection", seen, remedy))
}

/// Only 4.3 and later know delayed retries; earlier versions take the arguments and ignore them
/// (3.10 and 4.0).
fn native(config: &QueueConfig, nodes: &[Node]) -> Option<Finding> {
    if config.policy.strategy() != WaitStrategy::Native {
        return None;
    }
    let node = nodes.iter().find(|node| node.is_before([4, 3]))?;
    let seen = format!(
        "retry.strategy is \"native\", and node {} runs {}, which ignores delayed retries",
        node.name,
        node.version().unwrap_or_default()
    );
    let remedy = "upgrade every node to 4.3 or later, or choose another strategy: see the page \"Which way to wait?\"";
    Some(Finding::new(Check::StrategyUnknown, queue(&config.queue), seen, remedy))
}

/// The plugin that provides the delayed exchange.
const PLUGIN: &str = "rabbitmq_delayed_message_exchange";

/// A node without the plugin refuses to declare the exchange, and cannot route what another one has
/// declared.
fn delayed_exchange(
    config: &QueueConfig,
    subject: &Subject,
    management: &Management,
) -> Option<Finding> {
    if config.policy.strategy() != WaitStrategy::DelayedExchange {
        return None;
    }
    let exchange = management.exchanges.get(&subject.names.delay());
    // Another type of exchange, which is a finding by itself, stands in for it.
    if exchange.is_some_and(|exchange| exchange.kind != ExchangeKind::Delayed.as_str()) {
        return None;
    }
    // A stopped node does not tell what it has.
    let node =
        management.nodes.iter().find(|node| node.version().is_some() && !node.has(PLUGIN))?;
    let seen = format!(
        "retry.strategy is \"delayed-exchange\", and node {} does not have the plugin {PLUGIN}, or has not enabled it",
        node.name
    );
    let remedy = "enable the plugin on every node, or choose another strategy: see the page \"Which way to wait?\"";
    Some(Finding::new(Check::StrategyUnknown, queue(&config.queue), seen, remedy))
}

fn node(node: &Node) -> Vec<Finding> {
    let object = format!("node {}", node.name);
    if node.running == Some(false) {
        let remedy = "start it; queues that have lost their majority accept nothing until then";
        return vec![Finding::new(Check::NodeDown, object, "it does not run", remedy)];
    }
    let mut found = Vec::new();
    for (is_raised, kind, remedy) in [
        (
            node.mem_alarm,
            "memory",
            "find what uses the memory: long queues, many connections; or give the node more",
        ),
        (
            node.disk_free_alarm,
            "disk",
            "free disk space on the node, or lower disk_free_limit if it is too high",
        ),
    ] {
        if is_raised == Some(true) {
            let seen = format!(
                "a {kind} alarm: publishers are blocked in the whole cluster, and copies are not confirmed"
            );
            found.push(Finding::new(Check::Alarm, object.clone(), seen, remedy));
        }
    }
    if let Some(partitions) = node.partitions.as_ref().filter(|unseen| !unseen.is_empty()) {
        let seen = format!("it does not see {}", partitions.join(", "));
        found.push(Finding::new(
            Check::Partition,
            object,
            seen,
            "repair the network, then restart the nodes of the minority",
        ));
    }
    found
}

fn versions(nodes: &[Node]) -> Option<Finding> {
    let mut by_version: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in nodes {
        if let Some(version) = node.version() {
            by_version.entry(version).or_default().push(&node.name);
        }
    }
    if by_version.len() < 2 {
        return None;
    }
    let each =
        by_version.iter().map(|(version, nodes)| format!("{version} on {}", nodes.join(", ")));
    let seen = each.collect::<Vec<_>>().join("; ");
    Some(Finding::new(
        Check::VersionsMixed,
        "the cluster",
        seen,
        "finish the upgrade: mixed versions are for hours, not for days",
    ))
}

fn members(name: &str, management: &Management) -> Vec<Finding> {
    let Some(details) = management.queues.get(name) else { return Vec::new() };
    let (Some(members), Some(down)) = (&details.members, details.members_down()) else {
        return Vec::new();
    };
    if members.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let seen = format!("{} of {} members are down: {}", down.len(), members.len(), down.join(", "));
    if details.has_lost_majority() {
        let seen = match down.len() * 2 >= members.len() {
            true => seen,
            false => {
                "the broker reports it as `minority`, but not all members that are down".to_owned()
            }
        };
        let remedy = "start the nodes: until a majority is back the queue accepts and delivers nothing, and loses nothing";
        found.push(Finding::new(Check::WithoutMajority, queue(name), seen, remedy));
    } else if !down.is_empty() {
        found.push(Finding::new(
            Check::MemberDown,
            queue(name),
            seen,
            "start the node, or remove it from the cluster",
        ));
    }
    let running = management.nodes.iter().filter(|node| node.running == Some(true)).count();
    if members.len() < 3 && running >= 3 {
        let seen = format!("it has {} of the cluster's {running} nodes as members", members.len());
        let remedy = format!(
            "run `rabbitmq-queues grow <node> all --queue-pattern '^{name}$'` for more nodes"
        );
        found.push(Finding::new(Check::FewMembers, queue(name), seen, remedy));
    } else if members.len().is_multiple_of(2) {
        let seen = format!("it has {} members", members.len());
        let remedy = "add or remove one: an even number survives no more failures than one less";
        found.push(Finding::new(Check::EvenMembers, queue(name), seen, remedy));
    }
    found
}
