use std::{iter, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::error::BrokerError;
use super::ports::Turn;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Many tests may change policies at a time.
const TURN_TIMEOUT: Duration = Duration::from_secs(300);

/// A client of a broker's management API, with which a test changes and inspects the broker.
///
/// A request takes milliseconds, whereas [`rabbitmqctl`](crate::Broker::rabbitmqctl) starts an
/// Erlang node of its own, which takes a second. Each method fails when no answer comes within 60
/// s. Tests that change policies take turns, and each waits at most 5 minutes for its turn.
///
/// ```no_run
/// use rehop_testing::{Broker, Namespace};
/// use serde_json::json;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let management = Broker::shared().await.management()?;
/// let queue = Namespace::new("full").queue("orders");
/// let only_this = format!("^{}$", queue.replace('.', "\\."));
/// let full = json!({ "max-length": 1, "overflow": "reject-publish" });
/// management.set_policy(&queue, &only_this, full).await?;
/// management.delete_policy(&queue).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Management {
    /// Without user and password.
    url: String,
    port: u16,
    /// Percent-encoded.
    vhost: String,
    authorization: HeaderValue,
}

impl Management {
    /// A client of the API at `url`, for the virtual host that `amqp_url` names. Without a user in
    /// `url` it logs in as guest:guest.
    pub(super) fn new(url: &str, amqp_url: &str) -> Result<Self, BrokerError> {
        let refused = |reason: &str| BrokerError::ManagementUrl { reason: reason.to_owned() };
        let rest =
            url.strip_prefix("http://").ok_or_else(|| refused("it does not begin with http://"))?;
        let (user, address) = rest.rsplit_once('@').unwrap_or(("guest:guest", rest));
        let decoded = percent_decode_str(user).collect::<Vec<u8>>();
        let mut authorization =
            HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(decoded)))
                .map_err(|_| refused("its user cannot be encoded"))?;
        authorization.set_sensitive(true);
        let url = format!("http://{}", address.trim_end_matches('/'));
        let uri = url.parse::<Uri>().map_err(|_| refused("it is no URL"))?;
        Ok(Self {
            url,
            port: uri.port_u16().unwrap_or(80),
            vhost: vhost_of(amqp_url).to_owned(),
            authorization,
        })
    }

    /// Sets a policy of priority 0 for the queues whose name matches a regular expression, in the
    /// broker's virtual host. A policy of the same name is replaced. When this returns, it is in
    /// effect on each existing queue that it matches, unless something else changes policies
    /// meanwhile.
    ///
    /// # Errors
    /// When the broker refuses the policy or does not answer.
    pub async fn set_policy(
        &self,
        name: &str,
        pattern: &str,
        definition: Value,
    ) -> Result<(), BrokerError> {
        let policy = json!({ "pattern": pattern, "definition": definition, "apply-to": "queues" });
        self.put(&self.policy(name), &policy).await
    }

    /// Deletes a policy. When this returns, no queue follows it any more, unless something else
    /// changes policies meanwhile.
    ///
    /// # Errors
    /// When there is no such policy, or the broker does not answer.
    pub async fn delete_policy(&self, name: &str) -> Result<(), BrokerError> {
        self.delete(&self.policy(name)).await
    }

    /// Adds a user without tags or permissions. An existing user gets this password, loses its tags
    /// and keeps its permissions.
    ///
    /// # Errors
    /// When the broker refuses the user or does not answer.
    pub async fn add_user(&self, name: &str, password: &str) -> Result<(), BrokerError> {
        self.put(&format!("users/{}", encoded(name)), &json!({ "password": password, "tags": "" }))
            .await
    }

    /// Sets what a user may configure, write and read in the broker's virtual host: regular
    /// expressions for names of queues and exchanges.
    ///
    /// # Errors
    /// When there is no such user, or the broker does not answer.
    pub async fn set_permissions(
        &self,
        user: &str,
        [configure, write, read]: [&str; 3],
    ) -> Result<(), BrokerError> {
        let path = format!("permissions/{}/{}", self.vhost, encoded(user));
        self.put(&path, &json!({ "configure": configure, "write": write, "read": read })).await
    }

    /// What the API says of a queue. Its counts are some seconds old;
    /// [`Client::depth`](crate::Client::depth) asks the queue itself.
    ///
    /// # Errors
    /// When there is no such queue, or the broker does not answer.
    pub async fn queue(&self, name: &str) -> Result<Value, BrokerError> {
        self.get(&self.path_of_queue(name)).await
    }

    /// The resources whose alarm blocks publishers, `memory` or `disk`; empty if none does.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn alarms(&self) -> Result<Vec<String>, BrokerError> {
        let path = "health/checks/alarms";
        let (status, answer) = self.send(Method::GET, path, None).await?;
        match status {
            StatusCode::OK => Ok(Vec::new()),
            StatusCode::SERVICE_UNAVAILABLE => {
                let of = |alarm: &Value| alarm["resource"].as_str().map(str::to_owned);
                Ok(parsed(path, &answer)?["alarms"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(of)
                    .collect())
            }
            _ => Err(refusal(&Method::GET, path, status, &answer)),
        }
    }

    /// Closes the connections to which their clients gave this name, as an operator does, and
    /// returns how many there were. A connection that was opened a moment ago may not be listed
    /// yet, and stays open.
    ///
    /// # Errors
    /// When a connection ends by itself meanwhile, or the broker does not answer.
    pub async fn close_connections(&self, name: &str) -> Result<usize, BrokerError> {
        let connections = self.get("connections").await?;
        let named = connections
            .as_array()
            .into_iter()
            .flatten()
            .filter(|it| it["user_provided_name"] == name);
        let mut closed = 0;
        for address in named.filter_map(|it| it["name"].as_str()) {
            self.delete(&format!("connections/{}", encoded(address))).await?;
            closed += 1;
        }
        Ok(closed)
    }

    /// What the API answers to `GET /api/<path>`. The path is percent-encoded, here and below.
    ///
    /// # Errors
    /// When the API refuses the request, does not answer, or its answer is not JSON.
    pub async fn get(&self, path: &str) -> Result<Value, BrokerError> {
        parsed(path, &self.send_checked(Method::GET, path, None).await?)
    }

    /// Sends `PUT /api/<path>` with this body.
    ///
    /// # Errors
    /// When the API refuses the request, or does not answer.
    pub async fn put(&self, path: &str, body: &Value) -> Result<(), BrokerError> {
        self.send_checked(Method::PUT, path, Some(body)).await.map(drop)
    }

    /// Sends `POST /api/<path>` with this body.
    ///
    /// # Errors
    /// When the API refuses the request, or does not answer.
    pub async fn post(&self, path: &str, body: &Value) -> Result<(), BrokerError> {
        self.send_checked(Method::POST, path, Some(body)).await.map(drop)
    }

    /// Sends `DELETE /api/<path>`.
    ///
    /// # Errors
    /// When the API refuses the request, or does not answer.
    pub async fn delete(&self, path: &str) -> Result<(), BrokerError> {
        self.send_checked(Method::DELETE, path, None).await.map(drop)
    }

    fn path_of_queue(&self, name: &str) -> String {
        format!("queues/{}/{}", self.vhost, encoded(name))
    }

    fn policy(&self, name: &str) -> String {
        format!("policies/{}/{}", self.vhost, encoded(name))
    }

    /// Requests that change policies take turns. RabbitMQ answers one when it has told every queue
    /// whose policy it found changed (`rabbit_policy:update_matched_objects` of 3.10, 4.0 and 4.3).
    /// Of two at once, one may find that the other has already changed its queue's record, and is
    /// answered before that queue is told.
    async fn turn(&self, method: &Method, path: &str) -> Result<Option<Turn>, BrokerError> {
        let is_change = ["policies/", "operator-policies/", "definitions"]
            .iter()
            .any(|kind| path.starts_with(kind));
        if *method == Method::GET || !is_change {
            return Ok(None);
        }
        let turn = timeout(TURN_TIMEOUT, Turn::wait(self.port)).await;
        let held = || {
            failure(
                method,
                path,
                format!("other tests have been changing policies for {TURN_TIMEOUT:?}"),
            )
        };
        turn.unwrap_or_else(|_| Err(held())).map(Some)
    }

    async fn send_checked(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Bytes, BrokerError> {
        let (status, answer) = self.send(method.clone(), path, body).await?;
        if status.is_success() { Ok(answer) } else { Err(refusal(&method, path, status, &answer)) }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Bytes), BrokerError> {
        let failed = |reason: String| failure(&method, path, reason);
        let _turn = self.turn(&method, path).await?;
        let request = Request::builder()
            .method(&method)
            .uri(format!("{}/api/{path}", self.url))
            .header(header::AUTHORIZATION, &self.authorization)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body.map(Value::to_string).unwrap_or_default()))
            .map_err(|error| failed(error.to_string()))?;
        // A test's runtime ends with the test, so connections are not kept.
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build_http::<Full<Bytes>>();
        let answered = async {
            let answer =
                client.request(request).await.map_err(|error| failed(with_causes(&error)))?;
            let status = answer.status();
            let body =
                answer.into_body().collect().await.map_err(|error| failed(with_causes(&error)))?;
            Ok((status, body.to_bytes()))
        };
        timeout(ANSWER_TIMEOUT, answered)
            .await
            .unwrap_or_else(|_| Err(failed(format!("no answer within {ANSWER_TIMEOUT:?}"))))
    }
}

