use std::{process::Stdio, time::Duration};

use tokio::process::Command;

use super::error::BrokerError;

/// Runs a command to its end and returns what it printed on standard output, trimmed.
pub(super) async fn run(mut command: Command, within: Duration) -> Result<String, BrokerError> {
    let line = line_of(&command);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(within, command.output())
        .await
        .map_err(|_| BrokerError::CommandTimeout { command: line.clone(), within })?
        .map_err(BrokerError::io(format!("run `{line}`")))?;
    let stdout = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(BrokerError::Command {
        command: line,
        output: last_lines(&format!("{stdout}\n{stderr}"), 20),
    })
}

/// `docker` with these arguments.
pub(super) async fn docker(args: &[&str], within: Duration) -> Result<String, BrokerError> {
    let mut command = Command::new("docker");
    command.args(args);
    run(command, within).await
}

/// The end of a longer output, for an error message.
pub(super) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The part of a broker's log that says why it ended: its first errors, which Erlang buries under
/// dozens of follow-up lines, or else its end.
pub(super) fn errors_of(log: &str) -> String {
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("[error]")).take(10).collect();
    if errors.is_empty() { last_lines(log, 20) } else { errors.join("\n") }
}

fn line_of(command: &Command) -> String {
    let command = command.as_std();
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|part| part.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
