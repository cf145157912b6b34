//! The service under test: a separate process that embeds rehop, records what it handles in a file,
//! and can be killed. It is this same program, started again.

mod config;
mod handler;
mod supervised;

use std::fs::OpenOptions;
use std::io::BufRead as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rehop::Message;
use rustix::process::{Pid, kill_process};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

pub(crate) use config::{Config, QueueConfig, Shipped};
use handler::Work;
pub(crate) use handler::{ASKS, Does, Job};
pub(crate) use supervised::Supervised;

use crate::ground::SOON;

/// Holds the configuration, and tells this program to run as the service. Variables with
/// `REHOP_TEST_` are not settings.
const CONFIG: &str = "REHOP_TEST_FAULTS_SERVICE";

/// A process logs this once SIGTERM tells it to stop. Before, the signal would end it at once.
const LISTENS: &str = "listens for SIGTERM";

/// The service logs this once it has stopped, followed by how many milliseconds earlier the signal
/// had arrived.
const SHUTDOWN_TOOK: &str = "milliseconds from the signal to the end of the service:";

/// Runs the service and never returns, if that is what this process was started for.
pub(crate) fn run_if_asked() {
    let Ok(config) = std::env::var(CONFIG) else { return };
    let config: Config = serde_json::from_str(&config).unwrap();
    run_process(serve(config))
}

/// Runs what this process was started for, with a log, and ends the process.
pub(crate) fn run_process(work: impl Future<Output = bool>) -> ! {
    // testcontainers links ring as well, and of two providers rustls takes neither.
    #[cfg(feature = "tls-aws-lc")]
    rustls::crypto::aws_lc_rs::default_provider().install_default().unwrap();
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .with_env_filter("info,rehop=trace,lapin=warn")
        .init();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let ended = runtime.block_on(work);
    // A handler that blocks its thread must not keep the process from ending.
    runtime.shutdown_background();
    std::process::exit(if ended { 0 } else { 1 });
}

/// What this process is told on its standard input. It ends when the process that started it is
/// gone.
pub(crate) fn listen() -> watch::Receiver<bool> {
    let (open, go) = watch::channel(false);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if line == "go" {
                open.send_replace(true);
            }
        }
        std::process::exit(3);
    });
    go
}

async fn serve(config: Config) -> bool {
    let go = listen();
    let told = told_to_stop();
    let mut stop = told.clone();
    let ended = run(&config, go, async move {
        let _ = stop.wait_for(Option::is_some).await;
    })
    .await;
    let after = told.borrow().map(|told| told.elapsed());
    match ended {
        Ok(summary) => {
            tracing::info!("service ended: {summary}");
            if let Some(after) = after {
                tracing::info!("{SHUTDOWN_TOOK} {}", after.as_millis());
            }
            true
        }
        Err(error) => {
            tracing::error!("service failed: {error}");
            false
        }
    }
}

/// Listens for SIGTERM, and logs that it does.
pub(crate) fn terminations() -> Signal {
    let terminated = signal(SignalKind::terminate()).unwrap();
    tracing::info!("{LISTENS}");
    terminated
}

/// When SIGTERM has arrived. It is noted at once, whatever the service does by then.
fn told_to_stop() -> watch::Receiver<Option<Instant>> {
    let mut terminated = terminations();
    let (tell, told) = watch::channel(None);
    tokio::spawn(async move {
        terminated.recv().await;
        tell.send_replace(Some(Instant::now()));
    });
    told
}