/// The virtual host of an AMQP URL, percent-encoded as it is there. Without one it is `/`.
fn vhost_of(amqp_url: &str) -> &str {
    let rest = amqp_url.split_once("://").map_or(amqp_url, |(_, rest)| rest);
    let path = rest
        .split(['?', '#'])
        .next()
        .and_then(|rest| rest.split_once('/'))
        .map_or("", |(_, path)| path);
    if path.is_empty() { "%2f" } else { path }
}

fn encoded(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

fn parsed(path: &str, answer: &[u8]) -> Result<Value, BrokerError> {
    serde_json::from_slice(answer)
        .map_err(|error| failure(&Method::GET, path, format!("the answer is not JSON: {error}")))
}

fn refusal(method: &Method, path: &str, status: StatusCode, answer: &[u8]) -> BrokerError {
    failure(method, path, format!("{status}: {}", String::from_utf8_lossy(answer)))
}

fn failure(method: &Method, path: &str, reason: String) -> BrokerError {
    BrokerError::Management { request: format!("{method} /api/{path}"), reason }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::{Management, vhost_of};

    #[test]
    fn the_virtual_host_is_that_of_the_amqp_url() {
        for (url, vhost) in [
            ("amqp://guest:guest@127.0.0.1:1/%2f", "%2f"),
            ("amqp://127.0.0.1/orders%20eu?heartbeat=10", "orders%20eu"),
            ("amqp://127.0.0.1", "%2f"),
            ("amqp://127.0.0.1/", "%2f"),
        ] {
            assert_eq!(vhost_of(url), vhost, "{url}");
        }
    }

    #[test]
    fn the_password_is_sent_and_shown_nowhere() {
        let management =
            Management::new("http://us%40er:p%3Ass@127.0.0.1:1/", "amqp://127.0.0.1").unwrap();
        assert_eq!(management.url, "http://127.0.0.1:1");
        assert_eq!(management.authorization, "Basic dXNAZXI6cDpzcw==");
        assert!(!format!("{management:?}").contains("dXNA"), "{management:?}");
        let refused =
            Management::new("https://user:secret@broker", "amqp://broker").unwrap_err().to_string();
        assert!(refused.contains("http://") && !refused.contains("secret"), "{refused}");
    }
}
