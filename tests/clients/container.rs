//! A container with Debian's clients, in which the programs run.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::support::SOON;

/// Where the programs are in the container.
pub(crate) const PROGRAMS: &str = "/programs";
/// What `tests/scripts/clients-image` builds.
const IMAGE: &str = "rehop-clients";

pub(crate) struct Container {
    name: String,
    _run: Child,
}

impl Container {
    /// The container of this process. An error says why there is none.
    pub(crate) async fn shared(programs: &Path) -> Result<&'static Self, String> {
        static CONTAINER: OnceCell<Result<Container, String>> = OnceCell::const_new();
        CONTAINER.get_or_init(|| Self::start(programs)).await.as_ref().map_err(Clone::clone)
    }

    /// It runs until this process ends, even by SIGKILL: then the pipe that it reads from closes.
    /// It shares this machine's network, so that the broker's address on 127.0.0.1 is the broker's
    /// there, too.
    async fn start(programs: &Path) -> Result<Self, String> {
        let asked = Command::new("docker").args(["image", "inspect", IMAGE]).output();
        match timeout(SOON, asked).await {
            Ok(Ok(output)) if output.status.success() => {}
            Ok(Ok(_)) => {
                return Err(format!(
                    "there is no image {IMAGE}; tests/scripts/clients-image builds it"
                ));
            }
            Ok(Err(_)) | Err(_) => return Err("Docker does not answer".to_owned()),
        }
        let name = format!("rehop-test-clients-{}", std::process::id());
        let mut run = Command::new("docker")
            .args(["run", "--rm", "--interactive", "--network", "host", "--name", &name])
            .args(["--volume", &format!("{}:{PROGRAMS}:ro", programs.display())])
            .args([IMAGE, "sh", "-c", "echo started; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut line = String::new();
        let mut printed = BufReader::new(run.stdout.take().unwrap());
        match timeout(SOON, printed.read_line(&mut line)).await {
            Ok(Ok(_)) if line == "started\n" => Ok(Self { name, _run: run }),
            _ => Err(format!("a container of {IMAGE} does not start")),
        }
    }

    /// A command that runs this program in the container, with the address of the broker.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("docker");
        command.args(["exec", "--env", "AMQP_URL", "--env", "AMQP_USER", &self.name, program]);
        command
    }
}
