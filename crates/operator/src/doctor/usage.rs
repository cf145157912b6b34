//! How near the broker's limits are, as the management API tells. What it does not tell is unknown.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::observed::{ConnectionDetails, LimitValues, LimitsSeen, Management, Node, QueueDetails};

/// A limit, and how near it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Usage {
    /// What is counted, and whose it is, such as `connections of user "billing"`.
    pub what: String,
    /// How many there are; `None` if that is not known.
    pub used: Option<u64>,
    /// How many there may be; `None` if there is no limit.
    pub limit: Option<u64>,
    /// Whether the limit is the least that there must be, as of free disk space.
    pub is_minimum: bool,
    /// Whether the API tells whether there is a limit.
    pub is_known: bool,
    /// What tells the limit, if the API does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub told_by: Option<String>,
    /// How to raise the limit.
    #[serde(skip)]
    pub(super) remedy: String,
}

impl Usage {
    fn new(
        what: impl Into<String>,
        used: Option<u64>,
        limit: Told,
        remedy: impl Into<String>,
    ) -> Self {
        let (limit, is_known) = match limit {
            Told::Untold => (None, false),
            Told::Unlimited => (None, true),
            Told::At(limit) => (Some(limit), true),
        };
        let (what, remedy) = (what.into(), remedy.into());
        Self { what, used, limit, is_minimum: false, is_known, told_by: None, remedy }
    }

    /// A limit of a node, which the API does not tell (3.10, 4.0 and 4.3). One that is not set is
    /// not listed, and most of them then have no limit.
    fn of_setting(what: impl Into<String>, used: Option<u64>, key: &str, node: &str) -> Self {
        let told_by = format!("`rabbitmqctl -n {node} environment` shows {key} if it is set");
        let remedy = format!("raise {key} in rabbitmq.conf");
        Self { told_by: Some(told_by), ..Self::new(what, used, Told::Untold, remedy) }
    }

    /// Whether a fifth or less is left.
    ///
    /// A minimum is never near: the broker's own alarm covers it.
    pub(super) fn is_near(&self) -> bool {
        let (Some(used), Some(limit)) = (self.used, self.limit) else { return false };
        !self.is_minimum && used.saturating_mul(5) >= limit.saturating_mul(4)
    }

    /// Whether nothing is left.
    pub(super) fn is_reached(&self) -> bool {
        let is_at_limit =
            matches!((self.used, self.limit), (Some(used), Some(limit)) if used >= limit);
        !self.is_minimum && is_at_limit
    }
}

/// As `12 of 100`, or `12, at least 10 needed`. What is not known is called unknown, never zero.
impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = |number: Option<u64>| number.map_or("unknown".to_owned(), |it| it.to_string());
        let used = known(self.used);
        match (self.is_known, self.limit, &self.told_by) {
            (false, _, None) => write!(f, "{used}, limit unknown"),
            (false, _, Some(told_by)) => write!(f, "{used}, limit unknown: {told_by}"),
            (true, None, _) => write!(f, "{used}, no limit"),
            (true, Some(limit), _) if self.is_minimum => {
                write!(f, "{used}, at least {limit} needed")
            }
            (true, Some(limit), _) => write!(f, "{used} of {limit}"),
        }
    }
}

/// Whether there is a limit, as far as the API tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Untold,
    Unlimited,
    At(u64),
}

/// All limits, those included of which the API tells nothing.
pub(super) fn usages(seen: &Management) -> Vec<Usage> {
    let mut all = of_accounts(&seen.limits);
    let nodes = || seen.nodes.iter().filter(|node| node.running != Some(false));
    all.extend(nodes().flat_map(|node| of_node(node, seen.limits.connections.as_deref())));
    // Each node has its own setting; mostly they are the same.
    if let Some(node) = nodes().next() {
        let (what, fullest) = ("consumers of one channel, the fullest", fullest_channel(seen));
        all.push(Usage::of_setting(what, fullest, "consumer_max_per_channel", &node.name));
        for (what, key) in [
            ("queues of the cluster", "cluster_queue_limit"),
            ("bytes of a message's body", "max_message_size"),
        ] {
            all.push(Usage::of_setting(what, None, key, &node.name));
        }
    }
    all.extend(seen.queues.iter().flat_map(|(name, details)| of_queue(name, details)));
    all
}

