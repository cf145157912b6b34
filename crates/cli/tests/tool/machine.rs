//! The relay's process and its machine: too few files, a full disk, a stop, one CPU.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rehop_testing::eventually;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::endpoint::{Endpoint, status};
use super::folder::Folder;
use super::hostile::{Hostile, OK};
use super::process::{Tool, variables};
use super::relay_answers::is_on_the_page;
use crate::support::{Fixture, SOON};

impl Tool {
    /// How many files the process may have open from now on; `None` for as many as this one. What
    /// is open stays open.
    fn may_open(&self, files: Option<u64>) {
        let own = getrlimit(Resource::Nofile);
        let current = files.or(own.current);
        let pid = Pid::from_raw(self.id() as i32);
        prlimit(pid, Resource::Nofile, Rlimit { current, maximum: own.maximum }).unwrap();
    }

    /// Below what is open already.
    fn may_open_nothing(&self) {
        self.may_open(Some(3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_without_file_descriptors_waits_for_them_and_spends_no_attempt() {
    let fixture = Fixture::new("no-files").await;
    let endpoint = Endpoint::start(|_| async { status(200) }).await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    relay.may_open_nothing();
    for _ in 0..20 {
        fixture.publish("x").await;
    }
    relay.logs("no file descriptor is left for a connection to the endpoint").await;
    assert_eq!(endpoint.arrived().len(), 0);
    relay.may_open(None);
    let arrived = endpoint.receives(20).await;
    assert!(arrived.iter().all(|arrived| arrived.header("rehop-attempt") == Some("1")));
    let stopped = relay.stop().await;
    assert!(stopped.out.contains("handled 20, requeued 0, waited 0, parked 0"), "{}", stopped.out);
}

/// Its request needs a new connection, because the one that was kept is dead.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_sent_once_more_waits_for_a_file_descriptor_too() {
    let fixture = Fixture::new("no-files-resent").await;
    let is_dead = Arc::new(AtomicBool::new(false));
    let dies = is_dead.clone();
    let endpoint = Hostile::start(move |mut connection| {
        let dies = dies.clone();
        async move {
            while connection.asked().await.is_some() {
                if connection.number == 0 && dies.load(Ordering::SeqCst) {
                    return;
                }
                connection.say(OK).await;
            }
        }
    })
    .await;
    let options = ["--idle-timeout", "10m", "--concurrency", "1"];
    let relay = fixture.relay(&endpoint.url, &options).await;
    fixture.publish("first").await;
    endpoint.is_asked(1).await;
    is_dead.store(true, Ordering::SeqCst);
    relay.may_open_nothing();
    fixture.publish("second").await;
    relay.logs("no file descriptor is left for a connection to the endpoint").await;
    relay.may_open(None);
    let asked = endpoint.is_asked(3).await;
    let last = asked.last().unwrap();
    assert_eq!((last.body.as_str(), last.header("rehop-attempt")), ("second", Some("1")));
    let stopped = relay.stop().await;
    assert!(stopped.out.contains("handled 2, requeued 0, waited 0, parked 0"), "{}", stopped.out);
}

/// The message waits where the broker keeps it, and so does not count as held for too long.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_finds_no_file_descriptor_for_long_is_deferred_and_spends_no_attempt() {
    let fixture = Fixture::new("no-files-for-long").await;
    let endpoint = Endpoint::start(|_| async { status(200) }).await;
    let relay = fixture.relay(&endpoint.url, &["--timeout", "1s", "-v"]).await;
    relay.may_open_nothing();
    fixture.publish("x").await;
    relay.logs("the relay had no file descriptor for a connection within 1s").await;
    relay.may_open(None);
    let arrived = endpoint.receives(1).await;
    assert_eq!(arrived[0].header("rehop-attempt"), Some("1"));
    let stopped = relay.stop().await;
    assert!(
        stopped.out.contains("handled 1,") && stopped.out.contains("parked 0"),
        "{}",
        stopped.out
    );
    let what = "no file descriptor is free within `--timeout`: no attempt is used up, except with \
                strategy `native`. After `retry.max_defers`, 100 by default, it is parked as \
                `deferred_too_often`";
    is_on_the_page(what, "deferred", "no_file_descriptor");
}

/// A connection that ends needs none, either.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_loses_its_connections_without_a_file_descriptor_says_so_and_reconnects() {
    let mut fixture = Fixture::new("no-files-lost").await;
    let proxy = fixture.put_behind_proxy().await;
    let endpoint = Endpoint::start(|_| async { status(200) }).await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    fixture.publish("before").await;
    endpoint.receives(1).await;
    relay.may_open_nothing();
    for _ in 0..2 {
        proxy.cut();
    }
    relay.logs("this process has as many files and sockets open as it may have").await;
    relay.may_open(None);
    fixture.publish("after").await;
    endpoint.receives(2).await;
    let stopped = relay.stop().await;
    assert!(!stopped.err.contains("panicked"), "{}", stopped.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_was_stopped_for_longer_than_its_heartbeat_goes_on_and_says_so() {
    let mut fixture = Fixture::new("stopped").await;
    fixture.settings.broker.heartbeat = Duration::from_secs(1);
    let endpoint = Endpoint::start(|_| async { status(200) }).await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    fixture.is_subscribed().await;
    relay.signal("STOP");
    eventually(SOON, "the broker has given the relay up", async || {
        fixture.client.consumers(&fixture.queue).await.map(|consumers| consumers == 0)
    })
    .await
    .unwrap();
    for _ in 0..20 {
        fixture.publish("x").await;
    }
    // It is noticed after ten seconds at the latest.
    tokio::time::sleep(Duration::from_secs(11)).await;
    relay.signal("CONT");
    relay.logs("nothing ran in this process for").await;
    let arrived = endpoint.receives(20).await;
    assert!(arrived.iter().all(|arrived| arrived.header("rehop-attempt") == Some("1")));
    let stopped = relay.stop().await;
    assert!(stopped.out.contains("handled 20, requeued 0, waited 0, parked 0"), "{}", stopped.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_on_a_full_disk_holds_up_no_message() {
    let fixture = Fixture::new("full-log").await;
    let endpoint = Endpoint::start(|arrived| async move {
        status(if arrived.text() == "bad" { 400 } else { 200 })
    })
    .await;
    let arguments = ["relay", "--queue", &fixture.queue, "--to", &endpoint.url];
    let on_full_disk = ["sh", "-c", "exec \"$@\" 2>/dev/full", "sh"];
    let relay = Tool::start_by(&on_full_disk, &arguments, variables(&fixture.settings));
    fixture.is_declared(&fixture.queue).await;
    for _ in 0..20 {
        fixture.publish("bad").await;
        fixture.publish("good").await;
    }
    endpoint.receives(40).await;
    fixture.drain_parked(20).await;
    let stopped = relay.stop().await;
    assert!(stopped.out.contains("handled 20, requeued 0, waited 0, parked 20"), "{}", stopped.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_with_one_cpu_handles_everything() {
    let fixture = Fixture::new("one-cpu").await;
    let endpoint = Endpoint::start(|_| async { status(200) }).await;
    let arguments = ["relay", "--queue", &fixture.queue, "--to", &endpoint.url];
    let relay = Tool::start_by(&["taskset", "-c", "0"], &arguments, variables(&fixture.settings));
    relay.consumes().await;
    fixture.client.publish_many((0..500).map(|_| fixture.to_queue())).await.unwrap();
    endpoint.receives(500).await;
    let stopped = relay.stop().await;
    assert!(stopped.out.contains("handled 500, requeued 0, waited 0, parked 0"), "{}", stopped.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_whose_name_is_not_known_is_named_with_what_to_check() {
    let mut fixture = Fixture::new("unknown-host").await;
    fixture.settings.broker.url = "amqp://guest:hidden@nowhere.invalid".into();
    fixture.settings.broker.startup_timeout = Duration::from_secs(1);
    let relay = fixture.tool(&["relay", "--queue", "q", "--to", "http://127.0.0.1:1"]);
    let error = relay.finished().await.error(1);
    for text in ["nowhere.invalid:5672", "check the host in broker.url"] {
        assert!(error.contains(text), "{error}");
    }
    assert!(!error.contains("hidden"), "{error}");
}

/// As while a machine or a cluster starts.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_whose_name_is_known_only_later_is_reached_without_a_restart() {
    let mut fixture = Fixture::new("later-host").await;
    fixture.declare().await;
    let mut url: url::Url = fixture.settings.broker.url.expose().parse().unwrap();
    let address = url.host_str().unwrap().to_owned();
    let name = format!("{}.invalid", fixture.namespace.name());
    url.set_host(Some(&name)).unwrap();
    fixture.settings.broker.url = url.as_str().into();
    let folder = Folder::of(&fixture);
    let hosts = folder.0.join("hosts");
    fs::write(&hosts, "127.0.0.1 localhost\n").unwrap();
    let endpoint = Endpoint::start(|_| async { status(200) }).await;
    let arguments = ["relay", "--queue", &fixture.queue, "--to", &endpoint.url];
    // In a world of its own, this file says which names are known.
    let mount = format!("mount --bind {} /etc/hosts && exec \"$@\"", hosts.display());
    let with_hosts = ["unshare", "--map-root-user", "--mount", "sh", "-c", &mount, "sh"];
    let relay = Tool::start_by(&with_hosts, &arguments, variables(&fixture.settings));
    relay.logs("check the host in broker.url").await;
    let address = if address == "localhost" { "127.0.0.1" } else { &address };
    fs::write(&hosts, format!("127.0.0.1 localhost\n{address} {name}\n")).unwrap();
    relay.consumes().await;
    fixture.publish("x").await;
    endpoint.receives(1).await;
    let stopped = relay.stop().await;
    assert!(stopped.out.contains("handled 1, requeued 0, waited 0, parked 0"), "{}", stopped.out);
}
