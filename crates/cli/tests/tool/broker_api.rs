//! The broker's management API, to plant what operators plant: policies, users, definitions.

use std::sync::OnceLock;

use axum::body::Body;
use axum::response::Response;
use rehop_testing::Broker;
use reqwest::{Client, Method};
use serde_json::{Value, json};

use super::endpoint::Endpoint;
use crate::support::not_tried;

pub(crate) struct BrokerApi {
    url: String,
    without_credentials: String,
    client: Client,
}

impl BrokerApi {
    /// The API of the shared broker. An external broker may have none.
    pub(crate) async fn shared() -> Option<Self> {
        let Some(url) = Broker::shared().await.management_url() else {
            not_tried("what the management API shows, because REHOP_TEST_MANAGEMENT_URL is not set");
            return None;
        };
        static PROVIDER: OnceLock<()> = OnceLock::new();
        PROVIDER.get_or_init(|| drop(rustls::crypto::ring::default_provider().install_default()));
        let client = Client::builder().no_proxy().build().unwrap();
        let host = url.rsplit_once('@').map_or(url, |(_, host)| host);
        let without_credentials = format!("http://{}", host.trim_start_matches("http://"));
        Some(Self { url: url.to_owned(), without_credentials, client })
    }

    /// With user and password.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn url_without_credentials(&self) -> &str {
        &self.without_credentials
    }

    pub(crate) async fn set_policy(&self, name: &str, pattern: &str, definition: Value) {
        let body = json!({ "pattern": pattern, "definition": definition, "apply-to": "queues", "priority": 1 });
        self.send(Method::PUT, &format!("policies/%2f/{name}"), &body).await;
    }

    /// The policy that is in effect for a queue.
    pub(crate) async fn policy_of(&self, queue: &str) -> Value {
        let request = self.client.get(format!("{}/api/queues/%2f/{queue}", self.url));
        let answer = request.send().await.unwrap().text().await.unwrap();
        serde_json::from_str::<Value>(&answer).unwrap()["policy"].clone()
    }

    /// Whether a queue is bound to another exchange than the default one.
    pub(crate) async fn is_bound(&self, queue: &str) -> bool {
        let request = self.client.get(format!("{}/api/queues/%2f/{queue}/bindings", self.url));
        let answer = request.send().await.unwrap().text().await.unwrap();
        let bindings: Vec<Value> = serde_json::from_str(&answer).unwrap();
        bindings.iter().any(|binding| binding["source"] != "")
    }

    pub(crate) async fn delete_policy(&self, name: &str) {
        self.send(Method::DELETE, &format!("policies/%2f/{name}"), &Value::Null).await;
    }

    /// Has an exchange pass on to another one what has such a routing key.
    pub(crate) async fn bind_exchange(&self, source: &str, destination: &str, routing_key: &str) {
        let binding = json!({ "routing_key": routing_key, "arguments": {} });
        self.send(Method::POST, &format!("bindings/%2f/e/{source}/e/{destination}"), &binding).await;
    }

    /// A user without tags, with these permissions.
    pub(crate) async fn add_user(&self, name: &str, password: &str, permissions: Value) {
        self.send(Method::PUT, &format!("users/{name}"), &json!({ "password": password, "tags": "" })).await;
        self.send(Method::PUT, &format!("permissions/%2f/{name}"), &permissions).await;
    }

    pub(crate) async fn delete_user(&self, name: &str) {
        self.send(Method::DELETE, &format!("users/{name}"), &Value::Null).await;
    }

    pub(crate) async fn import(&self, definitions: &Value) {
        self.send(Method::POST, "definitions", definitions).await;
    }

    /// An API that answers what this one answers, but for the nodes: those go through `change`.
    pub(crate) async fn with_nodes(&self, change: fn(&mut Vec<Value>)) -> Endpoint {
        let (client, url) = (self.client.clone(), self.url.clone());
        Endpoint::start(move |arrived| {
            let (client, url) = (client.clone(), url.clone());
            async move {
                let path = arrived.path.strip_prefix(Endpoint::PATH).unwrap();
                let answer = client.get(format!("{url}{path}")).send().await.unwrap();
                let status = answer.status().as_u16();
                let mut body = answer.text().await.unwrap();
                if path == "/api/nodes" {
                    let mut nodes = serde_json::from_str(&body).unwrap();
                    change(&mut nodes);
                    body = Value::Array(nodes).to_string();
                }
                Response::builder().status(status).body(Body::from(body)).unwrap()
            }
        })
        .await
    }

    async fn send(&self, method: Method, path: &str, body: &Value) {
        let request = self.client.request(method, format!("{}/api/{path}", self.url));
        let answer = request.header("content-type", "application/json").body(body.to_string()).send().await.unwrap();
        let status = answer.status();
        assert!(status.is_success(), "{path}: {status} {}", answer.text().await.unwrap_or_default());
    }
}

/// This test runs another one as `cargo test` does, without an address of the management API.
#[tokio::test(flavor = "multi_thread")]
async fn a_test_that_cannot_be_tried_says_so_in_one_line_although_it_passes() {
    const SKIPPED: &str = "doctor::a_classic_work_queue_is_found";
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command
        .args([SKIPPED, "--exact"])
        .kill_on_drop(true)
        .env_remove("REHOP_TEST_MANAGEMENT_URL")
        .env_remove("REHOP_TEST_NOT_TRIED");
    command.env("REHOP_TEST_AMQP_URL", Broker::shared().await.amqp_url());
    let output = command.output().await.unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success() && out.contains("1 passed"), "{out}{err}");
    let said: Vec<_> = err.lines().filter(|line| line.starts_with("NOT TRIED: ")).collect();
    let [line] = said[..] else { panic!("{err}") };
    assert!(line.contains("REHOP_TEST_MANAGEMENT_URL") && line.ends_with(&format!("({SKIPPED})")), "{line}");
}
