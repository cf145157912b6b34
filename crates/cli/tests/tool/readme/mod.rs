//! README.md's service and its operator, and the tutorial's: the files that a page shows are
//! written, what it types is run, and what it prints is compared.

mod blocks;
mod shown;
mod tutorial;

use std::path::{Path, PathBuf};

use rehop_testing::{Broker, eventually};
use tokio::process::Command;

use crate::process::{Finished, Tool};
use crate::support::{SOON, not_tried};
use crate::vhost::Vhost;
use blocks::{Block, Typed, blocks};
use shown::{by_order, masked};

/// What a page types and its test does not, and what happens instead.
type Instead<'a> = &'a [(&'a str, Replaced)];

const README: Instead<'_> = &[
    // The test of the demo runs it.
    ("make demo", Replaced::Nothing),
    // The tests have a broker.
    ("docker run ", Replaced::Nothing),
    ("REHOP_PROFILE=development cargo run", Replaced::StartExample),
    // It is built already.
    ("cargo install ", Replaced::Nothing),
];

#[derive(Debug, Clone, Copy)]
enum Replaced {
    Nothing,
    /// README's service is examples/orders.rs, built before the tests.
    StartExample,
}

/// The programs that are run as a page types them. All but the tool print nothing.
const RUN: [&str; 4] = ["rehop", "echo", "touch", "rm"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    let path = repository().join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Somebody who does what a page says.
struct Reader {
    vhost: Vhost,
    instead: Instead<'static>,
    service: Option<Tool>,
}

impl Reader {
    async fn new(test: &str, instead: Instead<'static>) -> Self {
        Self { vhost: Vhost::new(test).await, instead, service: None }
    }

    async fn follow(&mut self, block: &Block<'_>) {
        match (block.language, &block.typed()[..]) {
            ("toml" | "rust,no_run", _) => self.write(block.file(), &block.text()),
            ("text", []) => self.commands_or_output(block).await,
            ("text", typed) => {
                for typed in typed {
                    self.types(typed).await;
                }
            }
            other => panic!("README has a block that this test does not understand: {other:?}"),
        }
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.vhost.folder.0.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A block without a prompt is a command to copy, or what the service prints.
    async fn commands_or_output(&mut self, block: &Block<'_>) {
        if self.service.is_some() {
            return self.sees_printed(&block.lines).await;
        }
        for command in &block.lines {
            self.types(&Typed { command, output: Vec::new() }).await;
        }
    }

    async fn types(&mut self, typed: &Typed<'_>) {
        let Typed { command, output } = typed;
        match self.instead.iter().find(|(known, _)| command.starts_with(known)) {
            Some((_, Replaced::Nothing)) => {}
            Some((_, Replaced::StartExample)) => self.starts(command, "orders").await,
            None => {
                let program = command.split(' ').next().unwrap_or_default();
                assert!(
                    RUN.contains(&program),
                    "the page types {command:?}, which this test neither runs nor replaces"
                );
                // A slow machine needs longer than the tool waits by default.
                let follows = command.contains(" --apply")
                    && ["replay", "edit"].iter().any(|it| command.contains(it));
                let typed =
                    if follows { format!("{command} --follow 60s") } else { (*command).to_owned() };
                let Finished { status, out, err } = Tool::of(self.shell(&typed)).finished().await;
                // Pages show no log, so there may be nothing in it that a reader would have to be
                // told. On a slow machine a replay says how far it is.
                let is_quiet =
                    err.lines().all(|line| line.contains(" INFO ") || line.contains(" moved; "));
                assert!(status.success() && is_quiet, "{command}: {status}: {out}{err}");
                match &output[..] {
                    [] => assert_eq!(out.is_empty(), program != "rehop", "{command}: {out}"),
                    // The page leaves out how the output begins.
                    ["...", end @ ..] => {
                        let (shown, printed) = (masked(end.iter().copied()), masked(out.lines()));
                        assert!(printed.ends_with(&shown), "{command}: {out}");
                    }
                    whole => assert_eq!(
                        masked(whole.iter().copied()),
                        masked(out.lines()),
                        "{command}: {out}"
                    ),
                }
            }
        }
    }

    /// Starts the service as the page does, with an example in place of Cargo, and waits until it
    /// consumes.
    async fn starts(&mut self, command: &str, example: &str) {
        let example = Path::new(env!("CARGO_BIN_EXE_rehop")).with_file_name(example);
        assert!(
            example.exists(),
            "{} is missing: cargo build -p rehop-examples --bins",
            example.display()
        );
        // `exec`, so that the process is the service and not its shell.
        let mut command =
            self.shell(&format!("exec env {}", command.replace("cargo run", "\"$0\"")));
        command.arg(example).env("NO_COLOR", "1");
        let service = Tool::of(command);
        service.logs(" consuming ").await;
        self.service = Some(service);
    }

    /// A shell beside the service's settings that finds the tool.
    fn shell(&self, command: &str) -> Command {
        let tool = Path::new(env!("CARGO_BIN_EXE_rehop")).parent().unwrap().to_str().unwrap();
        let path = format!("{tool}:{}", std::env::var("PATH").unwrap());
        let mut shell = Command::new("bash");
        shell
            .args(["-c", command])
            .env_clear()
            .env("PATH", path)
            .env("REHOP_BROKER__URL", self.vhost.url.as_str());
        shell.current_dir(&self.vhost.folder.0);
        shell
    }

    /// Waits until the service has printed as many lines as README shows and the order is parked,
    /// as README says then.
    async fn sees_printed(&self, shown: &[&str]) {
        let service = self.service.as_ref().unwrap();
        let waiting =
            eventually(SOON, "the service prints as many lines as README shows", async || {
                let printed = service.out.text();
                if printed.lines().count() < shown.len() { Err(printed) } else { Ok(true) }
            });
        waiting.await.unwrap();
        self.sees_parked(1).await;
        assert_eq!(by_order(shown.iter().copied()), by_order(service.out.text().lines()));
    }

    async fn sees_parked(&self, count: u32) {
        let parked =
            async || self.vhost.client.depth("orders.parked").await.map(|depth| depth == count);
        eventually(SOON, "the orders are parked", parked).await.unwrap();
    }

    async fn stops(mut self) {
        let service = self.service.take().expect("the page starts a service");
        service.signal("INT");
        let Finished { status, out, err } = service.finished().await;
        let last = out.lines().last().unwrap_or_default();
        assert!(status.success() && last.starts_with("stopped cleanly: "), "{status}: {out}{err}");
        self.vhost.delete().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_readme_types_works_and_prints_what_it_shows() {
    if Broker::shared().await.management_url().is_none() {
        return not_tried("what README types, because REHOP_TEST_MANAGEMENT_URL is not set");
    }
    let (readme, mut reader) = (read("README.md"), Reader::new("readme", README).await);
    for (known, _) in README {
        assert!(readme.contains(known), "README does not type {known:?}: remove it from the list");
    }
    for block in blocks(&readme) {
        reader.follow(&block).await;
    }
    reader.stops().await;
}

/// The block of a file in README.
fn shown(readme: &str, file: &str) -> String {
    let blocks = blocks(readme);
    let block = blocks.iter().find(|block| block.language != "text" && block.file() == file);
    block.unwrap_or_else(|| panic!("README shows no {file}")).text()
}

#[test]
fn readmes_service_is_the_example_without_what_only_the_repository_needs() {
    let (shown, example) = (shown(&read("README.md"), "src/main.rs"), read("examples/orders.rs"));
    let head = example
        .strip_suffix(&shown)
        .expect("README's src/main.rs is the end of examples/orders.rs");
    let is_apart = |line: &str| {
        line.is_empty()
            || line.starts_with("//! ")
            || line == "//!"
            || line.starts_with("#![allow(")
    };
    let more: Vec<_> = head.lines().filter(|line| !is_apart(line)).collect();
    assert!(more.is_empty(), "README leaves this out: {more:#?}");
}

#[test]
fn readmes_service_depends_on_exactly_what_its_program_uses() {
    let readme = read("README.md");
    let (manifest, program) = (shown(&readme, "Cargo.toml"), shown(&readme, "src/main.rs"));
    let dependencies = |manifest: &str| -> Vec<String> {
        let section =
            manifest.split("[dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
        let lines = section.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| Some(line.split_once([' ', '.'])?.0.to_owned())).collect()
    };
    let used = |package: &String| program.contains(&format!("{}::", package.replace('-', "_")));
    let of_examples = dependencies(&read("examples/Cargo.toml"));
    let used: Vec<_> = of_examples.into_iter().filter(used).collect();
    assert_eq!(dependencies(&manifest), used);
}
