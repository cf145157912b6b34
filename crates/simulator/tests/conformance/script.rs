//! A script: what clients do with a small topology, as plain data that can be printed, drawn from a
//! seed and shortened.

use std::fmt;

/// One of a script's queues, exchanges, channels or connections, from 0.
pub(crate) type Index = usize;

/// A script's channels. Two share a connection.
pub(crate) const CHANNELS: [(Index, u16); 3] = [(0, 1), (0, 2), (1, 1)];

/// What clients do, in order. Whatever a step needs, such as an open channel, is provided with it,
/// so that a script stays valid when steps are taken out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Script {
    /// Made before the first step, in this order.
    pub(crate) topology: Vec<Step>,
    /// What is compared.
    pub(crate) steps: Vec<Step>,
}

/// One thing that a client does. Its effects are awaited before the next one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Comes by itself before a step that needs it.
    OpenChannel {
        channel: Index,
    },
    DeclareQueue {
        channel: Index,
        queue: Index,
        arguments: Table,
    },
    /// With other properties than all other queues have.
    DeclareOddQueue {
        channel: Index,
        queue: Index,
        oddity: Oddity,
        arguments: Table,
    },
    LookAtQueue {
        channel: Index,
        queue: Index,
    },
    DeclareExchange {
        channel: Index,
        exchange: Index,
        kind: &'static str,
        arguments: Table,
    },
    Bind {
        channel: Index,
        queue: Index,
        exchange: Index,
        key: Key,
        arguments: Table,
    },
    Unbind {
        channel: Index,
        queue: Index,
        exchange: Index,
        key: Key,
        arguments: Table,
    },
    BindExchange {
        channel: Index,
        destination: Index,
        source: Index,
        key: Key,
        arguments: Table,
    },
    DeleteExchange {
        channel: Index,
        exchange: Index,
    },
    Publish {
        channel: Index,
        messages: Vec<Message>,
    },
    Subscribe {
        channel: Index,
        queue: Index,
        tag: u32,
        prefetch: u16,
        is_no_ack: bool,
        arguments: Table,
    },
    Cancel {
        channel: Index,
        pick: usize,
    },
    Get {
        channel: Index,
        queue: Index,
        is_no_ack: bool,
    },
    Settle {
        channel: Index,
        pick: usize,
        is_multiple: bool,
        how: Settlement,
    },
    SettleUnknown {
        channel: Index,
    },
    CloseChannel {
        channel: Index,
    },
    CloseConnection {
        connection: Index,
    },
    CutConnection {
        connection: Index,
    },
    /// Until the next thing is due, if that is soon.
    PassTime,
    Purge {
        channel: Index,
        queue: Index,
    },
    DeleteQueue {
        channel: Index,
        queue: Index,
        if_empty: bool,
    },
    SetPolicy {
        queue: Index,
        definition: Table,
    },
    ClearPolicy {
        queue: Index,
    },
}

/// What a quorum queue cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Oddity {
    Transient,
    Exclusive,
    AutoDelete,
}

/// How a held message is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settlement {
    Ack,
    Reject { is_requeued: bool },
    Nack { is_requeued: bool },
}

/// A message to publish.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    /// Its `message_id`.
    pub(crate) number: u32,
    /// `None` is the default exchange.
    pub(crate) exchange: Option<Index>,
    pub(crate) key: Key,
    pub(crate) is_mandatory: bool,
    pub(crate) headers: Table,
    pub(crate) expiration: Option<Value>,
    pub(crate) priority: Option<u8>,
    pub(crate) user: Option<&'static str>,
}

/// A routing key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Key {
    Queue(Index),
    Word(&'static str),
}

