//! How near the broker's limits are, as the management API tells. What it does not tell is unknown.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::observed::{ConnectionDetails, LimitValues, LimitsSeen, Management, Node};

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
    /// Whether the API tells whether there is a limit.
    pub is_known: bool,
}

impl Usage {
    fn new(what: impl Into<String>, used: Option<u64>, limit: Told) -> Self {
        let (limit, is_known) = match limit {
            Told::Untold => (None, false),
            Told::Unlimited => (None, true),
            Told::At(limit) => (Some(limit), true),
        };
        Self { what: what.into(), used, limit, is_known }
    }

    /// How to raise the limit.
    pub(super) fn remedy(&self) -> String {
        let (kind, whose) = self.what.split_once(" of ").unwrap_or((&self.what, ""));
        let set = |command: &str, key: &str, name: &str| {
            format!(
                "raise it with `rabbitmqctl {command} {name} '{{\"{key}\": N}}'`, if what uses it is meant to: the page \"Sizing\" says what \
                 a service needs"
            )
        };
        let key = format!("max-{kind}");
        if let Some(vhost) = whose.strip_prefix("virtual host ") {
            set("set_vhost_limits -p", &key, vhost)
        } else if let Some(user) = whose.strip_prefix("user ") {
            set("set_user_limits", &key, user)
        } else if kind == "channels" {
            "raise channel_max in rabbitmq.conf, or look for a client that opens channels and does not close them".to_owned()
        } else {
            "raise the limit of open files of the node".to_owned()
        }
    }

    /// Whether a fifth or less is left.
    pub(super) fn is_near(&self) -> bool {
        let (Some(used), Some(limit)) = (self.used, self.limit) else { return false };
        used.saturating_mul(5) >= limit.saturating_mul(4)
    }

    /// Whether nothing is left.
    pub(super) fn is_reached(&self) -> bool {
        matches!((self.used, self.limit), (Some(used), Some(limit)) if used >= limit)
    }
}

/// As `12 of 100`; what is not known is called unknown, and is never zero.
impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = |number: Option<u64>| number.map_or("unknown".to_owned(), |it| it.to_string());
        let limit = match (self.is_known, self.limit) {
            (false, _) => "limit unknown".to_owned(),
            (true, None) => "no limit".to_owned(),
            (true, Some(limit)) => return write!(f, "{} of {limit}", known(self.used)),
        };
        write!(f, "{}, {limit}", known(self.used))
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
    all(&seen.limits, &seen.nodes)
}

fn all(seen: &LimitsSeen, nodes: &[Node]) -> Vec<Usage> {
    let LimitsSeen { user, vhost, of_user, of_vhost, connections, queues } = seen;
    let count = |is_one: &dyn Fn(&ConnectionDetails) -> bool| {
        connections.as_ref().map(|all| all.iter().filter(|it| is_one(it)).count() as u64)
    };
    let of_this_user = |it: &ConnectionDetails| it.user == *user;
    // Without statistics a connection tells no channels.
    let channels = connections.as_ref().and_then(|all| {
        all.iter().filter(|it| of_this_user(it)).map(|it| it.channels).sum::<Option<u64>>()
    });
    let mut all = vec![
        Usage::new(
            format!("connections of user {user:?}"),
            count(&of_this_user),
            told(of_user.as_deref(), "max-connections"),
        ),
        Usage::new(
            format!("channels of user {user:?}"),
            channels,
            told(of_user.as_deref(), "max-channels"),
        ),
        Usage::new(
            format!("connections of virtual host {vhost:?}"),
            count(&|it| it.vhost == *vhost),
            told(of_vhost.as_deref(), "max-connections"),
        ),
        Usage::new(
            format!("queues of virtual host {vhost:?}"),
            *queues,
            told(of_vhost.as_deref(), "max-queues"),
        ),
    ];
    let own = || connections.iter().flatten().filter(|it| of_this_user(it));
    let fullest = own().filter(|it| it.channel_max != Some(0)).max_by_key(|it| it.channels);
    if let Some(ConnectionDetails { channels, channel_max, .. }) = fullest {
        let limit = channel_max.map_or(Told::Untold, Told::At);
        let what = format!("channels of one connection of user {user:?}, the fullest");
        all.push(Usage::new(what, *channels, limit));
    }
    all.extend(nodes.iter().filter(|node| node.running != Some(false)).flat_map(of_node));
    all
}

/// What a node has of its own.
fn of_node(node: &Node) -> Vec<Usage> {
    let at = |limit: Option<u64>| limit.map_or(Told::Untold, Told::At);
    vec![
        Usage::new(
            format!("file descriptors of node {}", node.name),
            node.fd_used,
            at(node.fd_total),
        ),
        Usage::new(
            format!("memory of node {}, in bytes", node.name),
            node.mem_used,
            at(node.mem_limit),
        ),
    ]
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
        ConnectionDetails { user, vhost, channels, channel_max: Some(2047) }
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
        all(seen, &[]).iter().map(|usage| format!("{}: {usage}", usage.what)).collect()
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

    #[test]
    fn a_limit_is_near_when_less_than_a_fifth_is_left() {
        for (used, limit, is_near, is_reached) in [
            (Some(7), Told::At(10), false, false),
            (Some(8), Told::At(10), true, false),
            (Some(10), Told::At(10), true, true),
            (Some(0), Told::At(0), true, true),
            (None, Told::At(10), false, false),
            (Some(10), Told::Unlimited, false, false),
            (Some(10), Told::Untold, false, false),
        ] {
            let usage = Usage::new("x", used, limit);
            assert_eq!((usage.is_near(), usage.is_reached()), (is_near, is_reached), "{usage}");
        }
    }
}
