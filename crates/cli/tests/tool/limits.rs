//! The tool where the broker's limits leave it no room: one line names the limit, whose it is, and
//! how to raise it.

use std::time::Duration;

use rehop_testing::{Broker, Client, Publish, eventually};
use serde_json::{Value, json};

use super::endpoint::{Endpoint, status};
use super::examined::COUNTED;
use super::vhost::Vhost;
use crate::support::{Fixture, SOON, fragile_broker};

/// Each user's password, which nothing may print.
const PASSWORD: &str = "pass";

/// A fixture of a user of its own, in a virtual host of its own.
struct Limited {
    fixture: Fixture,
    vhost: Vhost,
    /// The user's name.
    user: String,
}

impl Limited {
    async fn new(test: &str) -> Self {
        let mut vhost = Vhost::new(test).await;
        let url = vhost.user("limited", [".*"; 3]).await;
        let user = url.username().to_owned();
        let mut fixture = Fixture::at(test, vhost.url.as_str()).await;
        fixture.settings.broker.url = url.as_str().into();
        fixture.settings.broker.startup_timeout = Duration::from_secs(1);
        Self { fixture, vhost, user }
    }

    /// The path of a limit in the management API.
    fn path(&self, whose: &str, key: &str) -> String {
        match whose {
            "user" => format!("user-limits/{}/{key}", self.user),
            _ => format!("vhost-limits/{}/{key}", self.vhost.name),
        }
    }

    async fn limit(&self, whose: &str, key: &str, most: u64) {
        let management = Broker::shared().await.management().unwrap();
        management.put(&self.path(whose, key), &json!({ "value": most })).await.unwrap();
        if most == 0 && key != "max-queues" {
            let is_refused = async || Ok::<_, String>(!self.has_room().await);
            eventually(SOON, "the limit is in effect", is_refused).await.unwrap();
        }
    }

    async fn unlimit(&self, whose: &str, key: &str) {
        let management = Broker::shared().await.management().unwrap();
        management.delete(&self.path(whose, key)).await.unwrap();
        let has_room = async || Ok::<_, String>(self.has_room().await);
        eventually(SOON, "the limit is gone", has_room).await.unwrap();
    }

    /// Whether there is room for a connection with a channel.
    async fn has_room(&self) -> bool {
        let url = self.fixture.settings.broker.url.expose();
        let Ok(client) = Client::connect(url).await else { return false };
        // That succeeds although there is no such queue.
        client.delete_queue("nothing").await.is_ok()
    }

    /// What a line says of a limit that is reached: whose it is, and how to raise it.
    fn says(&self, whose: &str, key: &str) -> [String; 2] {
        let kind = key.strip_prefix("max-").unwrap();
        let (name, command) = match whose {
            "user" => (format!("user {:?}", self.user), format!("set_user_limits {:?}", self.user)),
            _ => {
                let name = &self.vhost.name;
                (format!("virtual host {name:?}"), format!("set_vhost_limits -p {name:?}"))
            }
        };
        let raise = format!("raise it with `rabbitmqctl {command} '{{\"{key}\": N}}'`");
        [format!("{name} has as many {kind} as it may have"), raise]
    }
}

