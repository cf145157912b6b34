//! The tool as a process.

use std::ffi::OsStr;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rehop::Settings;
use rehop_testing::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::support::{Fixture, SOON};

impl Fixture {
    /// The tool with this test's settings.
    pub(crate) fn tool(&self, arguments: &[&str]) -> Tool {
        Tool::start(arguments, variables(&self.settings))
    }

    /// A relay of this test's queue, once it consumes.
    pub(crate) async fn relay(&self, to: &str, more: &[&str]) -> Tool {
        let arguments = [&["relay", "--queue", &self.queue, "--to", to], more].concat();
        let tool = self.tool(&arguments);
        tool.consumes().await;
        tool
    }
}

/// The settings that differ from the defaults, as variables for the tool.
pub(crate) fn variables(settings: &Settings) -> Vec<(String, String)> {
    let [default, mut values] =
        [&Settings::default(), settings].map(|it| serde_json::to_value(it).unwrap());
    // Serialized settings mask the URL.
    values["broker"]["url"] = settings.broker.url.expose().into();
    let mut changed = Vec::new();
    collect_changed("REHOP_", &default, &values, &mut changed);
    changed
}

fn collect_changed(
    prefix: &str,
    default: &Value,
    values: &Value,
    changed: &mut Vec<(String, String)>,
) {
    for (key, value) in values.as_object().unwrap() {
        let (name, default) = (format!("{prefix}{}", key.to_uppercase()), &default[key]);
        match value {
            _ if value == default => {}
            Value::Object(_) => collect_changed(&format!("{name}__"), default, value, changed),
            Value::String(text) => changed.push((name, text.clone())),
            other => changed.push((name, other.to_string())),
        }
    }
}

/// The tool as a process, isolated from the repository's settings and the environment of the tests.
pub(crate) struct Tool {
    child: Child,
    pub(crate) out: Captured,
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

    /// The one line of the error, after checking that nothing else is printed that users could not
    /// understand.
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
    pub(crate) fn start(
        arguments: &[&str],
        environment: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> Self {
        Self::start_reading(arguments, environment, std::future::ready(()))
    }

    /// What the tool prints is read only after `reading` has completed: until then the tool is held
    /// up once the pipe is full.
    pub(crate) fn start_reading(
        arguments: &[&str],
        environment: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
        reading: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rehop"));
        command.args(arguments).env_clear().envs(environment).current_dir(std::env::temp_dir());
        Self::spawn(command, reading, std::future::ready(()))
    }

    /// Its log is read only after `reading` has completed.
    pub(crate) fn start_unread(
        arguments: &[&str],
        environment: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
        reading: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rehop"));
        command.args(arguments).env_clear().envs(environment).current_dir(std::env::temp_dir());
        Self::spawn(command, std::future::ready(()), reading)
    }

    /// Another program runs the tool, with these arguments of its own before those of the tool.
    pub(crate) fn start_by(
        program: &[&str],
        arguments: &[&str],
        environment: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> Self {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).arg(env!("CARGO_BIN_EXE_rehop")).args(arguments);
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).envs(environment);
        command.current_dir(std::env::temp_dir());
        Self::of(command)
    }

    /// Any other program: a service, or a shell that runs the tool.
    pub(crate) fn of(command: Command) -> Self {
        Self::spawn(command, std::future::ready(()), std::future::ready(()))
    }

    fn spawn(
        mut command: Command,
        reading: impl Future<Output = ()> + Send + 'static,
        reading_log: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        command.kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Self { child, out: Captured::new(out, reading), err: Captured::new(err, reading_log) }
    }

    /// Waits until the relay consumes.
    pub(crate) async fn consumes(&self) {
        self.logs("consuming queue=").await;
    }

    /// Waits until the log contains this text.
    pub(crate) async fn logs(&self, text: &str) {
        let what = format!("the log says {text:?}");
        let looked = eventually(SOON, &what, async || {
            let log = self.err.text();
            if log.contains(text) { Ok(true) } else { Err(log) }
        });
        looked.await.unwrap();
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id().expect("the process runs")
    }

    pub(crate) fn signal(&self, name: &str) {
        send_signal(name, self.id());
    }

    /// Waits until the process has ended, whether its output is read or not.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        self.ended_within(SOON).await
    }

    async fn ended_within(&mut self, limit: Duration) -> ExitStatus {
        let ended = tokio::time::timeout(limit, self.child.wait()).await;
        ended.expect("the process ends in time").unwrap()
    }

    pub(crate) async fn finished(self) -> Finished {
        self.finished_within(SOON).await
    }

    pub(crate) async fn finished_within(mut self, limit: Duration) -> Finished {
        let status = self.ended_within(limit).await;
        Finished { status, out: self.out.end().await, err: self.err.end().await }
    }

    /// Stops a relay cleanly, and returns its summary and its log.
    pub(crate) async fn stop(self) -> Finished {
        self.signal("TERM");
        let finished = self.finished().await;
        assert_eq!(finished.code(), 0, "{}", finished.err);
        assert_eq!(finished.out.lines().count(), 1, "{}", finished.out);
        finished
    }
}

/// Not by a process such as `kill`: on a busy machine, its start would take some of the time that a
/// test has.
pub(crate) fn send_signal(name: &str, pid: u32) {
    let signal = match name {
        "INT" => Signal::INT,
        "TERM" => Signal::TERM,
        "HUP" => Signal::HUP,
        "QUIT" => Signal::QUIT,
        "KILL" => Signal::KILL,
        "STOP" => Signal::STOP,
        "CONT" => Signal::CONT,
        other => panic!("no test sends {other}"),
    };
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// What a process writes, line by line.
pub(crate) struct Captured {
    text: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Captured {
    fn new(
        pipe: impl AsyncRead + Unpin + Send + 'static,
        reading: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let written = text.clone();
        let reader = tokio::spawn(async move {
            reading.await;
            let mut lines = BufReader::new(pipe).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let mut text = written.lock().unwrap();
                text.push_str(&line);
                text.push('\n');
            }
        });
        Self { text, reader }
    }

    pub(crate) fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    async fn end(self) -> String {
        self.reader.await.unwrap();
        self.text.lock().unwrap().clone()
    }
}
