//! The JSON that the tool prints has the keys that the page about scripts lists, with their types,
//! and no others.

use std::collections::{BTreeMap, BTreeSet};

use rehop::Failure;
use rehop_testing::eventually;
use serde_json::{Value, json};

use crate::broker_api::BrokerApi;
use crate::examined::COUNTED;
use crate::support::{Fixture, millis};

const PAGE: &str = include_str!("../../../operator/src/docs/scripting.md");

/// The rows of a section's table: a key's path, split at each step, and the type that the page
/// gives it.
type Rows = Vec<(Vec<String>, String)>;

/// The page's sections by their titles: commands, and objects that several of them print.
type Sections = BTreeMap<&'static str, &'static str>;

/// The commands' tables, and which of their rows a command has printed.
struct Page {
    tables: BTreeMap<String, Rows>,
    printed: BTreeSet<(String, Vec<String>)>,
    /// The commands whose keys are those of another one.
    same: BTreeSet<String>,
}

impl Page {
    fn new() -> Self {
        let mut page =
            Self { tables: BTreeMap::new(), printed: BTreeSet::new(), same: BTreeSet::new() };
        let sections =
            PAGE.split("\n### ").skip(1).map(|section| section.split_once('\n').unwrap());
        let sections: Sections =
            sections.map(|(title, text)| (title.trim_matches('`'), text)).collect();
        for (title, text) in &sections {
            if !title.starts_with("rehop ") {
                // No command would be compared with the keys of an object to which nothing links.
                assert!(PAGE.contains(&format!("[{title}](#{title})")), "nothing links to {title}");
                continue;
            }
            let rows = rows_of(title, &sections);
            for other in with_the_same_keys(text) {
                page.same.insert(other.to_owned());
                page.tables.insert(other.to_owned(), rows.clone());
            }
            page.tables.insert((*title).to_owned(), rows);
        }
        page
    }

    fn compare(&mut self, title: &str, printed: &Value) {
        let rows =
            self.tables.get(title).unwrap_or_else(|| panic!("the page has no {title}")).clone();
        self.look(title, &rows, &mut Vec::new(), printed);
        for (path, kind) in rows.iter().filter(|(_, kind)| !may_be_absent(kind)) {
            assert!(
                has(printed, path),
                "{title}: {} ({kind}) is missing: {printed}",
                path.join(".")
            );
        }
    }

    /// Compares what is at this path with the page.
    fn look(&mut self, title: &str, rows: &Rows, path: &mut Vec<String>, value: &Value) {
        let row = rows.iter().find(|(steps, _)| fits(steps, path));
        if let Some((steps, kind)) = row {
            self.printed.insert((title.to_owned(), steps.clone()));
            let (kind, alternative) = kind.split_once('/').unwrap_or((kind.as_str(), ""));
            let fits = match kind {
                "string" => value.is_string(),
                "number" | "count" | "time" => value.is_number(),
                "boolean" => value.is_boolean(),
                "any" => true,
                other => panic!("{title}: no such type as {other}"),
            };
            let may_be_null = match alternative {
                "null" => true,
                "" | "absent" => false,
                other => panic!("{title}: no such alternative as {other}"),
            };
            assert!(
                fits || (may_be_null && value.is_null()),
                "{title}: {} is no {kind}: {value}",
                path.join(".")
            );
            if kind != "any"
                || !value.is_object()
                || !rows
                    .iter()
                    .any(|(longer, _)| longer.len() > steps.len() && longer.starts_with(steps))
            {
                return;
            }
        }
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    path.push(key.clone());
                    self.look(title, rows, path, value);
                    path.pop();
                }
            }
            Value::Array(values) => {
                for value in values {
                    path.push("[]".to_owned());
                    self.look(title, rows, path, value);
                    path.pop();
                }
            }
            _ => assert!(
                row.is_some(),
                "{title}: the page does not have {}: {value}",
                path.join(".")
            ),
        }
    }
}

