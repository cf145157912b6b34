//! Signals.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::endpoint::{Endpoint, status};
use super::process::{Tool, variables};
use crate::support::{Fixture, SOON};

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_in_the_middle_of_work_loses_nothing_and_counts_no_delivery() {
    for signal in ["TERM", "INT", "HUP", "QUIT"] {
        a_signal_in_the_middle_of_work(signal).await;
    }
}

async fn a_signal_in_the_middle_of_work(signal: &str) {
    let fixture = Fixture::new("signal").await;
    let gate = Arc::new(Semaphore::new(0));
    let (held, messages) = (gate.clone(), 20);
    let endpoint = Endpoint::start(move |_| {
        let held = held.clone();
        async move {
            held.acquire().await.unwrap().forget();
            status(200)
        }
    })
    .await;
    let relay = fixture.relay_by(&WITH_ALL_SIGNALS, &endpoint.url).await;
    for id in 0..messages {
        fixture.client.publish(fixture.to_queue().message_id(id.to_string())).await.unwrap();
    }
    // The window opens with the first message that is handled.
    gate.add_permits(1);
    endpoint.receives(3).await;
    relay.signal(signal);
    relay.logs(&format!("SIG{signal}: shutting down")).await;
    gate.add_permits(messages);
    let stopped = relay.finished().await;
    assert_eq!(stopped.code(), 0, "{}", stopped.err);
    assert_eq!(stopped.out.lines().count(), 1, "{}", stopped.out);
    let handled = endpoint.arrived().len();
    assert!(
        stopped.out.starts_with(&format!("stopped cleanly: handled {handled}, requeued 0, ")),
        "{}",
        stopped.out
    );
    let left = fixture.client.drain(&fixture.queue, messages - handled, SOON).await.unwrap();
    // Before 4.3, what is handed back counts.
    if fixture.is_version("4.3") {
        let counted = left.iter().filter(|it| it.headers.contains_key("x-delivery-count"));
        assert_eq!(counted.count(), 0, "SIG{signal} has counted deliveries that no handler had");
    }
    let mut ids: Vec<_> =
        left.iter().map(|left| left.properties.message_id.clone().unwrap()).collect();
    ids.extend(
        endpoint
            .arrived()
            .iter()
            .map(|arrived| arrived.header("rehop-message-id").unwrap().to_owned()),
    );
    ids.sort_by_key(|id| id.parse::<usize>().unwrap());
    assert_eq!(ids, (0..messages).map(|id| id.to_string()).collect::<Vec<_>>());
}

/// What starts the tests may have them ignore signals, and the tool inherits that.
const WITH_ALL_SIGNALS: [&str; 2] = ["env", "--default-signal=HUP,QUIT"];

