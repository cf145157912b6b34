//! The JSON that the tool prints has the keys that the page about scripts lists, with their types, and no others.

use std::collections::{BTreeMap, BTreeSet};

use rehop::Failure;
use rehop_testing::eventually;
use serde_json::{Value, json};

use crate::broker_api::BrokerApi;
use crate::support::{Fixture, millis};
use crate::topology::COUNTED;

const PAGE: &str = include_str!("../../../operator/src/docs/scripting.md");

/// The rows of one command's table: a key's path, split at each step, and the type that the page gives it.
type Rows = Vec<(Vec<String>, String)>;

/// The page's tables, and which of their rows a command has printed.
struct Page {
    tables: BTreeMap<String, Rows>,
    printed: BTreeSet<(String, Vec<String>)>,
    /// The commands whose keys are those of another one.
    same: BTreeSet<String>,
}

impl Page {
    fn new() -> Self {
        let (mut tables, mut all_same): (BTreeMap<String, Rows>, _) = (BTreeMap::new(), BTreeSet::new());
        for section in PAGE.split("\n### ").skip(1) {
            let (title, text) = section.split_once('\n').unwrap();
            let rows = text.lines().filter(|line| line.starts_with("| `"));
            let mut rows: Rows = rows
                .map(|line| {
                    let mut cells = line.trim_matches('|').split(" | ");
                    let (key, kind) = (cells.next().unwrap().trim().trim_matches('`'), cells.next().unwrap());
                    let steps = key.replace("[]", ".[]");
                    (steps.trim_start_matches('.').split('.').map(str::to_owned).collect(), kind.trim().to_owned())
                })
                .collect();
            if let Some(same) = text.lines().find_map(|line| line.strip_prefix("The keys are those of `")) {
                rows.clone_from(&tables[same.trim_end_matches("`.")]);
                all_same.insert(title.to_owned());
            }
            assert!(!rows.is_empty(), "{title}");
            tables.insert(title.to_owned(), rows);
        }
        Self { tables, printed: BTreeSet::new(), same: all_same }
    }

    fn compare(&mut self, title: &str, printed: &Value) {
        let rows = self.tables.get(title).unwrap_or_else(|| panic!("the page has no {title}")).clone();
        self.look(title, &rows, &mut Vec::new(), printed);
        for (path, kind) in rows.iter().filter(|(_, kind)| !kind.ends_with("may be absent")) {
            assert!(has(printed, path), "{title}: {} ({kind}) is missing: {printed}", path.join("."));
        }
    }

    /// Compares what is at this path with the page.
    fn look(&mut self, title: &str, rows: &Rows, path: &mut Vec<String>, value: &Value) {
        let row = rows.iter().find(|(steps, _)| fits(steps, path));
        if let Some((steps, kind)) = row {
            self.printed.insert((title.to_owned(), steps.clone()));
            let (kind, is_optional) = kind.split_once(", ").map_or((kind.as_str(), false), |(kind, _)| (kind, true));
            let fits = match kind {
                "string" => value.is_string(),
                "number" | "time" => value.is_number(),
                "true or false" => value.is_boolean(),
                "any" => true,
                other => panic!("{title}: no such type as {other}"),
            };
            assert!(fits || (is_optional && value.is_null()), "{title}: {} is no {kind}: {value}", path.join("."));
            if kind != "any"
                || !value.is_object()
                || !rows.iter().any(|(longer, _)| longer.len() > steps.len() && longer.starts_with(steps))
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
            _ => assert!(row.is_some(), "{title}: the page does not have {}: {value}", path.join(".")),
        }
    }
}

/// Whether a path is that of a row, in which `<queue>` stands for any key.
fn fits(steps: &[String], path: &[String]) -> bool {
    steps.len() == path.len() && steps.iter().zip(path).all(|(step, key)| step == key || step.starts_with('<'))
}

/// Whether a value has this path in each of its elements. Arrays and maps may be empty.
fn has(value: &Value, path: &[String]) -> bool {
    let Some((step, rest)) = path.split_first() else { return true };
    match (step.as_str(), value) {
        ("[]", Value::Array(values)) => values.iter().all(|value| has(value, rest)),
        (key, Value::Object(map)) if key.starts_with('<') => map.values().all(|value| has(value, rest)),
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
    compare!("rehop topology verify --json", of_queue);
    fixture.client.declare_queue(&format!("{queue}.parked"), json!({ "x-queue-type": "quorum" })).await.unwrap();
    compare!("rehop topology plan --json", of_queue);
    fixture.client.delete_queue(&format!("{queue}.parked")).await.unwrap();
    let set = format!("queues=[{{queue={queue},consume={{order=queue}}}}]");
    compare!("rehop topology show --json", ["--set", &set, "--set", "retry.strategy=in-process"]);
    compare!("rehop topology show --json", of_queue, ["--set", "retry.strategy=delayed-exchange"]);

    fixture.settings.retry.delays = millis([100, 200, 3_600_000]);
    let run = fixture.serve_always(Err(Failure::permanent("no such customer").with_class("http_422"))).await;
    fixture.settings.retry.delays = millis([100, 200]);
    for id in ["order-1", "order-2", "order-3"] {
        let arguments = ["publish", "--queue", &queue, "--message-id", id, "--json", "{\"id\": 7}", "--deadline", "1h"];
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
    compare!("rehop parked edit --apply --json", of_queue, ["order-1", "--body", "/dev/null", "--follow", "100ms"]);
    compare!("rehop parked discard --json", of_queue);
    compare!("rehop parked discard --apply --json", of_queue, ["--limit", "1", "--all"]);
    compare!("rehop parked discard --apply --json", of_queue, ["--expect", "7"]);
    let exported = fixture.tool(&[&["parked", "export"], &of_queue[..]].concat()).finished().await;
    let lines: Vec<_> = exported.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
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
        if listed.out.contains(&format!("queue {tier}: it is empty")) { Ok(true) } else { Err(listed.out) }
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
            !kind.ends_with("may be absent") && !is_content && !page.printed.contains(&((*title).clone(), path.clone()))
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
    let in_help = listed.lines().filter_map(|line| line.split_whitespace().next()?.parse::<u8>().ok());
    let (_, table) = PAGE.split_once("| status | meaning |\n|---|---|\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let on_page = rows.flat_map(|row| row.split('|').nth(1).unwrap().split(',').map(|it| it.trim().parse().unwrap()));
    assert_eq!(in_help.collect::<Vec<_>>(), on_page.collect::<Vec<u8>>());
}
