//! The mistakes of the first hour: a service says in one line what is wrong and what to do, and the
//! page of questions quotes this line.

use std::path::{Path, PathBuf};

use rehop_testing::{Broker, Publish, eventually};
use serde_json::json;
use tokio::process::Command;

use crate::process::{Finished, Tool};
use crate::support::{SOON, not_tried};
use crate::vhost::Vhost;

const FAQ: &str = include_str!("../../../../src/docs/faq.md");

/// README's service, or another example, built before the tests.
fn example(name: &str) -> PathBuf {
    let example = Path::new(env!("CARGO_BIN_EXE_rehop")).with_file_name(name);
    assert!(
        example.exists(),
        "{} is missing: cargo build -p rehop-examples --bin {name}",
        example.display()
    );
    example
}

/// A beginner's service, in a folder and a virtual host of its own.
struct Beginner {
    vhost: Vhost,
    program: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl Beginner {
    /// `None` without the management API, which the virtual host needs.
    async fn new(test: &str) -> Option<Self> {
        if Broker::shared().await.management_url().is_none() {
            not_tried(
                "the mistakes of the first hour, because REHOP_TEST_MANAGEMENT_URL is not set",
            );
            return None;
        }
        let vhost = Vhost::new(test).await;
        let url = vhost.url.to_string();
        let this = Self { vhost, program: example("orders"), variables: Vec::new() };
        this.settings("namespace = \"billing\"");
        Some(this.with("REHOP_BROKER__URL", url))
    }

    /// Runs the service until it has declared everything.
    async fn declares(&self) {
        let service = self.start();
        service.logs("consuming queue=").await;
        service.stop().await;
    }

    /// With this `rehop.toml`.
    fn settings(&self, toml: &str) {
        std::fs::write(self.vhost.folder.0.join("rehop.toml"), toml).unwrap();
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.retain(|(known, _)| *known != name);
        self.variables.push((name, value.into()));
        self
    }

    fn start(&self) -> Tool {
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .envs(self.variables.clone())
            .env("NO_COLOR", "1")
            .current_dir(&self.vhost.folder.0);
        Tool::of(command)
    }

    /// The error of a service that cannot start: a single line on standard error, which the page
    /// quotes.
    async fn error(&self) -> String {
        let Finished { status, out, err } = self.start().finished().await;
        assert_eq!((status.code(), &*out), (Some(1), ""), "{err}");
        // While it waits for a broker that is away, its log says so.
        let is_log = |line: &&str| {
            line.contains(" INFO ") || line.contains(" cannot reach the broker; trying again in ")
        };
        let lines: Vec<_> = err.lines().filter(|line| !is_log(line)).collect();
        let [line] = &lines[..] else { panic!("{err}") };
        let error = line.strip_prefix("Error: ").unwrap_or_else(|| panic!("{err}"));
        let masked =
            error.replace(&format!("-{}", self.vhost.name), "").replace(&self.vhost.name, "/");
        assert!(is_quoted(&masked), "no line of faq.md is:\n{masked}");
        error.to_owned()
    }
}

/// Whether a line in a block of the page is this text. The page leaves out parts, and has names of
/// hosts and ports of its own.
fn is_quoted(text: &str) -> bool {
    let lines = FAQ.split("```").skip(1).step_by(2).flat_map(str::lines);
    let words = |line: &str| line.split(' ').map(host).collect::<Vec<_>>().join(" ");
    let text = words(text);
    // A line of a few words would match by chance.
    lines.filter(|line| line.len() > 20).any(|line| {
        let mut rest = &text[..];
        let parts: Vec<_> = line.split('…').map(words).collect();
        let starts = text.starts_with(&parts[0]);
        let follow = parts.iter().all(|part| match rest.find(part.as_str()) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        });
        starts && follow && (rest.is_empty() || line.ends_with('…'))
    })
}