impl Fixture {
    /// A relay that another program starts, once it consumes.
    async fn relay_by(&self, program: &[&str], to: &str) -> Tool {
        let arguments = ["relay", "--queue", &self.queue, "--to", to, "--concurrency", "2"];
        let relay = Tool::start_by(program, &arguments, variables(&self.settings));
        relay.consumes().await;
        relay
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_stops_immediately_and_the_message_stays_with_the_broker() {
    for (signal, code) in [("INT", 130), ("QUIT", 131), ("TERM", 143)] {
        let fixture = Fixture::new("twice").await;
        let endpoint = Endpoint::start(|_| std::future::pending()).await;
        let relay = fixture.relay_by(&WITH_ALL_SIGNALS, &endpoint.url).await;
        fixture.publish("kept").await;
        endpoint.receives(1).await;
        relay.signal(signal);
        relay.logs("a second signal stops immediately").await;
        relay.signal(signal);
        let stopped = relay.finished().await;
        assert_eq!(stopped.code(), code, "{}", stopped.err);
        assert!(stopped.err.contains("unfinished messages stay"), "{}", stopped.err);
        let back = fixture.client.drain(&fixture.queue, 1, SOON).await.unwrap();
        assert_eq!(back[0].text(), "kept");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_that_closes_stops_the_relay_cleanly_however_often_it_says_so() {
    let fixture = Fixture::new("hangup").await;
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let endpoint = Endpoint::start(move |_| {
        let held = held.clone();
        async move {
            held.acquire().await.unwrap().forget();
            status(200)
        }
    })
    .await;
    let relay = fixture.relay_by(&WITH_ALL_SIGNALS, &endpoint.url).await;
    fixture.publish("handled").await;
    endpoint.receives(1).await;
    relay.signal("HUP");
    relay.logs("SIGHUP: shutting down").await;
    relay.signal("HUP");
    relay.signal("TERM");
    gate.add_permits(1);
    let stopped = relay.finished().await;
    assert_eq!(stopped.code(), 0, "{}", stopped.err);
    assert!(stopped.out.starts_with("stopped cleanly: handled 1"), "{}", stopped.out);
}

/// As `nohup` does.
#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_that_is_ignored_at_the_start_stays_ignored() {
    let fixture = Fixture::new("nohup").await;
    let endpoint = Endpoint::start(|_| async { status(200) }).await;
    let relay = fixture.relay_by(&["env", "--ignore-signal=HUP"], &endpoint.url).await;
    relay.signal("HUP");
    fixture.publish("handled").await;
    endpoint.receives(1).await;
    let stopped = relay.stop().await;
    assert!(!stopped.err.contains("SIGHUP"), "{}", stopped.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_holds_up_neither_messages_nor_the_end() {
    let fixture = Fixture::new("unread").await;
    let endpoint = Endpoint::start(|_| async { status(200) }).await;
    let arguments = ["relay", "--queue", &fixture.queue, "--to", &endpoint.url, "-vv"];
    let (read, reading) = tokio::sync::oneshot::channel::<()>();
    let reading = async { reading.await.unwrap() };
    let mut relay = Tool::start_unread(&arguments, variables(&fixture.settings), reading);
    fixture.is_declared(&fixture.queue).await;
    let messages = 500;
    fixture.client.publish_many((0..messages).map(|_| fixture.to_queue())).await.unwrap();
    endpoint.receives(messages).await;
    relay.signal("TERM");
    let status = relay.ended().await;
    assert!(status.success(), "{status}");
    read.send(()).unwrap();
    let stopped = relay.finished().await;
    assert!(stopped.out.starts_with(&format!("stopped cleanly: handled {messages}")));
    assert!(!stopped.err.contains("shutting down"), "the pipe was not full");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_read_again_says_how_many_lines_were_lost() {
    let fixture = Fixture::new("read-again").await;
    let endpoint = Endpoint::start(|_| async { status(200) }).await;
    let arguments = ["relay", "--queue", &fixture.queue, "--to", &endpoint.url];
    let (read, reading) = tokio::sync::oneshot::channel::<()>();
    let reading = async { reading.await.unwrap() };
    // More lines than wait for their reader.
    let everything = ("RUST_LOG".to_owned(), "trace".to_owned());
    let environment = variables(&fixture.settings).into_iter().chain([everything]);
    let relay = Tool::start_unread(&arguments, environment, reading);
    fixture.is_declared(&fixture.queue).await;
    let messages = 3000;
    fixture.client.publish_many((0..messages).map(|_| fixture.to_queue())).await.unwrap();
    endpoint.receives(messages).await;
    read.send(()).unwrap();
    relay.logs("log lines were lost, because standard error was not read").await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_while_the_broker_is_away_ends_the_waiting() {
    let to = ["relay", "--queue", "orders", "--to", "http://127.0.0.1:1/", "--log-format", "json"];
    let relay = Tool::start(&to, [("REHOP_BROKER__URL", "amqp://guest:guest@127.0.0.1:1/%2f")]);
    relay.logs("cannot reach the broker").await;
    let stopped = relay.stop().await;
    assert!(stopped.out.starts_with("stopped cleanly"), "{}", stopped.out);
    for line in stopped.err.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_handlers_that_exceed_the_grace_time_stay_with_the_broker() {
    let fixture = Fixture::new("grace").await;
    let endpoint = Endpoint::start(|_| std::future::pending()).await;
    let relay = fixture.relay(&endpoint.url, &["--set", "shutdown.grace=200ms"]).await;
    fixture.publish("").await;
    endpoint.receives(1).await;
    let stopped = relay.stop().await;
    assert!(
        stopped.out.contains("when the grace time was over")
            && stopped.out.contains("unfinished 1"),
        "{}",
        stopped.out
    );
    fixture.has_depth(&fixture.queue, 1).await;
}