/// Arguments or headers.
pub(crate) type Table = Vec<(&'static str, Value)>;

/// What an argument or header says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Number(i64),
    Text(&'static str),
    Flag(bool),
    /// Milliseconds, which a slow machine stretches.
    Time(u32),
    /// The name of a queue.
    Queue(Index),
    /// The name of an exchange; `None` is the default exchange.
    Exchange(Option<Index>),
    /// Names of queues, as in `CC`.
    Queues(Vec<Index>),
    /// Hand-written death headers, as of a message that was dead-lettered before.
    Deaths {
        queue: Index,
        reason: &'static str,
    },
}

impl Script {
    /// How many queues the topology has.
    pub(crate) fn queues(&self) -> usize {
        let queues = self.topology.iter().chain(&self.steps).filter_map(|step| match step {
            Step::DeclareQueue { queue, .. } => Some(queue + 1),
            _ => None,
        });
        queues.max().unwrap_or(0)
    }

    /// How many exchanges the topology has.
    pub(crate) fn exchanges(&self) -> usize {
        let exchanges = self.topology.iter().chain(&self.steps).filter_map(|step| match step {
            Step::DeclareExchange { exchange, .. } => Some(exchange + 1),
            _ => None,
        });
        exchanges.max().unwrap_or(0)
    }
}

impl Step {
    /// The channel that it needs to be open. What is closed or settled is not opened for it.
    pub(crate) fn needs(&self) -> Option<Index> {
        match self {
            Self::DeclareQueue { channel, .. }
            | Self::DeclareOddQueue { channel, .. }
            | Self::LookAtQueue { channel, .. }
            | Self::DeclareExchange { channel, .. }
            | Self::Bind { channel, .. }
            | Self::Unbind { channel, .. }
            | Self::BindExchange { channel, .. }
            | Self::DeleteExchange { channel, .. }
            | Self::Publish { channel, .. }
            | Self::Subscribe { channel, .. }
            | Self::Get { channel, .. }
            | Self::SettleUnknown { channel }
            | Self::Purge { channel, .. }
            | Self::DeleteQueue { channel, .. } => Some(*channel),
            Self::OpenChannel { .. }
            | Self::Cancel { .. }
            | Self::Settle { .. }
            | Self::CloseChannel { .. }
            | Self::CloseConnection { .. }
            | Self::CutConnection { .. }
            | Self::PassTime
            | Self::SetPolicy { .. }
            | Self::ClearPolicy { .. } => None,
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.topology {
            writeln!(f, "      {step}")?;
        }
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "  {:>2}  {step}", number + 1)?;
        }
        Ok(())
    }
}