/// What a user and a virtual host may have.
fn of_accounts(seen: &LimitsSeen) -> Vec<Usage> {
    let LimitsSeen { user, vhost, of_user, of_vhost, connections, queues } = seen;
    let count = |is_one: &dyn Fn(&ConnectionDetails) -> bool| {
        connections.as_ref().map(|all| all.iter().filter(|it| is_one(it)).count() as u64)
    };
    let of_this_user = |it: &ConnectionDetails| it.user == *user;
    let set = |command: &str, key: &str, name: &str| {
        format!(
            "raise it with `rabbitmqctl {command} {name:?} '{{\"{key}\": N}}'`, if what uses it is meant to: the page \"Sizing\" says what \
             a service needs"
        )
    };
    let of_user = |key, used| {
        let what = format!("{} of user {user:?}", kind(key));
        Usage::new(what, used, told(of_user.as_deref(), key), set("set_user_limits", key, user))
    };
    let of_vhost = |key, used| {
        let what = format!("{} of virtual host {vhost:?}", kind(key));
        let remedy = set("set_vhost_limits -p", key, vhost);
        Usage::new(what, used, told(of_vhost.as_deref(), key), remedy)
    };
    let channels = connections.as_ref().and_then(|all| channels(all, of_this_user));
    let mut all = vec![
        of_user("max-connections", count(&of_this_user)),
        of_user("max-channels", channels),
        of_vhost("max-connections", count(&|it| it.vhost == *vhost)),
        of_vhost("max-queues", *queues),
    ];
    let own = || connections.iter().flatten().filter(|it| of_this_user(it));
    let fullest = own().filter(|it| it.channel_max != Some(0)).max_by_key(|it| it.channels);
    if let Some(ConnectionDetails { channels, channel_max, .. }) = fullest {
        let limit = channel_max.map_or(Told::Untold, Told::At);
        let what = format!("channels of one connection of user {user:?}, the fullest");
        let remedy = "raise channel_max in rabbitmq.conf, or look for a client that opens channels and does not close them";
        all.push(Usage::new(what, *channels, limit, remedy));
    }
    all
}

/// What a limit such as `max-queues` counts.
fn kind(key: &str) -> &str {
    key.strip_prefix("max-").unwrap_or(key)
}

/// The channels of these connections. Without statistics a connection tells none.
fn channels(all: &[ConnectionDetails], is_one: impl Fn(&ConnectionDetails) -> bool) -> Option<u64> {
    all.iter().filter(|it| is_one(it)).map(|it| it.channels).sum()
}

/// What a node has of its own.
fn of_node(node: &Node, connections: Option<&[ConnectionDetails]>) -> Vec<Usage> {
    let at = |limit: Option<u64>| limit.map_or(Told::Untold, Told::At);
    let name = &node.name;
    let is_here = |it: &ConnectionDetails| it.node.as_ref() == Some(name);
    // A connection may not tell its node.
    let told = connections.filter(|all| all.iter().all(|it| it.node.is_some()));
    let count = told.map(|all| all.iter().filter(|it| is_here(it)).count() as u64);
    let channels = told.and_then(|all| channels(all, is_here));
    let of_setting = |what: &str, used, key| {
        Usage::of_setting(format!("{what} of node {name}"), used, key, name)
    };
    vec![
        of_setting("connections", count, "connection_max"),
        of_setting("channels", channels, "channel_max_per_node"),
        of_setting("handshake time", None, "handshake_timeout"),
        Usage::new(
            format!("file descriptors of node {name}"),
            node.fd_used,
            at(node.fd_total),
            "raise the limit of open files of the node",
        ),
        Usage::new(
            format!("memory of node {name}, in bytes"),
            node.mem_used,
            at(node.mem_limit),
            "see the broker's memory alarm",
        ),
        Usage {
            is_minimum: true,
            ..Usage::new(
                format!("free disk space of node {name}, in bytes"),
                node.disk_free,
                at(node.disk_free_limit),
                "see the broker's disk alarm",
            )
        },
    ]
}

