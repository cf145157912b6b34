//! The service under test: a process of its own that embeds rehop, records what it handles outside of itself, and can be
//! killed. It is this very program, started again.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rehop::{Backoff, Declare, Failure, Message, Settings};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;

/// Holds the configuration, and tells this program that it is the service.
const CONFIG: &str = "REHOP_FAULTS_SERVICE";

/// What one service process is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) url: String,
    pub(crate) namespace: String,
    pub(crate) queue: String,
    /// The queue is somebody else's.
    pub(crate) existing: bool,
    pub(crate) parked: Option<String>,
    pub(crate) delays: Vec<u64>,
    pub(crate) immediate: u32,
    pub(crate) delivery_limit: u32,
    pub(crate) prefetch: u16,
    pub(crate) concurrency: u16,
    pub(crate) handler_timeout: Duration,
    pub(crate) grace: Duration,
    /// The time limit for one answer of the broker.
    pub(crate) answer: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) startup: Duration,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) cert_file: Option<PathBuf>,
    pub(crate) key_file: Option<PathBuf>,
    /// Each step of each handler is appended to this file, by one write each.
    pub(crate) record: PathBuf,
}

impl Config {
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.namespace.clone_from(&self.namespace);
        settings.broker.url = SecretString::from(self.url.as_str());
        settings.broker.timeout = self.answer;
        settings.broker.heartbeat = self.heartbeat;
        settings.broker.startup_timeout = self.startup;
        settings.broker.tls.ca_file.clone_from(&self.ca_file);
        settings.broker.tls.cert_file.clone_from(&self.cert_file);
        settings.broker.tls.key_file.clone_from(&self.key_file);
        settings.shutdown.grace = self.grace;
        let queue = settings.queue_mut(&self.queue);
        queue.declare = if self.existing { Declare::Existing } else { Declare::Own };
        queue.parked.clone_from(&self.parked);
        queue.retry.delays = Some(Backoff::List(self.delays.iter().copied().map(Duration::from_millis).collect()));
        queue.retry.immediate = Some(self.immediate);
        queue.retry.delivery_limit = Some(self.delivery_limit);
        queue.consume.prefetch = Some(self.prefetch);
        queue.consume.concurrency = Some(self.concurrency);
        queue.consume.handler_timeout = Some(self.handler_timeout);
        settings
    }
}

/// A message's body.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) does: Does,
}

/// What the handler does over a message.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Does {
    Succeed,
    /// Succeeds after so many milliseconds.
    Slow(u64),
    /// Fails until the message has waited so often.
    Fail(u32),
    Permanent,
    Discard,
    /// Waits for the word from outside, unless it was delivered before; then succeeds.
    Gate,
    /// The same, then fails once.
    GateFail,
    /// Kills the process, always.
    Poison,
    Panic,
    Hang,
    /// Hangs on the first delivery only.
    HangOnce,
    /// Blocks its thread for so many milliseconds, then fails.
    Block(u64),
    /// Takes and touches so many megabytes, then fails.
    Allocate(usize),
}

struct Work {
    record: File,
    go: watch::Receiver<bool>,
}

impl Work {
    /// One write to a file opened for appending: whole, and safe from this process's death.
    fn note(&self, what: &str, id: u64) {
        (&self.record).write_all(format!("{what} {id} {}\n", std::process::id()).as_bytes()).unwrap();
    }

    async fn gate(&self) {
        let _ = self.go.clone().wait_for(|go| *go).await;
    }

