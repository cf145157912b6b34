//! Changes the shared broker as operators do: policies, users, definitions.

use axum::body::Body;
use axum::response::Response;
use rehop_testing::{Broker, Management, eventually};
use serde_json::{Value, json};

use super::endpoint::Endpoint;
use super::examined::COUNTED;
use crate::support::not_tried;

pub(crate) struct BrokerApi {
    url: String,
    without_credentials: String,
    management: Management,
}

impl BrokerApi {
    /// The API of the shared broker. An external broker may have none.
    pub(crate) async fn shared() -> Option<Self> {
        let broker = Broker::shared().await;
        let Some(url) = broker.management_url() else {
            not_tried(
                "checks that need the management API, because REHOP_TEST_MANAGEMENT_URL is not set",
            );
            return None;
        };
        let host = url.rsplit_once('@').map_or(url, |(_, host)| host);
        let without_credentials = format!("http://{}", host.trim_start_matches("http://"));
        Some(Self {
            url: url.to_owned(),
            without_credentials,
            management: broker.management().unwrap(),
        })
    }

    /// With user and password.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn url_without_credentials(&self) -> &str {
        &self.without_credentials
    }

    pub(crate) async fn set_policy(&self, name: &str, pattern: &str, definition: Value) {
        self.management.set_policy(name, pattern, definition).await.unwrap();
    }

    /// Waits until the broker tells of these queues what their policies set and how many messages
    /// they have. From 4.0 on it does some seconds after they were declared.
    pub(crate) async fn has_counted(&self, queues: &[&str]) {
        for queue in queues {
            eventually(COUNTED, "the broker tells of the queue", async || {
                let told = self.management.queue(queue).await.unwrap();
                let is_told = |key: &str| told.get(key).is_some_and(|value| !value.is_null());
                let keys = ["effective_policy_definition", "messages", "consumer_details"];
                if keys.into_iter().all(is_told) { Ok(true) } else { Err(told.to_string()) }
            })
            .await
            .unwrap();
        }
    }

    /// The policy that is in effect for a queue.
    pub(crate) async fn policy_of(&self, queue: &str) -> Value {
        self.management.queue(queue).await.unwrap()["policy"].clone()
    }

    /// Whether a queue is bound to another exchange than the default one.
    pub(crate) async fn is_bound(&self, queue: &str) -> bool {
        let bindings = self.management.get(&format!("queues/%2f/{queue}/bindings")).await.unwrap();
        bindings.as_array().unwrap().iter().any(|binding| binding["source"] != "")
    }

    pub(crate) async fn delete_policy(&self, name: &str) {
        self.management.delete_policy(name).await.unwrap();
    }

    /// Has an exchange pass on to another one what has such a routing key.
    pub(crate) async fn bind_exchange(&self, source: &str, destination: &str, routing_key: &str) {
        let binding = json!({ "routing_key": routing_key, "arguments": {} });
        self.management
            .post(&format!("bindings/%2f/e/{source}/e/{destination}"), &binding)
            .await
            .unwrap();
    }

    /// A user without tags, with these permissions.
    pub(crate) async fn add_user(&self, name: &str, password: &str, permissions: [&str; 3]) {
        self.management.add_user(name, password).await.unwrap();
        self.management.set_permissions(name, permissions).await.unwrap();
    }

    pub(crate) async fn delete_user(&self, name: &str) {
        self.management.delete(&format!("users/{name}")).await.unwrap();
    }

    pub(crate) async fn import(&self, definitions: &Value) {
        self.management.post("definitions", definitions).await.unwrap();
    }

    /// A copy of this API at an address of its own, whose list of nodes `change` edits. Every
    /// failed request is answered with 404.
    pub(crate) async fn with_nodes(&self, change: fn(&mut Vec<Value>)) -> Endpoint {
        let edit = move |path: &str, body: &mut Value| {
            if path == "/api/nodes" {
                change(body.as_array_mut().unwrap());
            }
            200
        };
        self.copy(edit).await
    }

    /// A copy of this API at an address of its own, which answers these paths with 500.
    pub(crate) async fn failing_at(
        &self,
        fails: impl Fn(&str) -> bool + Clone + Send + Sync + 'static,
    ) -> Endpoint {
        self.copy(move |path, _| if fails(path) { 500 } else { 200 }).await
    }

    /// `edit` changes an answer, and says which status it has.
    async fn copy(
        &self,
        edit: impl Fn(&str, &mut Value) -> u16 + Clone + Send + Sync + 'static,
    ) -> Endpoint {
        let management = self.management.clone();
        Endpoint::start(move |arrived| {
            let (management, edit) = (management.clone(), edit.clone());
            async move {
                let path = arrived.path.strip_prefix(Endpoint::PATH).unwrap();
                let answer = management.get(path.strip_prefix("/api/").unwrap()).await;
                let (status, body) = match answer {
                    Ok(mut body) => (edit(path, &mut body), body.to_string()),
                    Err(_) => (404, String::new()),
                };
                Response::builder().status(status).body(Body::from(body)).unwrap()
            }
        })
        .await
    }
}

/// This test runs another one as `cargo test` does, without an address of the management API.
#[tokio::test(flavor = "multi_thread")]
async fn a_test_that_cannot_be_tried_says_so_in_one_line_although_it_passes() {
    const SKIPPED: &str = "doctor::messages_that_the_broker_cannot_dead_letter_are_found";
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command
        .args([SKIPPED, "--exact"])
        .kill_on_drop(true)
        .env_remove("REHOP_TEST_MANAGEMENT_URL")
        .env_remove("REHOP_TEST_NOT_TRIED");
    command.env("REHOP_TEST_AMQP_URL", Broker::shared().await.amqp_url());
    let output = command.output().await.unwrap();
    let [out, err] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success() && out.contains("1 passed"), "{out}{err}");
    let said: Vec<_> = err.lines().filter(|line| line.starts_with("NOT TRIED: ")).collect();
    let [line] = said[..] else { panic!("{err}") };
    assert!(
        line.contains("REHOP_TEST_MANAGEMENT_URL") && line.ends_with(&format!("({SKIPPED})")),
        "{line}"
    );
}