/// How many consumers of the namespace's work queues one channel has at most.
fn fullest_channel(seen: &Management) -> Option<u64> {
    let mut consumers = BTreeMap::new();
    for subscription in seen.consumers.values().map(Option::as_ref) {
        for subscription in subscription? {
            let channel = subscription.channel.as_ref().filter(|it| !it.name.is_empty())?;
            *consumers.entry(&channel.name).or_insert(0) += 1;
        }
    }
    Some(consumers.into_values().max().unwrap_or(0))
}

/// How full a queue is whose length is limited, or of which the API does not tell whether it is.
/// What is ready counts, and in a quorum queue what is being dead-lettered (3.10, 4.0 and 4.3).
fn of_queue(name: &str, details: &QueueDetails) -> Vec<Usage> {
    let QueueDetails { messages_ready, message_bytes_ready, .. } = details;
    // A classic queue keeps nothing while it is dead-lettered.
    let none = (details.kind == "classic").then_some(0);
    let and = |ready: Option<u64>, dead_lettered: Option<u64>| {
        Some(ready?.saturating_add(dead_lettered.or(none)?))
    };
    let told_by = "`rabbitmqctl list_queues name arguments effective_policy_definition`";
    let limited = [
        ("messages", "max-length", and(*messages_ready, details.messages_dlx)),
        ("bytes", "max-length-bytes", and(*message_bytes_ready, details.message_bytes_dlx)),
    ];
    let usage = |(unit, key, used): (&str, &str, Option<u64>)| {
        let limit = match &details.effective_policy {
            None => Told::Untold,
            Some(_) => Told::At(u64::try_from(details.smaller_number(key)?).ok()?),
        };
        let told_by = (limit == Told::Untold).then(|| format!("{told_by} shows {key}"));
        let remedy = format!(
            "empty the queue, or raise {key}, which an argument of the queue or {} sets",
            details.policies()
        );
        let what = format!("{unit} of queue {name:?}");
        Some(Usage { told_by, ..Usage::new(what, used, limit, remedy) })
    };
    limited.into_iter().filter_map(usage).collect()
}

