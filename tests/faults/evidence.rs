//! Proof that a fault has happened. Without its fault a case proves nothing, so each of these
//! checks can fail the case.

use std::time::{Duration, Instant};

use lapin::{Connection, ConnectionProperties};
use rand::Rng as _;
use rehop_testing::{Broker, Client, Management, Proxy, ProxyConnection, eventually};
use serde_json::{Value, json};

use crate::ground::SOON;
use crate::service::Service;

/// A random duration.
pub(crate) fn between(least: u64, most: u64) -> Duration {
    Duration::from_millis(rand::rng().random_range(least..=most))
}

/// Sleeps while a fault lasts. It is not used to wait for anything else.
pub(crate) async fn lasts(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Waits until the service has logged this.
pub(crate) async fn says(service: &Service, what: &str) {
    eventually(SOON, what, async || {
        let log = service.log();
        if log.contains(what) { Ok(true) } else { Err(log) }
    })
    .await
    .unwrap();
}

/// Waits until the broker reports this alarm.
pub(crate) async fn alarm_is_on(broker: &Broker, resource: &str) {
    let management = broker.management().unwrap();
    let is_on = async || {
        management.alarms().await.map(|alarms| alarms.iter().any(|alarm| alarm == resource))
    };
    eventually(SOON, "the alarm is on", is_on).await.unwrap();
}

pub(crate) async fn no_alarm_is_on(broker: &Broker) {
    let management = broker.management().unwrap();
    let is_over = async || management.alarms().await.map(|alarms| alarms.is_empty());
    eventually(SOON, "the alarm is over", is_over).await.unwrap();
}

/// Connections of these services that publish during an alarm.
pub(crate) async fn blocked(broker: &Broker, user: &str) {
    eventually(SOON, "a connection of the service is blocked", async || {
        let listed = broker
            .rabbitmqctl(&["list_connections", "user", "state"])
            .await
            .map_err(|e| e.to_string())?;
        let blocked = listed.lines().any(|line| line.contains(user) && line.contains("blocked"));
        if blocked { Ok(true) } else { Err(listed) }
    })
    .await
    .unwrap();
}

/// A policy on queues, which the broker has put into effect.
pub(crate) struct Policy {
    management: Management,
    name: String,
}

impl Policy {
    /// A policy for one queue.
    pub(crate) async fn set(broker: &Broker, queue: &str, definition: Value) -> Self {
        // Dots are the only special characters of patterns in these queues' names.
        let pattern = format!("^{}$", queue.replace('.', "\\."));
        let name = format!("on {queue}");
        let management = broker.management().unwrap();
        management.set_policy(&name, &pattern, definition).await.unwrap();
        Self { management, name }
    }

    pub(crate) async fn clear(self) {
        self.management.delete_policy(&self.name).await.unwrap();
    }
}

/// What the policy does with a full queue.
pub(crate) fn room_for_one() -> Value {
    json!({ "max-length": 1, "overflow": "reject-publish" })
}

/// A connection that was open and has been closed.
pub(crate) async fn broken(connection: &ProxyConnection, fault: impl FnOnce(&ProxyConnection)) {
    assert!(connection.is_open(), "connection {} is open until it is broken", connection.index());
    fault(connection);
    assert!(!connection.is_open(), "connection {} is broken", connection.index());
}

/// Waits until the service has the connections that it works with, breaks all that it has, and
/// returns how many there were.
pub(crate) async fn all_broken(proxy: &Proxy, fault: impl FnOnce(&Proxy)) -> usize {
    eventually(SOON, "the service consumes and publishes", async || proxy.open() >= 2)
        .await
        .unwrap();
    let open: Vec<ProxyConnection> =
        proxy.connections().into_iter().filter(ProxyConnection::is_open).collect();
    fault(proxy);
    assert!(open.iter().all(|connection| !connection.is_open()), "the connections are broken");
    open.len()
}

/// Waits until a further connection has been made.
pub(crate) async fn replaced(proxy: &Proxy, accepted: usize) {
    eventually(SOON, "another connection was made", async || proxy.accepted() > accepted)
        .await
        .unwrap();
}

/// Waits until what a slow network holds of connections that the service has given up has reached
/// the broker. Copies that arrive later than the end of a case would be found in a queue, where
/// nothing takes them.
pub(crate) async fn all_arrived(proxy: &Proxy) {
    // For consuming, for publishing, and for looks.
    eventually(SOON, "the connections that were given up are closed", async || proxy.open() <= 3)
        .await
        .unwrap();
}

/// A client that was connected before the broker went away, and notices.
pub(crate) struct Witness {
    client: Client,
    connection: Connection,
}

impl Witness {
    pub(crate) async fn new(broker: &Broker) -> Self {
        let client = broker.client().await.unwrap();
        let connection =
            Connection::connect(broker.amqp_url(), ConnectionProperties::default()).await.unwrap();
        Self { client, connection }
    }

    /// The broker has forgotten its connection.
    pub(crate) async fn was_cut_off(&self) {
        eventually(SOON, "the broker went away", async || !self.connection.status().connected())
            .await
            .unwrap();
    }

    /// The broker answers nothing.
    pub(crate) async fn gets_no_answer(&self, within: Duration) {
        let answer = tokio::time::timeout(within, self.client.depth("no such queue")).await;
        assert!(answer.is_err(), "the broker is frozen: {answer:?}");
    }
}

/// Waits until no more bytes pass.
pub(crate) async fn quiet(bytes: impl Fn(&ProxyConnection) -> u64, connection: &ProxyConnection) {
    // Several looks, because this process may have stood still itself.
    let mut last = (bytes(connection), Instant::now(), 0);
    eventually(SOON, "all bytes have passed", async || {
        let now = bytes(connection);
        last = if now == last.0 { (now, last.1, last.2 + 1) } else { (now, Instant::now(), 0) };
        last.1.elapsed() > Duration::from_millis(300) && last.2 >= 4
    })
    .await
    .unwrap();
}