/// The rows of a section. A row whose type links to an object stands for one row for each of the
/// object's keys.
fn rows_of(title: &str, sections: &Sections) -> Rows {
    let text = sections.get(title).unwrap_or_else(|| panic!("the page has no {title}"));
    let mut rows = included(text).map_or_else(Rows::new, |included| rows_of(included, sections));
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
        let (keys, kind) = (cells.next().unwrap(), cells.next().unwrap());
        for key in keys.split(", ") {
            let steps = key.trim_matches('`').replace("[]", ".[]");
            let path: Vec<String> =
                steps.trim_start_matches('.').split('.').map(str::to_owned).collect();
            match linked(kind) {
                Some(object) => {
                    for (rest, kind) in rows_of(object, sections) {
                        rows.push((path.iter().chain(&rest).cloned().collect(), kind));
                    }
                }
                None => rows.push((path, kind.to_owned())),
            }
        }
    }
    assert!(!rows.is_empty(), "{title}");
    rows
}

/// The section whose keys this one has besides its own.
fn included(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix("The keys are those of ")?;
        linked(&rest[..=rest.find(')')?])
    })
}

/// The other commands that print the keys of this section.
fn with_the_same_keys(text: &str) -> impl Iterator<Item = &str> {
    let paragraphs = text.split("\n\n").map(str::trim_start);
    let paragraphs = paragraphs.filter_map(|it| it.strip_prefix("The same keys: "));
    paragraphs
        .flat_map(|commands| commands.trim_end().trim_end_matches('.').split(','))
        .map(|command| command.trim().trim_matches('`'))
}

/// The section that a link such as `[message](#message)` leads to.
fn linked(text: &str) -> Option<&str> {
    let (name, target) = text.strip_prefix('[')?.strip_suffix(')')?.split_once("](#")?;
    let name = name.trim_matches('`');
    assert_eq!(target, name.replace(' ', "-"), "the link to {name} is broken");
    Some(name)
}

fn may_be_absent(kind: &str) -> bool {
    kind.ends_with("/absent")
}

/// Whether a path is that of a row, in which `<queue>` stands for any key.
fn fits(steps: &[String], path: &[String]) -> bool {
    steps.len() == path.len()
        && steps.iter().zip(path).all(|(step, key)| step == key || step.starts_with('<'))
}

/// Whether a value has this path in each of its elements. Arrays and maps may be empty.
fn has(value: &Value, path: &[String]) -> bool {
    let Some((step, rest)) = path.split_first() else { return true };
    match (step.as_str(), value) {
        ("[]", Value::Array(values)) => values.iter().all(|value| has(value, rest)),
        (key, Value::Object(map)) if key.starts_with('<') => {
            map.values().all(|value| has(value, rest))
        }
        (key, Value::Object(map)) => map.get(key).is_some_and(|value| has(value, rest)),
        _ => false,
    }
}