/// A limit of the first who has any.
fn told(limits: Option<&[LimitValues]>, key: &str) -> Told {
    let Some(limits) = limits else { return Told::Untold };
    let limit = limits.iter().find_map(|limits| limits.value.get(key));
    // A negative one is none.
    limit.and_then(Value::as_u64).map_or(Told::Unlimited, Told::At)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn connection(user: &str, vhost: &str, channels: Option<u64>) -> ConnectionDetails {
        let (user, vhost) = (user.to_owned(), vhost.to_owned());
        ConnectionDetails { user, vhost, node: None, channels, channel_max: Some(2047) }
    }

    fn seen() -> LimitsSeen {
        let limits = |value| Some(vec![serde_json::from_value(json!({ "value": value })).unwrap()]);
        LimitsSeen {
            user: "svc".to_owned(),
            vhost: "/".to_owned(),
            of_user: limits(json!({ "max-connections": 4, "max-channels": 100 })),
            of_vhost: limits(json!({ "max-queues": -1 })),
            connections: Some(vec![
                connection("svc", "/", Some(3)),
                connection("svc", "/", Some(2)),
                connection("svc", "other", Some(1)),
                connection("else", "/", Some(9)),
            ]),
            queues: Some(12),
        }
    }

    fn shown(seen: &LimitsSeen) -> Vec<String> {
        of_accounts(seen).iter().map(|usage| format!("{}: {usage}", usage.what)).collect()
    }

    #[test]
    fn each_limit_is_shown_with_how_near_it_is() {
        assert_eq!(
            shown(&seen()),
            [
                "connections of user \"svc\": 3 of 4",
                "channels of user \"svc\": 6 of 100",
                "connections of virtual host \"/\": 3, no limit",
                "queues of virtual host \"/\": 12, no limit",
                "channels of one connection of user \"svc\", the fullest: 3 of 2047",
            ]
        );
    }

    #[test]
    fn what_the_api_does_not_tell_is_unknown_and_never_zero() {
        let mut seen = seen();
        seen.connections =
            Some(vec![connection("svc", "/", None), connection("svc", "/", Some(2))]);
        assert_eq!(shown(&seen)[1], "channels of user \"svc\": unknown of 100");
        (seen.of_user, seen.of_vhost, seen.connections, seen.queues) = (None, None, None, None);
        for line in shown(&seen) {
            assert!(line.ends_with(": unknown, limit unknown"), "{line}");
        }
    }

    fn management(seen: Value) -> Management {
        let object = |key: &str| seen.get(key).cloned().unwrap_or_default();
        let (queues, consumers) = (object("queues"), object("consumers"));
        let queues = queues.as_array().into_iter().flatten().map(|queue| {
            let details: QueueDetails = serde_json::from_value(queue.clone()).unwrap();
            (details.name.clone(), details)
        });
        let consumers = consumers.as_array().into_iter().flatten().map(|channels| {
            let of = |name: &Value| json!({ "channel_details": { "name": name } });
            let all = channels.as_array().map(|all| all.iter().map(of).collect::<Value>());
            ("q".to_owned(), all.map(|all| serde_json::from_value(all).unwrap()))
        });
        Management {
            queues: queues.collect(),
            consumers: consumers.collect(),
            nodes: vec![serde_json::from_value(json!({ "name": "rabbit@a" })).unwrap()],
            limits: LimitsSeen {
                connections: serde_json::from_value(object("connections")).unwrap(),
                ..LimitsSeen::default()
            },
            ..Management::default()
        }
    }

    fn line(seen: &Management, what: &str) -> Option<String> {
        let all = usages(seen);
        let usage = all.iter().find(|usage| usage.what == what)?;
        Some(format!("{usage}"))
    }

    #[test]
    fn a_limit_that_no_api_tells_is_unknown_with_the_command_that_tells_it() {
        let seen = management(json!({ "connections": [
            { "node": "rabbit@a", "channels": 3 },
            { "node": "rabbit@b", "channels": 5 },
            { "node": "rabbit@a", "channels": 1 },
        ], "consumers": [["c1", "c1", "c2", "c1"]] }));
        let settings = [
            ("connections of node rabbit@a", "2", "connection_max"),
            ("channels of node rabbit@a", "4", "channel_max_per_node"),
            ("handshake time of node rabbit@a", "unknown", "handshake_timeout"),
            ("consumers of one channel, the fullest", "3", "consumer_max_per_channel"),
            ("queues of the cluster", "unknown", "cluster_queue_limit"),
            ("bytes of a message's body", "unknown", "max_message_size"),
        ];
        for (what, used, key) in settings {
            let told_by = format!("`rabbitmqctl -n rabbit@a environment` shows {key} if it is set");
            assert_eq!(line(&seen, what), Some(format!("{used}, limit unknown: {told_by}")));
        }
        let unseen = management(json!({ "connections": null, "consumers": [null] }));
        for (what, ..) in settings {
            assert!(line(&unseen, what).unwrap().starts_with("unknown, limit unknown: "), "{what}");
        }
    }

    #[test]
    fn each_queue_with_a_limit_of_its_length_is_shown_with_how_full_it_is() {
        let seen = management(json!({ "queues": [
            { "name": "by argument", "type": "quorum", "arguments": { "x-max-length": 10 },
              "messages_ready": 8, "messages_dlx": 1, "messages": 20,
              "effective_policy_definition": {} },
            { "name": "by both", "type": "classic", "arguments": { "x-max-length-bytes": 900 },
              "message_bytes_ready": 100,
              "effective_policy_definition": { "max-length-bytes": 500, "max-length": 7 } },
            { "name": "free", "messages_ready": 5, "effective_policy_definition": {} },
            { "name": "untold", "type": "classic", "arguments": { "x-max-length": 10 },
              "messages_ready": 5 },
        ] }));
        let shown = |queue: &str| {
            ["messages", "bytes"].map(|unit| line(&seen, &format!("{unit} of queue {queue:?}")))
        };
        assert_eq!(shown("by argument"), [Some("9 of 10".to_owned()), None]);
        let by_both = [Some("unknown of 7".to_owned()), Some("100 of 500".to_owned())];
        assert_eq!(shown("by both"), by_both);
        assert_eq!(shown("free"), [None, None]);
        let [messages, bytes] = shown("untold").map(Option::unwrap);
        assert!(messages.starts_with("5, limit unknown: `rabbitmqctl list_queues "), "{messages}");
        assert!(bytes.starts_with("unknown, limit unknown: "), "{bytes}");
    }

    #[test]
    fn without_the_count_of_what_is_dead_lettered_a_quorum_queue_is_not_said_to_have_room() {
        let used = |kind: &str, dead_lettered: Value| {
            let mut queue = json!({
                "name": "q", "type": kind,
                "arguments": { "x-max-length": 10, "x-max-length-bytes": 90 },
                "messages_ready": 8, "message_bytes_ready": 70, "effective_policy_definition": {},
            });
            let told = dead_lettered.as_object().unwrap().clone();
            queue.as_object_mut().unwrap().extend(told);
            let seen = management(json!({ "queues": [queue] }));
            ["messages", "bytes"]
                .map(|unit| line(&seen, &format!("{unit} of queue \"q\"")).unwrap())
        };
        let both = json!({ "messages_dlx": 1, "message_bytes_dlx": 5 });
        assert_eq!(used("quorum", both), ["9 of 10", "75 of 90"]);
        assert_eq!(used("quorum", json!({ "messages_dlx": 1 })), ["9 of 10", "unknown of 90"]);
        assert_eq!(used("quorum", json!({})), ["unknown of 10", "unknown of 90"]);
        assert_eq!(used("classic", json!({})), ["8 of 10", "70 of 90"]);
        assert_eq!(used("", json!({})), ["unknown of 10", "unknown of 90"], "of no known type");
        let absurd = json!({ "messages_dlx": u64::MAX });
        assert_eq!(used("quorum", absurd)[0], format!("{} of 10", u64::MAX));
    }

    #[test]
    fn free_disk_space_is_shown_with_the_least_that_is_needed_and_left_to_the_alarm() {
        let disk = |node: Value| {
            let mut seen = management(json!({}));
            seen.nodes = vec![serde_json::from_value(node).unwrap()];
            let all = usages(&seen);
            all.into_iter().find(|usage| usage.what.starts_with("free disk space")).unwrap()
        };
        let low = disk(json!({ "name": "a", "disk_free": 70, "disk_free_limit": 50 }));
        assert_eq!(low.what, "free disk space of node a, in bytes");
        assert_eq!(low.to_string(), "70, at least 50 needed");
        assert!(!low.is_near() && !low.is_reached());
        // Where the broker cannot see the disk, it tells no number.
        for node in [json!({ "name": "a" }), json!({ "name": "a", "disk_free": "NaN" })] {
            assert_eq!(disk(node).to_string(), "unknown, limit unknown");
        }
    }

    #[test]
    fn a_limit_is_near_when_a_fifth_or_less_is_left() {
        for (used, limit, is_near, is_reached) in [
            (Some(7), Told::At(10), false, false),
            (Some(8), Told::At(10), true, false),
            (Some(10), Told::At(10), true, true),
            (Some(0), Told::At(0), true, true),
            (None, Told::At(10), false, false),
            (Some(10), Told::Unlimited, false, false),
            (Some(10), Told::Untold, false, false),
        ] {
            let usage = Usage::new("x", used, limit, "");
            assert_eq!((usage.is_near(), usage.is_reached()), (is_near, is_reached), "{usage}");
        }
    }
}
