//! The producers on the documentation page, as their readers run them, with a relay that consumes
//! what they publish.

use std::process::Output;

use rehop_testing::Broker;
use tokio::process::Command;

use super::endpoint::{Endpoint, status};
use crate::support::{Fixture, not_tried, now_millis};

const PAGE: &str = include_str!("../../../../src/docs/producers.md");
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// The program on the page in this language.
fn program(language: &str) -> &'static str {
    let (_, rest) = PAGE
        .split_once(&format!("```{language}\n"))
        .expect("the page has a program in this language");
    rest.split_once("```").unwrap().0
}

/// An interpreter with the library that the program needs. `python3` and `node` are found on the
/// path unless these variables name others, such as that of a virtual environment.
struct Interpreter {
    program: String,
    run: &'static str,
}

impl Interpreter {
    /// None, with a message that cannot be overlooked, if the library is not installed here.
    async fn with(
        variable: &str,
        default: &str,
        run: &'static str,
        import: &str,
        library: &str,
    ) -> Option<Self> {
        let program = std::env::var(variable).unwrap_or_else(|_| default.to_owned());
        let interpreter = Self { program, run };
        let found = interpreter.command(import).output().await;
        if found.is_ok_and(|output| output.status.success()) {
            return Some(interpreter);
        }
        not_tried(&format!(
            "a producer in {default}, because {library} is not installed; install it, or name an interpreter that has it in {variable}"
        ));
        None
    }

    fn command(&self, source: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args([self.run, source]).kill_on_drop(true);
        command
    }

    async fn publish(&self, source: &str, queue: &str) -> Output {
        let url = Broker::shared().await.amqp_url();
        let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let mut command = self.command(source);
        command.env("AMQP_URL", url).env("QUEUE", queue).env("TRACEPARENT", traceparent);
        command.output().await.unwrap()
    }
}

/// Publishes one message to a relay's queue, and one to a queue that does not exist.
async fn try_producer(test: &str, interpreter: Option<Interpreter>, source: &str) {
    let Some(interpreter) = interpreter else { return };
    let fixture = Fixture::new(test).await;
    let endpoint = Endpoint::start(|_| async { status(200) }).await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    let published = interpreter.publish(source, &fixture.queue).await;
    assert!(published.status.success(), "{}", String::from_utf8_lossy(&published.stderr));
    let arrived = endpoint.receives(1).await.remove(0);
    let stopped = relay.stop().await;
    assert!(stopped.out.starts_with("stopped cleanly: handled 1"), "{}", stopped.out);
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&arrived.body).unwrap(),
        serde_json::json!({ "id": 7 })
    );
    assert_eq!(arrived.header("content-type"), Some("application/json"));
    assert_eq!(arrived.header("rehop-message-id").map(str::len), Some(36), "a UUID");
    let left = arrived.header("rehop-deadline").unwrap().parse::<i64>().unwrap() - now_millis();
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
    assert!(arrived.header("traceparent").unwrap().contains(TRACE), "{arrived:?}");

    let lost = interpreter.publish(source, &format!("{}.nowhere", fixture.queue)).await;
    assert!(!lost.status.success(), "a message that no queue takes is an error");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_program_sets_what_the_relay_reads() {
    let python =
        Interpreter::with("REHOP_TEST_PYTHON", "python3", "-c", "import pika", "pika").await;
    try_producer("python", python, program("python")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_program_sets_what_the_relay_reads() {
    let node =
        Interpreter::with("REHOP_TEST_NODE", "node", "-e", "require('amqplib')", "amqplib").await;
    try_producer("node", node, program("javascript")).await;
}

/// Celery puts a charset into `content_encoding`, and a server answers 415 to a `Content-Encoding`
/// that it does not know.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_celery_sends_reaches_an_endpoint() {
    const SEND: &str = r#"
import os
import celery
import kombu

name = os.environ["QUEUE"]
app = celery.Celery(broker=os.environ["AMQP_URL"])
app.conf.update(broker_transport_options={"confirm_publish": True})
queue = kombu.Queue(name, exchange=kombu.Exchange(""), routing_key=name, no_declare=True)
app.send_task("charge", args=[7], queue=queue)
"#;
    let python =
        Interpreter::with("REHOP_TEST_PYTHON", "python3", "-c", "import celery", "celery").await;
    let Some(python) = python else { return };
    let fixture = Fixture::new("celery").await;
    let endpoint = Endpoint::start(|arrived| async move {
        status(if arrived.header("content-encoding").is_some() { 415 } else { 200 })
    })
    .await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    let published = python.publish(SEND, &fixture.queue).await;
    assert!(published.status.success(), "{}", String::from_utf8_lossy(&published.stderr));
    let arrived = endpoint.receives(1).await.remove(0);
    assert_eq!(arrived.header("content-type"), Some("application/json; charset=utf-8"));
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&arrived.body).unwrap()[0],
        serde_json::json!([7])
    );
    let stopped = relay.stop().await;
    assert!(stopped.out.starts_with("stopped cleanly: handled 1"), "{}", stopped.out);
}
