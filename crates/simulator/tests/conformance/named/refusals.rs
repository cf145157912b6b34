//! The broker's limits: with which code and text each refuses. A limit concerns everybody, so these
//! run on a broker of their own, and not as scripts.

use std::collections::BTreeMap;
use std::time::Duration;

use lapin::options::{BasicConsumeOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties, ErrorKind};
use rehop_simulator::{Event, Limits, Method, Time, Version};
use rehop_testing::{Broker, eventually};

use crate::bench::bench;

/// What is refused.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Refused {
    Connection,
    Channel,
    Consumer,
    Queue,
}

/// A limit of none, or of one consumer: how it is set on either side, and what it refuses.
struct Case {
    refused: Refused,
    set: &'static [&'static str],
    clear: &'static [&'static str],
    simulated: fn(&mut Limits),
}

const CASES: [Case; 8] = [
    Case {
        refused: Refused::Connection,
        set: &["set_user_limits", "guest", r#"{"max-connections": 0}"#],
        clear: &["clear_user_limits", "guest", "all"],
        simulated: |limits| limits.user_connections = none_for_guest(),
    },
    Case {
        refused: Refused::Connection,
        set: &["set_vhost_limits", r#"{"max-connections": 0}"#],
        clear: &["clear_vhost_limits"],
        simulated: |limits| limits.vhost_connections = Some(0),
    },
    Case {
        refused: Refused::Connection,
        set: &["eval", "application:set_env(rabbit, connection_max, 0)."],
        clear: &["eval", "application:set_env(rabbit, connection_max, infinity)."],
        simulated: |limits| limits.node_connections = Some(0),
    },
    Case {
        refused: Refused::Channel,
        set: &["set_user_limits", "guest", r#"{"max-channels": 0}"#],
        clear: &["clear_user_limits", "guest", "all"],
        simulated: |limits| limits.user_channels = none_for_guest(),
    },
    Case {
        refused: Refused::Channel,
        set: &["eval", "application:set_env(rabbit, channel_max_per_node, 0)."],
        clear: &["eval", "application:set_env(rabbit, channel_max_per_node, infinity)."],
        simulated: |limits| limits.node_channels = Some(0),
    },
    Case {
        refused: Refused::Consumer,
        set: &["eval", "application:set_env(rabbit, consumer_max_per_channel, 1)."],
        clear: &["eval", "application:set_env(rabbit, consumer_max_per_channel, infinity)."],
        simulated: |limits| limits.channel_consumers = Some(1),
    },
    Case {
        refused: Refused::Queue,
        set: &["set_vhost_limits", r#"{"max-queues": 0}"#],
        clear: &["clear_vhost_limits"],
        simulated: |limits| limits.vhost_queues = Some(0),
    },
    Case {
        refused: Refused::Queue,
        set: &["eval", "application:set_env(rabbit, cluster_queue_limit, 0)."],
        clear: &["eval", "application:set_env(rabbit, cluster_queue_limit, infinity)."],
        simulated: |limits| limits.cluster_queues = Some(0),
    },
];

fn none_for_guest() -> BTreeMap<String, usize> {
    [("guest".to_owned(), 0)].into()
}

/// Code and text of a refusal; `None` if all was admitted.
type CloseReason = Option<(u16, String)>;

/// Does what is to be refused on the real broker.
#[expect(clippy::disallowed_methods, reason = "the connection is new, and ends here")]
async fn real(broker: &Broker, refused: Refused) -> CloseReason {
    let done = async {
        let properties = ConnectionProperties::default();
        let connection = Connection::connect(broker.amqp_url(), properties).await?;
        if refused == Refused::Connection {
            return connection.close(200, "done".into()).await;
        }
        let channel = connection.create_channel().await?;
        if refused == Refused::Channel {
            return connection.close(200, "done".into()).await;
        }
        let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
        channel.queue_declare("refused".into(), options, FieldTable::default()).await?;
        for tag in ["one", "two"] {
            let options = BasicConsumeOptions::default();
            let arguments = FieldTable::default();
            channel.basic_consume("refused".into(), tag.into(), options, arguments).await?;
        }
        connection.close(200, "done".into()).await
    };
    match done.await.map_err(|error| error.kind().clone()) {
        Ok(()) => None,
        Err(ErrorKind::ProtocolError(answer)) => {
            Some((answer.get_id(), without_node(answer.get_message().as_str())))
        }
        // lapin does not always tell why a connection has ended.
        Err(error) => Some((0, format!("{error:?}"))),
    }
}

/// The same on the simulated one.
fn simulated(version: Version, Case { refused, simulated, .. }: &Case) -> CloseReason {
    let mut broker = rehop_simulator::Broker::new(version);
    simulated(&mut broker.limits);
    let refusal = broker.refuses_connection("guest");
    let Some(connection) = broker.connect(Time::ZERO, "guest") else { return refusal };
    let consume = |tag: &str| Method::Consume {
        queue: "refused".into(),
        consumer_tag: tag.into(),
        is_no_ack: false,
        is_exclusive: false,
        arguments: FieldTable::default(),
    };
    let declare = Method::DeclareQueue {
        queue: "refused".into(),
        is_passive: false,
        is_durable: false,
        is_exclusive: true,
        is_auto_delete: false,
        arguments: FieldTable::default(),
    };
    let all = [Method::OpenChannel, declare, consume("one"), consume("two")];
    let wanted = match refused {
        Refused::Connection => 0,
        Refused::Channel => 1,
        Refused::Consumer | Refused::Queue => all.len(),
    };
    for method in all.into_iter().take(wanted) {
        broker.receive(Time::ZERO, connection, 1, method);
    }
    broker.sent().find_map(|sent| match sent.event {
        Event::Closed { code, text } => Some((code, without_node(&text))),
        _ => None,
    })
}

/// A text without the name of a node.
fn without_node(text: &str) -> String {
    match text.split_once("'rabbit@") {
        Some((before, rest)) => {
            let after = rest.split_once('\'').map_or("", |(_, after)| after);
            format!("{before}'NODE'{after}")
        }
        None => text.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_limit_refuses_with_the_same_code_and_text() {
    let version = bench().await.version;
    let broker = Broker::builder().own().start().await.unwrap();
    if !broker.has_rabbitmqctl() {
        return;
    }
    for case in &CASES {
        broker.rabbitmqctl(case.set).await.unwrap();
        answers(&broker, case, simulated(version, case)).await;
        broker.rabbitmqctl(case.clear).await.unwrap();
        answers(&broker, case, None).await;
    }
}

/// A client refuses further channels itself, so this compares what it is told.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "the connection is new, and ends here")]
async fn a_connection_may_have_as_many_channels_as_it_was_told_when_it_was_opened() {
    let version = bench().await.version;
    let broker = Broker::builder().own().start().await.unwrap();
    if !broker.has_rabbitmqctl() {
        return;
    }
    let set = async |most: u16| {
        let expression = format!("application:set_env(rabbit, channel_max, {most}).");
        broker.rabbitmqctl(&["eval", &expression]).await.unwrap();
    };
    let mut simulated = rehop_simulator::Broker::new(version);
    for most in [7, 2] {
        set(most).await;
        simulated.limits.connection_channels = Some(most);
        let properties = ConnectionProperties::default();
        let connection = Connection::connect(broker.amqp_url(), properties).await.unwrap();
        let twin = simulated.connect(Time::ZERO, "guest").unwrap();
        set(1).await;
        simulated.limits.connection_channels = Some(1);
        assert_eq!(Some(connection.configuration().channel_max()), simulated.channel_max(twin));
        let mut channels = Vec::new();
        for number in 1..=most {
            channels.push(connection.create_channel().await.unwrap());
            simulated.receive(Time::ZERO, twin, number, Method::OpenChannel);
        }
        let is_closed = |event: &Event| matches!(event, Event::Closed { .. });
        assert!(!simulated.sent().any(|sent| is_closed(&sent.event)));
        connection.close(200, "done".into()).await.unwrap();
    }
}

/// A limit may take a moment to come into effect, or to be gone.
async fn answers(broker: &Broker, case: &Case, expected: CloseReason) {
    eventually(Duration::from_secs(60), "the broker refuses as the simulated one", async || {
        let seen = real(broker, case.refused).await;
        if seen == expected {
            return Ok(true);
        }
        Err(format!("{:?} {:?}: {seen:?} and not {expected:?}", case.refused, case.set))
    })
    .await
    .unwrap();
}
