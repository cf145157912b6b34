//! Runs an example as its readers do, and checks what it prints.

use std::process::Stdio;
use std::time::Duration;

use rehop_testing::{Broker, Client};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

/// How long an example may take to print what is expected.
pub(crate) const SOON: Duration = Duration::from_secs(150);

/// Removes what an earlier run on the same broker left behind.
async fn forget(client: &Client, queues: &[&str]) {
    for queue in queues {
        for name in [(*queue).to_owned(), format!("{queue}.parked")] {
            // It is not there on a broker of our own.
            let _ = client.delete_queue(&name).await;
        }
    }
}

/// Runs an example until it has printed these lines, in any order, then sends it the signal. Then
/// it must print the last line.
///
/// A stop hands back what no handler has begun, so the lines have to name everything that the last
/// one counts.
pub(crate) async fn check(name: &str, signal: &str, lines: &[&str], last: &str) {
    check_with(name, "127.0.0.1:0", signal, lines, std::future::ready(()), last).await;
}

/// The same, for an example that listens on this address, and whose last line counts more than the
/// lines name: the signal also waits for `done`.
pub(crate) async fn check_with(
    name: &str,
    listen: &str,
    signal: &str,
    lines: &[&str],
    done: impl Future<Output = ()>,
    last: &str,
) {
    let mut example = command(name, Broker::shared().await.amqp_url())
        .env("LISTEN", listen)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
        .spawn()
        .unwrap();
    let pid = example.id().unwrap();
    let (mut out, mut err) =
        (BufReader::new(example.stdout.take().unwrap()).lines(), example.stderr.take().unwrap());
    let errors = tokio::spawn(async move {
        let mut text = String::new();
        err.read_to_string(&mut text).await.map(|_| text).unwrap()
    });
    let mut printed = Vec::new();
    let reading = async {
        while printed.len() < lines.len() {
            let Some(line) = out.next_line().await.unwrap() else { break };
            printed.push(line);
        }
    };
    let in_time = tokio::time::timeout(SOON, async { tokio::join!(reading, done) }).await.is_ok();
    let told = tell(signal, pid);
    let mut rest = Vec::new();
    let ending = async {
        while let Some(line) = out.next_line().await.unwrap() {
            rest.push(line);
        }
        example.wait().await.unwrap()
    };
    let status =
        tokio::time::timeout(SOON, ending).await.expect("the example ends when it is told to");
    let errors = errors.await.unwrap();
    let mut expected: Vec<_> = lines.to_vec();
    expected.sort_unstable();
    printed.sort_unstable();
    assert_eq!(printed, expected, "in time: {in_time}; then {rest:?}; standard error:\n{errors}");
    assert!(told && status.success(), "{status}: {errors}");
    assert!(
        rest.last().is_some_and(|line| line.starts_with(last)),
        "{rest:?} does not end with {last:?}"
    );
}

/// Sends the signal, and returns whether the process was there to get it. Not by a process such as
/// `kill`: on a busy machine, its start would take some of the time that a test has.
pub(crate) fn tell(signal: &str, pid: u32) -> bool {
    let signal = match signal {
        "INT" => Signal::INT,
        "TERM" => Signal::TERM,
        other => panic!("no test sends {other}"),
    };
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).is_ok()
}

/// An example, which is to use the broker at this address.
pub(crate) fn command(name: &str, url: &str) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(crate::program(name));
    command.env("REHOP_BROKER__URL", url).current_dir(std::env::temp_dir()).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) async fn client(queues: &[&str]) -> Client {
    let client = Broker::shared().await.client().await.unwrap();
    forget(&client, queues).await;
    client
}
