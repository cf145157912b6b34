//! The clients, and how their programs are run.
//!
//! Each program has two modes. `publish EXCHANGE KEY` publishes one message. `get QUEUE` takes one,
//! and prints what it decodes as a line of JSON: an object with `routing_key`, `properties`,
//! `headers` and `body`, in which each value tells its type in the client's language.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lapin::uri::AMQPUri;
use rehop_testing::Broker;
use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

use crate::container::{self, Container};

/// How long a program may take. Go compiles its client, and Java its program, on a machine that may
/// be busy.
const LIMIT: Duration = Duration::from_secs(180);

pub(crate) struct Client {
    pub(crate) name: &'static str,
    language: Language,
    /// The package that has the client, in its registry's words.
    package: &'static str,
    file: &'static str,
}

/// Where a client is looked for, and how its program is run.
#[derive(Clone, Copy)]
enum Language {
    Python,
    Node,
    /// No program of it is here, because Maven could not fetch it where these were written.
    Maven,
    /// In the image of Debian's packages, by this command.
    Debian(&'static [&'static str]),
}

use Language::{Debian, Maven, Node, Python};

/// Compiles the program once in the container. Docker's storage driver fuse-overlayfs now and then
/// lists a file of a folder twice; Go does not compile that folder then, so it looks again.
const GO: &[&str] = &[
    "sh",
    "-c",
    r#"build() { go build -o /tmp/client "$0"; }; [ -x /tmp/client ] || build || build || exit; exec /tmp/client "$@""#,
];
const JAVA: &[&str] =
    &["java", "-cp", "/usr/share/java/amqp-client.jar:/usr/share/java/slf4j-api.jar"];

pub(crate) const CLIENTS: &[Client] = &[
    client("pika", Python, "pika", "pika_client.py"),
    client("kombu", Python, "kombu", "kombu_client.py"),
    client("aio-pika", Python, "aio-pika", "aio_pika_client.py"),
    client("celery", Python, "celery", "celery_client.py"),
    client("go", Debian(GO), "golang-github-rabbitmq-amqp091-go-dev", "client.go"),
    client("java", Debian(JAVA), "librabbitmq-client-java", "Client.java"),
    client("ruby", Debian(&["ruby"]), "ruby-bunny", "bunny_client.rb"),
    client("php-amqp", Debian(&["php"]), "php-amqp", "php_amqp_client.php"),
    client("php-amqplib", Debian(&["php"]), "php-amqplib", "php_amqplib_client.php"),
    client("c", Debian(&["sh"]), "amqp-tools", "amqp_tools_client.sh"),
    client("amqplib", Node, "amqplib", "amqplib_client.js"),
    client("spring-rabbit", Maven, "org.springframework.amqp:spring-rabbit", ""),
];

const fn client(
    name: &'static str,
    language: Language,
    package: &'static str,
    file: &'static str,
) -> Client {
    Client { name, language, package, file }
}

/// A client's program, which can be run here.
pub(crate) struct Program {
    pub(crate) version: String,
    runner: Runner,
    run: Vec<String>,
}

#[derive(Clone, Copy)]
enum Runner {
    Here,
    In(&'static Container),
}

impl Program {
    /// An error says why it cannot be run here.
    pub(crate) async fn of(client: &Client) -> Result<Self, String> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/programs");
        let package = client.package;
        let (runner, run, version) = match client.language {
            Python => {
                let python = interpreter("REHOP_TEST_PYTHON", "python3");
                let version =
                    format!("import importlib.metadata as it; print(it.version('{package}'))");
                (Runner::Here, vec![python.clone()], vec![python, "-c".to_owned(), version])
            }
            Node => {
                let node = interpreter("REHOP_TEST_NODE", "node");
                // The package itself may hide this file.
                let folder = format!("require('path').dirname(require.resolve('{package}'))");
                let version = format!("require({folder} + '/package.json').version");
                (Runner::Here, vec![node.clone()], vec![node, "-p".to_owned(), version])
            }
            Maven => {
                return Err("there is no program of it here: it comes by Maven alone".to_owned());
            }
            Debian(run) => {
                let version = ["dpkg-query", "--show", "--showformat=${Version}", package];
                (Runner::In(Container::shared(&here).await?), owned(run), owned(&version))
            }
        };
        let asked = timeout(LIMIT, runner.command(&version).await.output()).await;
        let Some(output) = asked.ok().and_then(Result::ok).filter(|output| output.status.success())
        else {
            return Err(format!("{package} is not installed"));
        };
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let folder =
            if matches!(runner, Runner::Here) { here } else { PathBuf::from(container::PROGRAMS) };
        let file = folder.join(client.file).to_str().unwrap().to_owned();
        Ok(Self { version, runner, run: [run, vec![file]].concat() })
    }

    /// Publishes the client's message.
    pub(crate) async fn publish(&self, exchange: &str, routing_key: &str) {
        self.output(&["publish", exchange, routing_key]).await;
    }

    /// Takes a message from the queue, and returns what the client decodes.
    pub(crate) async fn get(&self, queue: &str) -> Value {
        let printed = self.output(&["get", queue]).await;
        let last = printed.lines().last().unwrap_or_default();
        serde_json::from_str(last)
            .unwrap_or_else(|error| panic!("{error}: the program printed {printed:?}"))
    }

    async fn output(&self, arguments: &[&str]) -> String {
        let mut command =
            self.runner.command(&[&self.run[..], &owned(arguments)[..]].concat()).await;
        let output =
            timeout(LIMIT, command.output()).await.expect("the program ends in time").unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:?} {arguments:?}: {error}", self.run);
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Runner {
    async fn command(self, words: &[String]) -> Command {
        let url = Broker::shared().await.amqp_url();
        let user = url.parse::<AMQPUri>().unwrap().authority.userinfo.username;
        let mut command = match self {
            Self::Here => Command::new(&words[0]),
            Self::In(container) => container.command(&words[0]),
        };
        command.args(&words[1..]).env("AMQP_URL", url).env("AMQP_USER", user).kill_on_drop(true);
        command
    }
}

/// What the variable names, such as the interpreter of a virtual environment, or else what is found
/// on the path.
fn interpreter(variable: &str, default: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| default.to_owned())
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