/// The commands that print JSON, in an order in which each has something to print.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_about_scripts_lists_all_keys_that_the_tool_prints() {
    let Some(api) = BrokerApi::shared().await else { return };
    let mut fixture = Fixture::new("scripting").await;
    let mut page = Page::new();
    let queue = fixture.queue.clone();
    let of_queue = ["--queue", queue.as_str()];
    macro_rules! compare {
        ($title:literal, $($more:expr),*) => {
            let words: Vec<_> = $title.strip_prefix("rehop ").unwrap().split(' ').collect();
            let more: Vec<&str> = [$(&$more[..]),*].concat();
            let finished = fixture.tool(&[&words, &more[..]].concat()).finished().await;
            let json = serde_json::from_str(&finished.out).unwrap_or_else(|_| panic!("{}: {}{}", $title, finished.out, finished.err));
            page.compare($title, &json);
        };
    }

    compare!("rehop config show --json", []);
    // Nothing is declared yet, so there are findings.
    compare!("rehop doctor --json", of_queue);
    compare!("rehop doctor --json", of_queue, ["--management", api.url()]);
    compare!("rehop topology verify --json", of_queue);
    fixture
        .client
        .declare_queue(&format!("{queue}.parked"), json!({ "x-queue-type": "quorum" }))
        .await
        .unwrap();
    compare!("rehop topology plan --json", of_queue);
    fixture.client.delete_queue(&format!("{queue}.parked")).await.unwrap();
    let set = format!("queues=[{{queue={queue},consume={{order=queue}}}}]");
    compare!("rehop topology show --json", ["--set", &set, "--set", "retry.strategy=in-process"]);
    compare!("rehop topology show --json", of_queue, ["--set", "retry.strategy=delayed-exchange"]);

    fixture.settings.retry.delays = millis([100, 200, 3_600_000]);
    let run = fixture
        .serve_always(Err(Failure::permanent("no such customer").with_class("http_422")))
        .await;
    fixture.settings.retry.delays = millis([100, 200]);
    for id in ["order-1", "order-2", "order-3"] {
        let arguments = [
            "publish",
            "--queue",
            &queue,
            "--message-id",
            id,
            "--json",
            "{\"id\": 7}",
            "--deadline",
            "1h",
        ];
        assert_eq!(fixture.tool(&arguments).finished().await.code(), 0);
    }
    fixture.has_depth(&fixture.parked(), 3).await;
    compare!("rehop parked list --json", of_queue, ["--rows", "3"]);
    compare!("rehop parked show --json", of_queue, ["order-1"]);
    compare!("rehop parked replay --json", of_queue);
    // They park again.
    compare!("rehop parked replay --apply --json", of_queue, ["--follow", "60s"]);
    compare!("rehop parked replay --apply --json", of_queue, ["--expect", "7"]);
    fixture.has_depth(&fixture.parked(), 3).await;
    run.stop().await;

    compare!("rehop parked edit --json", of_queue, ["order-1", "--body", "/dev/null"]);
    compare!(
        "rehop parked edit --apply --json",
        of_queue,
        ["order-1", "--body", "/dev/null", "--follow", "100ms"]
    );
    compare!("rehop parked discard --json", of_queue);
    compare!("rehop parked discard --apply --json", of_queue, ["--limit", "1", "--all"]);
    compare!("rehop parked discard --apply --json", of_queue, ["--expect", "7"]);
    let exported = fixture.tool(&[&["parked", "export"], &of_queue[..]].concat()).finished().await;
    let lines: Vec<_> =
        exported.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!lines.is_empty(), "{}", exported.err);
    lines.iter().for_each(|line| page.compare("rehop parked export", line));
    let file = std::env::temp_dir().join(format!("{}.jsonl", fixture.namespace.name()));
    std::fs::write(&file, &exported.out).unwrap();
    compare!("rehop parked import --json", of_queue, [file.to_str().unwrap()]);
    compare!("rehop parked import --apply --json", of_queue, [file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    compare!("rehop parked restore --json", []);
    compare!("rehop parked restore --apply --json", ["--all"]);

    let look = ["--management", api.url()];
    let tier = format!("{}.wait.3600000", fixture.namespace.name());
    eventually(COUNTED, "the broker has counted", async || {
        let listed = fixture.topology("prune", &look).await;
        if listed.out.contains(&format!("queue {tier}: it is empty")) {
            Ok(true)
        } else {
            Err(listed.out)
        }
    })
    .await
    .unwrap();
    compare!("rehop topology prune --json", of_queue, look);
    compare!("rehop topology prune --apply --json", of_queue, look);

    let own = page.tables.iter().filter(|(title, _)| !page.same.contains(*title));
    let all = own.flat_map(|(title, rows)| rows.iter().map(move |row| (title, row)));
    let never: Vec<_> = all
        .filter(|(title, (path, kind))| {
            // A map or an array of texts may be empty each time.
            let is_content = path.last().is_some_and(|last| last.starts_with('<') || last == "[]");
            !may_be_absent(kind)
                && !is_content
                && !page.printed.contains(&((*title).clone(), path.clone()))
        })
        .map(|(title, (path, _))| format!("{title}: {}", path.join(".")))
        .collect();
    assert!(never.is_empty(), "no command has printed:\n{}", never.join("\n"));
}

/// The help of `rehop` and the page list the same exit statuses.
#[tokio::test]
async fn the_page_and_the_help_have_the_same_exit_statuses() {
    let help = crate::process::Tool::start(&["--help"], [("COLUMNS", "80")]).finished().await.out;
    let (_, listed) = help.split_once("Exit status:\n").unwrap();
    let in_help =
        listed.lines().filter_map(|line| line.split_whitespace().next()?.parse::<u8>().ok());
    let (_, table) = PAGE.split_once("| status | meaning |\n|---|---|\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let on_page = rows.flat_map(|row| {
        row.split('|').nth(1).unwrap().split(',').map(|it| it.trim().parse().unwrap())
    });
    assert_eq!(in_help.collect::<Vec<_>>(), on_page.collect::<Vec<u8>>());
}