/// That an error names the limit, and advises nothing else.
fn names(said: &str, [reached, raise]: &[String; 2], what: &str) {
    assert!(said.contains(reached) && said.contains(raise), "{what}: {said}");
    assert!(!said.contains("password") && !said.contains(PASSWORD), "{what}: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_that_gets_no_connection_or_channel_names_the_limit_in_one_line() {
    let limited = Limited::new("no-room").await;
    let fixture = &limited.fixture;
    fixture.declare().await;
    let management = Broker::shared().await.management_url().unwrap();
    let queue = fixture.queue.as_str();
    for (whose, key) in
        [("user", "max-connections"), ("user", "max-channels"), ("vhost", "max-connections")]
    {
        limited.limit(whose, key, 0).await;
        for command in [
            &["doctor", "--queue", queue][..],
            &["doctor", "--queue", queue, "--management", management],
            &["topology", "declare", "--queue", queue],
            &["topology", "verify", "--queue", queue],
            &["topology", "plan", "--queue", queue],
            &["topology", "prune", "--queue", queue, "--management", management],
            &["parked", "list"],
            &["parked", "list", "--queue", queue],
            &["parked", "show", "--queue", queue, "order-7"],
            &["parked", "replay", "--queue", queue, "--apply", "--all"],
            &["publish", "--queue", queue, "--json", "1"],
        ] {
            let error = fixture.tool(command).finished().await.error(1);
            names(&error, &limited.says(whose, key), &format!("{whose}, {key}, {command:?}"));
        }
        limited.unlimit(whose, key).await;
    }
    limited.vhost.delete().await;
}

/// It opens two connections, because the broker may block one.
#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_that_gets_only_one_of_its_connections_names_the_limit() {
    let limited = Limited::new("one-room").await;
    limited.fixture.declare().await;
    limited.limit("user", "max-connections", 1).await;
    let error = limited.fixture.doctor(&[]).await.error(1);
    names(&error, &limited.says("user", "max-connections"), "one connection");
    limited.limit("user", "max-connections", 2).await;
    // The broker may take a moment to forget the connections of before.
    eventually(SOON, "two connections are enough", async || {
        let finished = limited.fixture.doctor(&[]).await;
        if finished.code() == 1 { Err(finished.err) } else { Ok(true) }
    })
    .await
    .unwrap();
    limited.vhost.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_would_declare_one_queue_too_many_names_the_limit_and_does_nothing() {
    let limited = Limited::new("no-queues").await;
    let fixture = &limited.fixture;
    let (whose, key) = ("vhost", "max-queues");
    limited.limit(whose, key, 0).await;
    let says = limited.says(whose, key);
    let declare = ["topology", "declare", "--queue", fixture.queue.as_str()];
    names(&fixture.tool(&declare).finished().await.error(1), &says, "declaring");
    // The doctor finds this limit, too.
    let look = ["--management", Broker::shared().await.management_url().unwrap()];
    let examined = eventually(COUNTED, "the doctor finds the limit", async || {
        let finished = fixture.doctor(&look).await;
        let report: Value = serde_json::from_str(&finished.out).map_err(|_| finished.err)?;
        let findings = report["findings"].as_array().unwrap();
        let object = format!("queues of virtual host {:?}", limited.vhost.name);
        let is_it = |it: &&Value| it["object"].as_str().is_some_and(|it| it.contains(&object));
        let found = findings.iter().find(is_it).ok_or(finished.out)?.to_string();
        Ok::<_, String>(found.contains("set_vhost_limits"))
    });
    examined.await.unwrap();
    limited.unlimit(whose, key).await;
    fixture.declare().await;
    // The queue of what is discarded is declared only then.
    let message = Publish::to_queue(fixture.parked()).message_id("order-7").body("x");
    fixture.client.publish(message).await.unwrap();
    limited.limit(whose, key, 0).await;
    let discard = ["parked", "discard", "--queue", fixture.queue.as_str(), "--apply", "--all"];
    names(&fixture.tool(&discard).finished().await.error(1), &says, "discarding");
    fixture.has_depth(&fixture.parked(), 1).await;
    limited.vhost.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_starts_without_room_says_why_it_waits_and_goes_on_when_there_is_room() {
    let mut limited = Limited::new("relay-room").await;
    limited.fixture.settings.broker.startup_timeout = SOON;
    let endpoint = Endpoint::start(|_| async { status(204) }).await;
    for (count, (whose, key)) in [
        ("user", "max-connections"),
        ("user", "max-channels"),
        ("vhost", "max-connections"),
        ("vhost", "max-queues"),
    ]
    .into_iter()
    .enumerate()
    {
        let fixture = &limited.fixture;
        limited.limit(whose, key, 0).await;
        let relay =
            fixture.tool(&["relay", "--queue", fixture.queue.as_str(), "--to", &endpoint.url]);
        let says = limited.says(whose, key);
        relay.logs(&says[0]).await;
        limited.unlimit(whose, key).await;
        relay.consumes().await;
        fixture.publish("x").await;
        endpoint.receives(count + 1).await;
        let ended = relay.stop().await;
        let line = ended.err.lines().find(|line| line.contains(&says[0])).unwrap_or_default();
        names(line, &says, &format!("{whose}, {key}"));
        // For the next round, which has to declare its queue.
        let queues = [fixture.queue.clone(), fixture.parked(), fixture.stray()];
        let tiers = [100, 200].map(|tier| format!("{}.wait.{tier}", fixture.namespace.name()));
        for queue in queues.iter().chain(&tiers) {
            fixture.client.delete_queue(queue).await.unwrap();
        }
    }
    limited.vhost.delete().await;
}

/// What fails can be copied only when the alarm is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_starts_during_an_alarm_says_that_it_waits_and_goes_on_when_it_is_over() {
    let broker = fragile_broker().await;
    let fixture = Fixture::at("relay-alarm", broker.amqp_url()).await;
    fixture.declare().await;
    fixture.publish("fails once").await;
    for (raise, end, alarm) in [
        ("set_vm_memory_high_watermark 0.0000001", "set_vm_memory_high_watermark 0.6", "memory"),
        ("set_disk_free_limit 999999GB", "set_disk_free_limit 50MB", "disk"),
    ] {
        let command = |text: &'static str| text.split(' ').collect::<Vec<_>>();
        broker.rabbitmqctl(&command(raise)).await.unwrap();
        let management = broker.management().unwrap();
        eventually(SOON, "the alarm is raised", async || {
            management.alarms().await.map(|alarms| !alarms.is_empty())
        })
        .await
        .unwrap();
        let endpoint = Endpoint::start(|arrived| async move {
            let is_first = arrived.header("rehop-attempt").is_none_or(|attempt| attempt == "1");
            status(if is_first { 503 } else { 204 })
        })
        .await;
        let relay =
            fixture.tool(&["relay", "--queue", fixture.queue.as_str(), "--to", &endpoint.url]);
        relay.logs("the broker blocks publishing; copies wait until its alarm is over").await;
        assert_eq!(endpoint.arrived().len(), 1, "{alarm}: a copy got through");
        broker.rabbitmqctl(&command(end)).await.unwrap();
        endpoint.receives(2).await;
        relay.stop().await;
        fixture.has_depth(&fixture.queue, 0).await;
        fixture.publish("fails once more").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_that_the_doctor_names_shows_each_limit_that_the_management_api_does_not_tell()
{
    let broker = fragile_broker().await;
    let fixture = Fixture::at("untold-limits", broker.amqp_url()).await;
    fixture.declare().await;
    let limits = [
        ("connection_max", "54321"),
        ("channel_max_per_node", "54322"),
        ("handshake_timeout", "54323"),
        ("consumer_max_per_channel", "54324"),
        ("cluster_queue_limit", "54325"),
        ("max_message_size", "5432600"),
    ];
    for (key, limit) in limits {
        let set = format!("application:set_env(rabbit, {key}, {limit}).");
        broker.rabbitmqctl(&["eval", &set]).await.unwrap();
    }
    let look = ["--management", broker.management_url().unwrap()];
    let doctor = [&["doctor", "--queue", fixture.queue.as_str()], &look[..]].concat();
    let examined = fixture.tool(&doctor).finished().await.out;
    let management = broker.management().unwrap();
    let mut told = String::new();
    for path in ["nodes", "overview"] {
        told += &management.get(path).await.unwrap().to_string();
    }
    for (key, limit) in limits {
        let line = examined.lines().find(|line| line.contains(&format!("shows {key} if")));
        let line = line.unwrap_or_else(|| panic!("{key} is missing: {examined}"));
        let command = line.split("`rabbitmqctl ").nth(1).unwrap().split('`').next().unwrap();
        let arguments: Vec<_> = command.split(' ').collect();
        let shown = broker.rabbitmqctl(&arguments).await.unwrap();
        assert!(shown.contains(&format!("{{{key},{limit}}}")), "{key}: {shown}");
        // If the API told it, it would not have to be unknown.
        assert!(!told.contains(limit), "{key}: {told}");
    }
}
