//! Limits: of the broker, which it names when they are reached, and of this machine.

use std::fmt;
use std::io;

/// A limit that is reached. Somebody may leave room, so waiting can help; whoever runs the broker
/// or the machine can raise it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// `max-connections` of a user.
    UserConnections {
        /// The user.
        user: String,
    },
    /// `max-connections` of a virtual host.
    VhostConnections {
        /// The virtual host.
        vhost: String,
    },
    /// `connection_max` of a node.
    NodeConnections,
    /// `channel_max`: the channels of one connection.
    ConnectionChannels,
    /// `max-channels` of a user.
    UserChannels {
        /// The user.
        user: String,
    },
    /// `channel_max_per_node`.
    NodeChannels,
    /// `consumer_max_per_channel`.
    ChannelConsumers {
        /// How many consumers a channel may have.
        most: u16,
    },
    /// `max-queues` of a virtual host.
    VhostQueues {
        /// The virtual host.
        vhost: String,
    },
    /// `cluster_queue_limit`.
    ClusterQueues,
    /// The files and sockets that this process may have open.
    ProcessFiles,
    /// The files and sockets that this machine may have open.
    MachineFiles,
}

/// `errno` of a process, and of a machine, that has no file descriptor left. They are the same on
/// Linux, the BSDs and macOS.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

impl Limit {
    /// The limit that the broker's answer names, if it names one. Only the text tells it from other
    /// refusals. RabbitMQ cuts a text at 255 bytes, so that a long name may take the rest with it.
    pub(crate) fn of_answer(code: u16, text: &str) -> Option<Self> {
        let (_, text) = text.split_once(" - ")?;
        match code {
            530 => Self::of_connection(text),
            406 if text.starts_with("cannot declare queue '") => Self::of_queues(text),
            _ => None,
        }
    }

    /// A refusal that ends the connection, or keeps it from being opened (3.10, 4.0 and 4.3).
    fn of_connection(text: &str) -> Option<Self> {
        let name = |before, after| named(text, before, after).to_owned();
        let begins = |with: &str| text.starts_with(with);
        if begins("connection refused for user '") {
            Some(Self::UserConnections { user: name("user '", "': user connection limit") })
        } else if begins("access to vhost '") && text.contains("': connection limit (") {
            Some(Self::VhostConnections { vhost: name("vhost '", "' refused for user '") })
        } else if begins("connection refused: node connection limit") {
            Some(Self::NodeConnections)
        } else if begins("number of channels opened for user '") {
            Some(Self::UserChannels { user: name("user '", "' has reached") })
        } else if begins("number of channels opened on node '") {
            Some(Self::NodeChannels)
        } else if begins("number of channels opened (") {
            Some(Self::ConnectionChannels)
        } else {
            let most = text.strip_prefix("reached maximum (")?.split(')').next()?;
            Some(Self::ChannelConsumers { most: most.parse().ok()? })
        }
    }

    /// A queue that is not declared (3.10, 4.0 and 4.3). It is the last of these limits that the
    /// text names: the queue's own name comes first, and may say anything.
    fn of_queues(text: &str) -> Option<Self> {
        let (_, limit) = text.rsplit_once("queue limit in ")?;
        if limit.starts_with("cluster (") {
            return Some(Self::ClusterQueues);
        }
        let vhost = limit.strip_prefix("vhost '").map(|_| named(limit, "vhost '", "' ("))?;
        Some(Self::VhostQueues { vhost: vhost.to_owned() })
    }

    /// The limit of this machine that an operation has met, if it was one.
    pub(crate) fn of_io(error: &io::Error) -> Option<Self> {
        match error.raw_os_error() {
            Some(EMFILE) if cfg!(unix) => Some(Self::ProcessFiles),
            Some(ENFILE) if cfg!(unix) => Some(Self::MachineFiles),
            _ => None,
        }
    }

    /// Whether it keeps a connection from being opened, and nothing else.
    pub(crate) fn is_of_connections(&self) -> bool {
        matches!(
            self,
            Self::UserConnections { .. }
                | Self::VhostConnections { .. }
                | Self::NodeConnections
                | Self::ProcessFiles
                | Self::MachineFiles
        )
    }

