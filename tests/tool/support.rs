//! What the tests share.

use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::Response;
use rehop::testing::{Broker, Client, Namespace, Received, eventually};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

pub(crate) const SOON: Duration = Duration::from_secs(30);

/// One test's own corner of the shared broker, with waits of 100 and 200 ms and no attempts at once.
pub(crate) struct Fixture {
    pub(crate) client: Client,
    pub(crate) queue: String,
    pub(crate) namespace: Namespace,
    environment: Vec<(&'static str, String)>,
}

impl Fixture {
    pub(crate) async fn new(test: &str) -> Self {
        let url = Broker::shared().await.amqp_url();
        let namespace = Namespace::new(test);
        let environment = vec![
            ("REHOP_BROKER__URL", url.to_owned()),
            ("REHOP_NAMESPACE", namespace.name().to_owned()),
            ("REHOP_RETRY__DELAYS", "[100ms, 200ms]".to_owned()),
            ("REHOP_RETRY__IMMEDIATE", "0".to_owned()),
        ];
        let client = Client::connect(url).await.unwrap();
        Self { client, queue: namespace.queue("orders"), namespace, environment }
    }

    pub(crate) fn with(mut self, variable: &'static str, value: impl Into<String>) -> Self {
        self.environment.retain(|(name, _)| *name != variable);
        self.environment.push((variable, value.into()));
        self
    }

    /// The tool with this test's settings.
    pub(crate) fn tool(&self, arguments: &[&str]) -> Tool {
        Tool::start(arguments, &self.environment)
    }

    /// A relay of this test's queue, once it consumes.
    pub(crate) async fn relay(&self, to: &str, more: &[&str]) -> Tool {
        let arguments = [&["relay", "--queue", &self.queue, "--to", to], more].concat();
        let tool = self.tool(&arguments);
        tool.logs("consuming queue=").await;
        tool
    }

    pub(crate) async fn publish(&self, message: rehop::testing::Publish) {
        self.client.publish(message).await.unwrap();
    }

    /// What is parked, once there are so many.
    pub(crate) async fn parked(&self, count: usize) -> Vec<Received> {
        self.client.drain(&format!("{}.parked", self.queue), count, SOON).await.unwrap()
    }
}

/// The class of a parked message's last failure.
pub(crate) fn class(parked: &Received) -> String {
    let errors = parked.headers["rehop-errors"].as_array().unwrap();
    errors.last().unwrap()["class"].as_str().unwrap().to_owned()
}

/// The tool as a process of its own, away from the repository's settings and the environment of the tests.
pub(crate) struct Tool {
    child: Child,
    out: Captured,
    err: Captured,
}

pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Finished {
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// The one line that an error is, and nothing that users cannot read.
    #[track_caller]
    pub(crate) fn error(&self, code: i32) -> String {
        assert_eq!(self.code(), code, "{}", self.err);
        for ugly in ["panicked", "backtrace", "Error {", "Err("] {
            assert!(!self.err.contains(ugly), "{}", self.err);
        }
        let errors: Vec<_> = self.err.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{}", self.err);
        errors[0].to_owned()
    }
}

impl Tool {
    pub(crate) fn start(arguments: &[&str], environment: &[(&'static str, String)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rehop"));
        command.args(arguments).env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(std::env::temp_dir()).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Self { child, out: Captured::new(out), err: Captured::new(err) }
    }

    /// Waits until the log says so.
    pub(crate) async fn logs(&self, text: &str) {
        let what = format!("the log says {text:?}");
        let looked = eventually(SOON, &what, async || {
            let log = self.err.text();
            if log.contains(text) { Ok(true) } else { Err(log) }
        });
        looked.await.unwrap();
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().expect("the process runs").to_string();
        let kill = std::process::Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", name, &pid]).status().unwrap();
        assert!(kill.success());
    }

    pub(crate) async fn finished(mut self) -> Finished {
        let status = tokio::time::timeout(SOON, self.child.wait()).await.expect("the process ends in time").unwrap();
        Finished { status, out: self.out.end().await, err: self.err.end().await }
    }

    /// Stops a relay in order, and gives its summary and its log.
    pub(crate) async fn stop(self) -> Finished {
        self.signal("TERM");
        let finished = self.finished().await;
        assert_eq!(finished.code(), 0, "{}", finished.err);
        assert_eq!(finished.out.lines().count(), 1, "{}", finished.out);
        finished
    }
}

/// What a process writes, line by line.
struct Captured {
    text: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Captured {
    fn new(pipe: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let written = text.clone();
        let reader = tokio::spawn(async move {
            let mut lines = BufReader::new(pipe).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let mut text = written.lock().unwrap();
                text.push_str(&line);
                text.push('\n');
            }
        });
        Self { text, reader }
    }

    fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    async fn end(self) -> String {
        self.reader.await.unwrap();
        self.text.lock().unwrap().clone()
    }
}

/// A request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) at: Instant,
    pub(crate) date: SystemTime,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Arrived {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A real HTTP server whose answers a test writes. It ends with its runtime.
pub(crate) struct Endpoint {
    pub(crate) url: String,
    arrived: Arc<Mutex<Vec<Arrived>>>,
}

impl Endpoint {
    pub(crate) async fn start<F, R>(answer: F) -> Self
    where
        F: Fn(Arrived) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response> + Send,
    {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/orders", listener.local_addr().unwrap());
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let log = arrived.clone();
        let handle = move |request: Request| {
            let (log, answer) = (log.clone(), answer.clone());
            async move {
                let (parts, body) = request.into_parts();
                let arrived = Arrived {
                    at: Instant::now(),
                    date: SystemTime::now(),
                    path: parts.uri.to_string(),
                    headers: parts.headers,
                    body: to_bytes(body, usize::MAX).await.unwrap(),
                };
                log.lock().unwrap().push(arrived.clone());
                answer(arrived).await
            }
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(handle)).await });
        Self { url, arrived }
    }

    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap().clone()
    }

    /// What arrived, once it is so many.
    pub(crate) async fn receives(&self, count: usize) -> Vec<Arrived> {
        let what = format!("{count} requests");
        eventually(SOON, &what, async || {
            let arrived = self.arrived();
            if arrived.len() >= count { Ok(Some(arrived)) } else { Err(format!("{} requests", arrived.len())) }
        })
        .await
        .unwrap()
    }
}

pub(crate) fn status(status: u16) -> Response {
    Response::builder().status(status).body(Body::from("an answer of no interest")).unwrap()
}

pub(crate) fn with(status: u16, header: &str, value: &str) -> Response {
    Response::builder().status(status).header(header, value).body(Body::empty()).unwrap()
}