    async fn handle(&self, job: Message<Job>) -> Result<(), Failure> {
        self.note("start", job.id);
        let not_yet = || Err(Failure::transient("not yet"));
        match job.does {
            Does::Succeed => {}
            Does::Slow(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
            Does::Fail(hops) if job.hop() < hops => return not_yet(),
            Does::Fail(_) => {}
            Does::Permanent => return Err(Failure::permanent("it never will")),
            Does::Discard => {
                self.note("discard", job.id);
                return Err(Failure::discard("nobody needs it"));
            }
            Does::Gate => {
                if !job.redelivered() {
                    self.gate().await;
                }
            }
            Does::GateFail if job.hop() == 0 => {
                if !job.redelivered() {
                    self.gate().await;
                }
                return not_yet();
            }
            Does::GateFail => {}
            Does::Poison => std::process::abort(),
            Does::Panic => panic!("this message makes its handler panic"),
            Does::Hang => std::future::pending().await,
            Does::HangOnce => {
                if !job.redelivered() && job.hop() == 0 {
                    std::future::pending::<()>().await;
                }
            }
            Does::Block(millis) => {
                std::thread::sleep(Duration::from_millis(millis));
                return not_yet();
            }
            Does::Allocate(megabytes) => {
                let memory = vec![1u8; megabytes << 20];
                tokio::task::yield_now().await;
                return Err(Failure::transient(format!("{} bytes did not do", memory.len())));
            }
        }
        self.note("done", job.id);
        Ok(())
    }
}

/// Runs the service and never returns, if that is what this process was started for.
pub(crate) fn run_if_asked() {
    let Ok(config) = std::env::var(CONFIG) else { return };
    let config: Config = serde_json::from_str(&config).unwrap();
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .with_env_filter("info,rehop=trace,lapin=warn")
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let ended = runtime.block_on(serve(config));
    // A handler that blocks its thread must not keep the process from ending.
    runtime.shutdown_background();
    std::process::exit(if ended { 0 } else { 1 });
}

async fn serve(config: Config) -> bool {
    let (go_sender, go) = watch::channel(false);
    let (stop_sender, mut stop) = watch::channel(false);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            match line.as_str() {
                "go" => go_sender.send_replace(true),
                _ => stop_sender.send_replace(true),
            };
        }
        // Whoever started this is gone.
        std::process::exit(3);
    });
    let record = OpenOptions::new().create(true).append(true).open(&config.record).unwrap();
    let work = Arc::new(Work { record, go });
    let settings = config.settings();
    let run = async {
        rehop::connect(&settings)
            .await?
            .consumer(config.queue.clone(), {
                let work = work.clone();
                move |job: Message<Job>| {
                    let work = work.clone();
                    async move { work.handle(job).await }
                }
            })
            .with_graceful_shutdown(async move {
                let _ = stop.wait_for(|stop| *stop).await;
            })
            .await
    };
    let ended: Result<rehop::Summary, rehop::Error> = run.await;
    match ended {
        Ok(summary) => {
            tracing::info!("service ended: {summary}");
            true
        }
        Err(error) => {
            tracing::error!("service failed: {error}");
            false
        }
    }
}

/// A running service process.
pub(crate) struct Service {
    child: Child,
    stdin: ChildStdin,
    log: PathBuf,
}

impl Service {
    pub(crate) fn start(config: &Config, log: &Path) -> Self {
        let errors = OpenOptions::new().create(true).append(true).open(log).unwrap();
        let output = errors.try_clone().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(CONFIG, serde_json::to_string(config).unwrap())
            .env_remove("RUST_LOG")
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        Self { child, stdin, log: log.to_owned() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap_or(0)
    }

    /// SIGKILL.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Opens the gate at which handlers wait.
    pub(crate) async fn go(&mut self) {
        self.stdin.write_all(b"go\n").await.unwrap();
    }

    /// Asks for a graceful shutdown.
    pub(crate) async fn ask_to_stop(&mut self) {
        // An error means that it has ended already.
        let _ = self.stdin.write_all(b"stop\n").await;
    }

    /// Waits until it has ended; whether it did so in good order.
    pub(crate) async fn ended(&mut self, within: Duration) -> Result<bool, String> {
        match tokio::time::timeout(within, self.child.wait()).await {
            Ok(status) => Ok(status.unwrap().success()),
            Err(_) => Err(format!("the service did not end within {within:?}; its log is {}", self.log.display())),
        }
    }

    /// A graceful shutdown, to its end.
    pub(crate) async fn stop(mut self) {
        self.ask_to_stop().await;
        let in_order = self.ended(Duration::from_secs(60)).await.unwrap();
        assert!(in_order, "the service failed; its log is {}", self.log.display());
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}