    /// Whether the broker has ended the connection over it.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(
            self,
            Self::ConnectionChannels
                | Self::UserChannels { .. }
                | Self::NodeChannels
                | Self::ChannelConsumers { .. }
        )
    }

    /// Whether it leaves no further connection or channel, so that whatever else is asked for will
    /// be refused, too.
    pub(crate) fn is_of_the_client(&self) -> bool {
        !matches!(
            self,
            Self::ChannelConsumers { .. } | Self::VhostQueues { .. } | Self::ClusterQueues
        )
    }

    /// How to raise it.
    pub fn remedy(&self) -> String {
        let set = |who: &str, key: &str| {
            format!("raise it with `rabbitmqctl {who} '{{\"{key}\": N}}'`, or end others")
        };
        let configure = |key: &str| format!("raise {key} in rabbitmq.conf");
        match self {
            Self::UserConnections { user } => {
                set(&format!("set_user_limits {user:?}"), "max-connections")
            }
            Self::VhostConnections { vhost } => {
                set(&format!("set_vhost_limits -p {vhost:?}"), "max-connections")
            }
            Self::NodeConnections => configure("connection_max"),
            Self::ConnectionChannels => {
                format!("{}, and in broker.url if it names one", configure("channel_max"))
            }
            Self::UserChannels { user } => {
                set(&format!("set_user_limits {user:?}"), "max-channels")
            }
            Self::NodeChannels => configure("channel_max_per_node"),
            Self::ChannelConsumers { .. } => configure("consumer_max_per_channel"),
            Self::VhostQueues { vhost } => {
                format!(
                    "raise it with `rabbitmqctl set_vhost_limits -p {vhost:?} '{{\"max-queues\": N}}'`, or delete queues"
                )
            }
            Self::ClusterQueues => configure("cluster_queue_limit"),
            Self::ProcessFiles => {
                "raise `ulimit -n`, or LimitNOFILE of the systemd unit".to_owned()
            }
            Self::MachineFiles => "raise the sysctl fs.file-max".to_owned(),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UserConnections { user } => {
                write!(f, "user {user:?} has as many connections as it may have")
            }
            Self::VhostConnections { vhost } => {
                write!(f, "virtual host {vhost:?} has as many connections as it may have")
            }
            Self::NodeConnections => f.write_str("the node has as many connections as it may have"),
            Self::ConnectionChannels => {
                f.write_str("the connection has as many channels as it may have")
            }
            Self::UserChannels { user } => {
                write!(f, "user {user:?} has as many channels as it may have")
            }
            Self::NodeChannels => f.write_str("the node has as many channels as it may have"),
            Self::ChannelConsumers { most } => {
                write!(f, "the channel has as many consumers as it may have ({most})")
            }
            Self::VhostQueues { vhost } => {
                write!(f, "virtual host {vhost:?} has as many queues as it may have")
            }
            Self::ClusterQueues => f.write_str("the cluster has as many queues as it may have"),
            Self::ProcessFiles => {
                f.write_str("this process has as many files and sockets open as it may have")
            }
            Self::MachineFiles => {
                f.write_str("this machine has as many files and sockets open as it may have")
            }
        }
    }
}

/// The name between these two, or all to the end if the text was cut there.
fn named<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).map_or(text, |(_, rest)| rest);
    rest.rsplit_once(after).map_or(rest, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Limit> {
        let code = if text.starts_with("NOT_ALLOWED") { 530 } else { 406 };
        Limit::of_answer(code, text)
    }

    #[test]
    fn each_limit_is_told_from_what_the_broker_says_on_every_version() {
        let (user, vhost) = (|| "a 'user'".to_owned(), || "a/vhost".to_owned());
        for (text, limit) in [
            (
                "NOT_ALLOWED - connection refused for user 'a 'user'': user connection limit (2) is reached",
                Limit::UserConnections { user: user() },
            ),
            (
                "NOT_ALLOWED - access to vhost 'a/vhost' refused for user 'svc': connection limit (2) is reached",
                Limit::VhostConnections { vhost: vhost() },
            ),
            (
                "NOT_ALLOWED - connection refused: node connection limit (2) is reached",
                Limit::NodeConnections,
            ),
            (
                "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)",
                Limit::ConnectionChannels,
            ),
            (
                "NOT_ALLOWED - number of channels opened for user 'a 'user'' has reached the maximum allowed user limit of (2)",
                Limit::UserChannels { user: user() },
            ),
            (
                "NOT_ALLOWED - number of channels opened for user 'a 'user'' has reached the maximum allowed user limit of 2",
                Limit::UserChannels { user: user() },
            ),
            (
                "NOT_ALLOWED - number of channels opened on node 'rabbit@a' has reached the maximum allowed limit of (2)",
                Limit::NodeChannels,
            ),
            (
                "NOT_ALLOWED - reached maximum (3) of consumers per channel",
                Limit::ChannelConsumers { most: 3 },
            ),
            (
                "PRECONDITION_FAILED - cannot declare queue 'q': queue limit in vhost 'a/vhost' (2) is reached",
                Limit::VhostQueues { vhost: vhost() },
            ),
            (
                "PRECONDITION_FAILED - cannot declare queue 'queue limit in vhost 'x' (1)': queue limit in cluster (2) is reached",
                Limit::ClusterQueues,
            ),
        ] {
            assert_eq!(of(text), Some(limit), "{text}");
        }
    }

    #[test]
    fn a_refused_login_is_no_limit() {
        for text in [
            "NOT_ALLOWED - access to vhost 'a' refused for user 'svc'",
            "NOT_ALLOWED - vhost nowhere not found",
            "NOT_ALLOWED - attempt to reuse consumer tag 'x'",
            "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'queue limit in vhost 'a' (2)'",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(Limit::of_answer(403, "ACCESS_REFUSED - connection refused for user 'x'"), None);
    }

    #[test]
    fn a_name_that_fills_the_brokers_text_leaves_the_limit_recognisable() {
        let text = format!("NOT_ALLOWED - connection refused for user '{}...", "u".repeat(200));
        let Some(limit @ Limit::UserConnections { .. }) = of(&text) else { panic!("{text}") };
        assert!(limit.remedy().contains("max-connections"), "{}", limit.remedy());
    }
}