/// Replaces `host:port` by `HOST`.
fn host(word: &str) -> String {
    let (address, end) = word.split_at(word.trim_end_matches([':', ';', ',']).len());
    match address.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => format!("HOST{end}"),
        _ => word.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_url_or_login_is_one_line_that_says_what_to_check() {
    let Some(mut beginner) = Beginner::new("first-url").await else { return };
    let url = beginner.vhost.user("billing", [".*"; 3]).await;
    let with = |change: fn(&mut url::Url)| {
        let mut url = url.clone();
        change(&mut url);
        url.to_string()
    };
    for (wrong, remedy) in [
        ("http://127.0.0.1:5672".to_owned(), "amqp://user:password@host:5672/vhost"),
        ("amqp://127.0.0.1:1".to_owned(), "check that it is running"),
        (with(|url| url.set_password(Some("wrong")).unwrap()), "check broker.username"),
        (with(|url| url.set_path("nowhere")), "virtual host"),
    ] {
        // So that it does not wait for a broker that is away.
        beginner = beginner
            .with("REHOP_BROKER__URL", wrong.clone())
            .with("REHOP_BROKER__STARTUP_TIMEOUT", "100ms");
        let error = beginner.error().await;
        // No error quotes the password.
        assert!(error.contains(remedy) && !error.contains("wrong"), "{wrong}: {error}");
    }
    beginner.vhost.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_with_other_arguments_or_a_missing_permission_is_one_line_that_says_what_to_do() {
    let Some(mut beginner) = Beginner::new("first-queue").await else { return };
    beginner.declares().await;
    beginner = beginner.with("REHOP_RETRY__DELIVERY_LIMIT", "20");
    let error = beginner.error().await;
    assert!(error.contains("adapt the settings to it"), "{error}");
    let reader = beginner.vhost.user("reader", ["", "", ".*"]).await;
    let beginner = beginner.with("REHOP_BROKER__URL", reader.to_string());
    let error = beginner.error().await;
    assert!(error.contains("\"Least permissions\""), "{error}");
    beginner.vhost.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistyped_key_is_one_line_that_names_the_file_or_the_variable_and_the_keys() {
    let Some(beginner) = Beginner::new("first-key").await else { return };
    beginner.settings("[retry]\ndelay = [\"1s\"]");
    let error = beginner.error().await;
    assert!(error.contains("rehop.toml") && error.contains("delays"), "{error}");
    beginner.settings("retry.errors.\"core::num::error::ParseIntError\" = \"permanent\"");
    let error = beginner.error().await;
    assert!(
        error.contains("rehop.toml") && error.ends_with("\"ParseIntError\": write this"),
        "{error}"
    );
    beginner.settings("");
    let beginner = beginner.with("REHOP_NAMSPACE", "billing");
    let error = beginner.error().await;
    assert!(error.contains("REHOP_NAMSPACE") && error.contains("namespace"), "{error}");
    beginner.vhost.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_namespace_and_a_renamed_program_are_one_line_that_names_the_one_to_set() {
    let Some(mut beginner) = Beginner::new("first-names").await else { return };
    // Without the setting, the namespace is the program's name.
    beginner.settings("");
    beginner.program = beginner.vhost.folder.0.join("billing");
    // A program that was just written may be busy, and a link is not. It cannot lead to another
    // file system.
    if std::fs::hard_link(example("orders"), &beginner.program).is_err() {
        std::fs::copy(example("orders"), &beginner.program).unwrap();
    }
    beginner.declares().await;
    let renamed = beginner.program.with_file_name("invoices");
    std::fs::rename(&beginner.program, &renamed).unwrap();
    beginner.program = renamed;
    let error = beginner.error().await;
    assert!(error.contains("set namespace = \"billing\""), "{error}");
    beginner.settings("namespace = \"billing\"");
    beginner.declares().await;
    beginner.settings("namespace = \"invoices\"");
    assert_eq!(beginner.error().await, error);
    beginner.vhost.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_panics_and_a_body_that_cannot_be_decoded_are_logged_with_their_queue_and_parked()
 {
    let Some(beginner) = Beginner::new("first-bodies").await else { return };
    let service = beginner.start();
    service.logs("consuming queue=").await;
    let body = Publish::to_queue("orders").json(&json!({ "id": 7 }));
    beginner.vhost.client.publish(body).await.unwrap();
    service.logs("the body is JSON that does not match the handler's type, at line 1 column").await;
    let parked =
        async || beginner.vhost.client.depth("orders.parked").await.map(|depth| depth == 1);
    eventually(SOON, "it is parked", parked).await.unwrap();
    service.stop().await;

    let panicking = Beginner { program: example("failures"), ..beginner };
    let service = panicking.start();
    let client = &panicking.vhost.client;
    let parked = async || client.depth("failures.orders.parked").await.map(|depth| depth == 8);
    eventually(SOON, "it is parked, and the others that always fail", parked).await.unwrap();
    service.signal("TERM");
    service.finished().await;
    let list = ["parked", "list", "--queue", "failures.orders", "--namespace", "failures"];
    let listed = Tool::start(&list, panicking.variables.clone()).finished().await;
    let is_listed = listed.out.lines().any(|line| line.contains("panic") && line.contains("a bug"));
    assert!(is_listed, "{}{}", listed.out, listed.err);
    panicking.vhost.delete().await;
}