async fn run(
    config: &Config,
    go: watch::Receiver<bool>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<rehop::Summary, rehop::Error> {
    let record = OpenOptions::new().create(true).append(true).open(&config.record).unwrap();
    let mut service = rehop::Service::new(&config.settings());
    for (index, queue) in config.queues.iter().enumerate() {
        let work =
            Arc::new(Work { queue: index, record: record.try_clone().unwrap(), go: go.clone() });
        service = service.consumer(queue.name.clone(), move |job: Message<Job>| {
            let work = work.clone();
            async move { work.handle(job).await }
        });
    }
    service.with_graceful_shutdown(stop).await
}

/// A running service process.
pub(crate) struct Service {
    child: Child,
    stdin: ChildStdin,
    log: PathBuf,
    /// The service has to stop within this time after the signal has arrived.
    grace: Duration,
}

/// How much later than the end of its grace time a service may have stopped, by its own clock: a
/// busy machine does not run it at once.
const LATE: Duration = Duration::from_secs(15);

/// How long a signal to a process and the end of a process may take. That is the machine's time,
/// not the service's.
const MACHINE: Duration = Duration::from_secs(30);

impl Service {
    pub(crate) fn start(config: &Config, log: &Path) -> Self {
        Self::spawn((CONFIG, serde_json::to_string(config).unwrap()), config, log)
    }

    /// Starts this program again with a variable that tells it what to be.
    pub(crate) fn spawn((variable, value): (&str, String), config: &Config, log: &Path) -> Self {
        let errors = OpenOptions::new().create(true).append(true).open(log).unwrap();
        let output = errors.try_clone().unwrap();
        // This same program, even if a build has replaced its file.
        let mut command = Command::new("/proc/self/exe");
        for (variable, _) in std::env::vars_os() {
            // Variables for this program must not become settings of the service.
            if variable == "RUST_LOG" || variable.to_string_lossy().starts_with("REHOP_") {
                command.env_remove(variable);
            }
        }
        let mut child = command
            .env(variable, value)
            .envs(config.environment())
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        Self { child, stdin, log: log.to_owned(), grace: config.grace }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap_or(0)
    }

    /// Kills it with SIGKILL, and checks that this is what ended it.
    pub(crate) async fn kill(mut self) {
        assert!(
            self.is_running(),
            "it was running until it was killed; its log is {}",
            self.log.display()
        );
        self.child.kill().await.unwrap();
        let status = self.child.wait().await.unwrap();
        assert_eq!(status.signal(), Some(9), "the signal has ended it");
    }

    /// Kills it with SIGKILL, unless it ends by itself before. Returns whether the signal has ended
    /// it.
    pub(crate) async fn kill_if_running(mut self) -> bool {
        // What has ended by itself cannot be killed.
        let _ = self.child.start_kill();
        self.child.wait().await.unwrap().signal() == Some(9)
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Opens the gate at which handlers wait.
    pub(crate) async fn go(&mut self) {
        self.stdin.write_all(b"go\n").await.unwrap();
    }

    /// Sends SIGTERM, once the process listens for it.
    pub(crate) async fn terminate(&mut self) {
        let begun = Instant::now();
        while !self.log().contains(LISTENS) {
            assert!(
                begun.elapsed() < SOON,
                "the process listens for SIGTERM; its log is {}",
                self.log.display()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.signal(rustix::process::Signal::TERM);
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = Pid::from_raw(self.pid() as i32);
        let told = pid.is_some_and(|pid| kill_process(pid, signal).is_ok());
        assert!(told, "the process is there to get {signal:?}; its log is {}", self.log.display());
    }

    /// Waits until it has ended, and returns whether it stopped cleanly.
    pub(crate) async fn ended(&mut self, within: Duration) -> Result<bool, String> {
        match tokio::time::timeout(within, self.child.wait()).await {
            Ok(status) => Ok(status.unwrap().success()),
            Err(_) => Err(format!(
                "the service did not end within {within:?}; its log is {}",
                self.log.display()
            )),
        }
    }

    /// Shuts it down gracefully, and checks that this takes no longer than the grace time. Returns
    /// how long it took, from the arrival of the signal until the service had stopped.
    pub(crate) async fn stop(&mut self) -> Duration {
        self.terminate().await;
        let in_order = self.ended(self.grace + MACHINE).await.unwrap();
        assert!(in_order, "the service failed; its log is {}", self.log.display());
        let took = shutdown_in(&self.log()).expect("the service logs how long its shutdown took");
        assert!(
            took <= self.grace + LATE,
            "the shutdown took {took:?} of a grace time of {:?}; its log is {}",
            self.grace,
            self.log.display()
        );
        took
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

/// How long the shutdown took, by the log of the service.
fn shutdown_in(log: &str) -> Option<Duration> {
    let (_, millis) = log.rsplit_once(SHUTDOWN_TOOK)?;
    millis.split_whitespace().next()?.parse().ok().map(Duration::from_millis)
}