impl Step {
    /// A step that changes queues, exchanges or bindings.
    fn fmt_topology(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeclareQueue { channel, queue, arguments } => {
                write!(f, "c{channel} declares queue q{queue}{}", Listed(arguments))
            }
            Self::DeclareOddQueue { channel, queue, oddity, arguments } => {
                write!(f, "c{channel} declares queue q{queue} as {oddity:?}{}", Listed(arguments))
            }
            Self::LookAtQueue { channel, queue } => {
                write!(f, "c{channel} declares queue q{queue} passively")
            }
            Self::DeclareExchange { channel, exchange, kind, arguments } => {
                write!(f, "c{channel} declares {kind} exchange x{exchange}{}", Listed(arguments))
            }
            Self::Bind { channel, queue, exchange, key, arguments } => {
                write!(f, "c{channel} binds q{queue} to x{exchange} by {key}{}", Listed(arguments))
            }
            Self::Unbind { channel, queue, exchange, key, arguments } => {
                write!(
                    f,
                    "c{channel} unbinds q{queue} from x{exchange} by {key}{}",
                    Listed(arguments)
                )
            }
            Self::BindExchange { channel, destination, source, key, arguments } => {
                write!(
                    f,
                    "c{channel} binds x{destination} to x{source} by {key}{}",
                    Listed(arguments)
                )
            }
            Self::DeleteExchange { channel, exchange } => {
                write!(f, "c{channel} deletes exchange x{exchange}")
            }
            Self::Purge { channel, queue } => write!(f, "c{channel} purges q{queue}"),
            Self::DeleteQueue { channel, queue, if_empty } => {
                write!(
                    f,
                    "c{channel} deletes queue q{queue}{}",
                    if *if_empty { " if it is empty" } else { "" }
                )
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenChannel { channel } => write!(f, "c{channel} is opened"),
            Self::DeclareQueue { .. }
            | Self::DeclareOddQueue { .. }
            | Self::LookAtQueue { .. }
            | Self::DeclareExchange { .. }
            | Self::Bind { .. }
            | Self::Unbind { .. }
            | Self::BindExchange { .. }
            | Self::DeleteExchange { .. }
            | Self::Purge { .. }
            | Self::DeleteQueue { .. } => self.fmt_topology(f),
            Self::Publish { channel, messages } => {
                write!(f, "c{channel} publishes")?;
                messages.iter().try_for_each(|message| write!(f, " {message};"))
            }
            Self::Subscribe { channel, queue, tag, prefetch, is_no_ack, arguments } => {
                let no_ack = if *is_no_ack { ", no-ack" } else { "" };
                write!(
                    f,
                    "c{channel} subscribes s{tag} to q{queue}, prefetch {prefetch}{no_ack}{}",
                    Listed(arguments)
                )
            }
            Self::Cancel { channel, pick } => write!(f, "c{channel} cancels subscription #{pick}"),
            Self::Get { channel, queue, is_no_ack } => {
                write!(
                    f,
                    "c{channel} gets from q{queue}{}",
                    if *is_no_ack { ", no-ack" } else { "" }
                )
            }
            Self::Settle { channel, pick, is_multiple, how } => {
                write!(
                    f,
                    "c{channel} {how} held #{pick}{}",
                    if *is_multiple { " and those before it" } else { "" }
                )
            }
            Self::SettleUnknown { channel } => write!(f, "c{channel} acks an unknown delivery"),
            Self::CloseChannel { channel } => write!(f, "c{channel} is closed"),
            Self::CloseConnection { connection } => write!(f, "connection {connection} is closed"),
            Self::CutConnection { connection } => write!(f, "connection {connection} is cut"),
            Self::PassTime => write!(f, "time passes"),
            Self::SetPolicy { queue, definition } => {
                write!(f, "q{queue} gets the policy{}", Listed(definition))
            }
            Self::ClearPolicy { queue } => write!(f, "q{queue} loses its policy"),
        }
    }
}

impl fmt::Display for Settlement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ack => "acks",
            Self::Reject { is_requeued: true } => "rejects to requeue",
            Self::Reject { is_requeued: false } => "rejects for good",
            Self::Nack { is_requeued: true } => "nacks to requeue",
            Self::Nack { is_requeued: false } => "nacks for good",
        })
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.number)?;
        match self.exchange {
            Some(exchange) => write!(f, " to x{exchange} by {}", self.key)?,
            None => write!(f, " to {}", self.key)?,
        }
        if let Some(expiration) = &self.expiration {
            write!(f, " expiring after {expiration}")?;
        }
        if let Some(priority) = self.priority {
            write!(f, " priority {priority}")?;
        }
        if let Some(user) = self.user {
            write!(f, " of user {user}")?;
        }
        write!(f, "{}{}", if self.is_mandatory { " mandatory" } else { "" }, Listed(&self.headers))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(queue) => write!(f, "q{queue}"),
            Self::Word(word) => write!(f, "'{word}'"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "'{text}'"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Time(millis) => write!(f, "{millis} ms"),
            Self::Queue(queue) => write!(f, "q{queue}"),
            Self::Exchange(Some(exchange)) => write!(f, "x{exchange}"),
            Self::Exchange(None) => write!(f, "the default exchange"),
            Self::Queues(queues) => write!(f, "{queues:?}"),
            Self::Deaths { queue, reason } => write!(f, "{reason} in q{queue}"),
        }
    }
}

/// A table in braces, or nothing if it is empty.
struct Listed<'a>(&'a Table);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        let entries =
            self.0.iter().map(|(key, value)| format!("{key}: {value}")).collect::<Vec<_>>();
        write!(f, " {{{}}}", entries.join(", "))
    }
}
