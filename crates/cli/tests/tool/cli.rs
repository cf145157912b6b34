//! Settings, topology, and error messages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use rehop_testing::Broker;
use serde_json::{Value, json};

use super::folder::Folder;
use super::process::{Finished, Tool, variables};
use crate::support::Fixture;

async fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Finished {
    Tool::start(arguments, environment.iter().copied()).finished().await
}

#[tokio::test]
async fn a_wrong_setting_is_an_error_with_its_key_and_its_source() {
    let directory = std::env::temp_dir().join(format!("rehop-tool-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("mistake.toml");
    fs::write(&file, "[retry]\nimmediate = \"hunter2\"\n").unwrap();
    let file = file.to_str().unwrap();
    let check = async |arguments: &[&str], environment: &[(&str, &str)], expected: &[&str]| {
        let error = run(&[arguments, &["config", "show"]].concat(), environment).await.error(1);
        for part in expected {
            assert!(error.contains(part), "{error:?} does not say {part:?}");
        }
        assert!(!error.contains("hunter2"), "{error}");
    };
    check(&["--config", file], &[], &["retry.immediate", file]).await;
    check(
        &[],
        &[("REHOP_RETRY__IMMEDIATE", "hunter2")],
        &["retry.immediate", "REHOP_RETRY__IMMEDIATE"],
    )
    .await;
    check(&["--set", "retry.immediate=hunter2"], &[], &["retry.immediate", "--set"]).await;
    check(&["--set", "retries=hunter2"], &[], &["error: retries (from --set)", "unknown key"])
        .await;
    check(
        &["--set", "retry.limit=hunter2"],
        &[],
        &["error: retry.limit (from --set)", "unknown key"],
    )
    .await;
    check(&["--set", "broker.timeout=1ms"], &[], &["broker.timeout", "1s to 10m"]).await;
    check(&["--set", "broker.url=hunter2"], &[], &["broker.url", "amqp://"]).await;
    check(&["--url", "hunter2"], &[], &["broker.url (from --url)", "amqp://"]).await;
    check(&["--profile", "nowhere"], &[], &["config/nowhere.toml does not exist"]).await;
    check(&["--config", "nowhere.toml"], &[], &["nowhere.toml does not exist", "--config"]).await;
    check(&["--set", "retry.immediate=10"], &[], &["delivery_limit", "raise"]).await;
    fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn a_wrong_command_line_has_an_exit_status_of_its_own_and_is_not_quoted() {
    for (arguments, expected) in [
        (&["relay", "--queue", "q", "--to", "ftp://user:hunter2@host/"][..], "http://"),
        (&["relay", "--queue", "q", "--to", "hunter2"], "not a URL"),
        (&["relay", "--queue", "q", "--to", "http://h", "--timeout", "0s"], "1ms to 12h"),
        (&["relay", "--queue", "q", "--to", "http://h", "--concurrency", "0"], "1..="),
        (&["--set", "broker.password:hunter2", "config", "show"], "KEY=VALUE"),
        (&["topology", "show"], "--queue"),
        (&["parked", "discard", "--discarded"], "unexpected argument '--discarded'"),
        (&["topology", "show", "--queue", "q", "--json", "--dot"], "cannot be used with"),
    ] {
        let error = run(arguments, &[]).await.error(2);
        assert!(error.contains(expected) && !error.contains("hunter2"), "{arguments:?}: {error}");
    }
}

#[tokio::test]
async fn a_wrong_log_filter_is_an_error() {
    let error = run(&["topology", "show", "--queue", "q"], &[("RUST_LOG", "==")]).await.error(1);
    assert!(error.contains("RUST_LOG"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_ends_by_itself_logs_its_connections_only_if_asked() {
    let fixture = Fixture::new("quiet").await;
    let queue = fixture.queue.as_str();
    let asked =
        [variables(&fixture.settings), vec![("RUST_LOG".to_owned(), "rehop=info".to_owned())]]
            .concat();
    for command in [
        &["topology", "declare", "--queue", queue][..],
        &["topology", "verify", "--queue", queue],
        &["doctor", "--queue", queue],
        &["publish", "--queue", queue],
        &["parked", "list", "--queue", queue],
    ] {
        let quiet = fixture.tool(command).finished().await;
        assert!(quiet.err.is_empty() && !quiet.out.is_empty(), "{command:?}: {}", quiet.err);
        let verbose = fixture.tool(&[command, &["-v"]].concat()).finished().await;
        let filtered = Tool::start(command, asked.clone()).finished().await;
        for Finished { err, .. } in [verbose, filtered] {
            assert!(err.contains("connected broker="), "{command:?}: {err}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_is_an_error_after_the_startup_timeout() {
    for command in [
        &["relay", "--queue", "q", "--to", "http://127.0.0.1:1/"][..],
        &["topology", "declare", "--queue", "q"],
    ] {
        let arguments = [command, &["--set", "broker.startup_timeout=0s"]].concat();
        let error =
            run(&arguments, &[("REHOP_BROKER__URL", "amqp://guest:hunter2@127.0.0.1:1/%2f")])
                .await
                .error(1);
        assert!(
            error.contains("cannot reach the broker at 127.0.0.1:1")
                && error.contains("broker.url"),
            "{error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_shows_no_password() {
    let mut url: url::Url = Broker::shared().await.amqp_url().parse().unwrap();
    url.set_password(Some("hunter2")).unwrap();
    let relay = ["relay", "--queue", "q", "--to", "http://127.0.0.1:1/", "-vv"];
    let finished = run(&relay, &[("REHOP_BROKER__URL", url.as_str())]).await;
    assert_eq!(finished.code(), 1);
    let said = &finished.err;
    assert!(
        said.contains("error: the broker at")
            && said.contains("refused user")
            && said.contains("broker.password")
    );
    assert!(!finished.err.contains("hunter2"), "{}", finished.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_exists_with_other_arguments_is_left_alone() {
    let fixture = Fixture::new("other").await;
    let declare = ["topology", "declare", "--queue", &fixture.queue];
    let first = fixture
        .tool(&[&declare[..], &["--set", "retry.delivery_limit=3"]].concat())
        .finished()
        .await;
    assert_eq!(first.code(), 0, "{}", first.err);
    let declared = fixture.tool(&declare).finished().await;
    let error = declared.error(1);
    for part in [fixture.queue.as_str(), "x-delivery-limit", "'3'", "'10'", "nothing was changed"] {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

#[tokio::test]
async fn config_show_names_every_layer_and_masks_secrets() {
    let environment = [
        ("REHOP_BROKER__URL", "amqp://billing:hunter2@rabbit:5672/%2f"),
        ("REHOP_BROKER__PASSWORD", "hunter3"),
        ("REHOP_RETRY__DELAYS", "[1s, 5s]"),
    ];
    let arguments = ["config", "show", "--set", "retry.immediate=3"];
    let json = run(&[&arguments[..], &["--json"]].concat(), &environment).await;
    assert!(!json.out.contains("hunter"), "{}", json.out);
    let entries: Vec<Value> = serde_json::from_str(&json.out).unwrap();
    let entry = |key: &str| {
        let entry = entries
            .iter()
            .find(|entry| entry["key"] == key)
            .unwrap_or_else(|| panic!("no {key}: {}", json.out));
        (entry["value"].clone(), entry["source"].as_str().unwrap().to_owned())
    };
    let check =
        |key: &str, value: Value, source: &str| assert_eq!(entry(key), (value, source.to_owned()));
    check("broker.url", json!("amqp://billing:***@rabbit:5672/%2f"), "REHOP_BROKER__URL");
    check("broker.password", json!("***"), "REHOP_BROKER__PASSWORD");
    check("retry.delays", json!(["1s", "5s"]), "REHOP_RETRY__DELAYS");
    check("retry.immediate", json!(3), "--set");
    check("retry.delivery_limit", json!(10), "built-in default");
    check("consume.prefetch", json!(100), "built-in default");
    let literal = run(&["config", "show", "--json", "--set", "namespace=0123"], &[]).await;
    assert!(literal.out.contains(r#""value": "0123""#), "{}", literal.out);
    let table = run(&arguments, &environment).await;
    assert!(
        table.out.starts_with("KEY ") && table.out.contains("REHOP_BROKER__URL"),
        "{}",
        table.out
    );
    assert!(!table.out.contains("hunter"), "{}", table.out);
}

#[tokio::test]
async fn config_init_writes_a_file_that_loads_and_overwrites_none() {
    let directory = std::env::temp_dir().join(format!("rehop-init-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("rehop.toml");
    let path = file.to_str().unwrap();
    let init = run(&["config", "init", path, "--namespace", "billing"], &[]).await;
    assert_eq!(
        (init.code(), init.out.trim()),
        (0, format!("wrote {path}").as_str()),
        "{}",
        init.err
    );
    let shown = run(&["config", "show", "--config", path], &[]).await;
    let of_file: Vec<_> = shown.out.lines().filter(|line| line.contains(path)).collect();
    assert!(of_file.len() == 1 && of_file[0].contains("billing"), "{}{}", shown.out, shown.err);
    let error = run(&["config", "init", path], &[]).await.error(1);
    assert!(error.contains("exists already"), "{error}");
    fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn completions_and_manual_pages_are_generated() {
    let completions = run(&["completions", "bash"], &[]).await;
    assert!(
        completions.out.contains("relay") && completions.out.contains("--concurrency"),
        "{}",
        completions.err
    );
    let manual = run(&["man"], &[]).await;
    assert!(manual.out.contains(".TH rehop 1") && manual.out.contains("relay"), "{}", manual.err);
    let directory = std::env::temp_dir().join(format!("rehop-man-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let written = run(&["man", "--directory", directory.to_str().unwrap()], &[]).await;
    assert_eq!(written.code(), 0, "{}", written.err);
    assert!(
        directory.join("rehop-relay.1").exists()
            && directory.join("rehop-topology-show.1").exists()
    );
    fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn topology_show_prints_one_topology_in_three_ways() {
    let show = [
        "topology",
        "show",
        "--queue",
        "orders",
        "--queue",
        "a \"quoted\" one",
        "--set",
        "namespace=shop",
    ];
    let json = run(&[&show[..], &["--json"]].concat(), &[]).await;
    let topology: Value = serde_json::from_str(&json.out).unwrap();
    let names = |what: &str| -> BTreeSet<String> {
        topology[what]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert!(names("exchanges").contains("shop.wait") && names("queues").contains("orders.parked"));
    assert_eq!(
        topology["limits"][0],
        json!({
            "queue": "orders", "strategy": "tiers", "max_attempts": 8, "max_deliveries": 44, "max_wait_ms": 670_000,
            "longest_chain_ms": 1_150_000, "wait_queues": 3, "shares_wait_queues": true,
        })
    );
    assert_eq!(topology["queue_count"], 8);
    let table = run(&show, &[]).await;
    for name in names("exchanges").union(&names("queues")) {
        assert!(table.out.contains(name.as_str()), "{name} is missing: {}", table.out);
    }
    let dot = run(&[&show[..], &["--dot"]].concat(), &[]).await;
    check_dot(&dot.out, names("exchanges").len() + names("queues").len());
}

#[tokio::test]
async fn topology_show_prints_for_each_way_to_wait_what_it_allows_and_needs() {
    let queues = "queues=[{queue=tiers},{queue=ladder,retry={strategy=ladder}},\
                  {queue=native,retry={strategy=native,delays=[30s,30s]},consume={handler_timeout=5s}},\
                  {queue=held,retry={strategy=in-process,delays=[1s,5s]}},\
                  {queue=whole,retry={strategy=in-process,delays=[1s]},consume={order=queue}},\
                  {queue=keys,retry={strategy=in-process,delays=[10s,1m]},consume={order={header=customer}}}]";
    let show = ["topology", "show", "--set", queues, "--set", "namespace=shop"];
    let json = run(&[&show[..], &["--json"]].concat(), &[]).await;
    let topology: Value =
        serde_json::from_str(&json.out).unwrap_or_else(|_| panic!("{}", json.err));
    let limits = |queue: &str| {
        let all = topology["limits"].as_array().unwrap();
        let limits = all.iter().find(|limits| limits["queue"] == queue).unwrap();
        let number = |key: &str| limits[key].as_u64();
        let keys = [
            "max_attempts",
            "max_deliveries",
            "max_wait_ms",
            "longest_chain_ms",
            "wait_queues",
            "max_unsettled",
        ];
        (limits["strategy"].as_str().unwrap().to_owned(), keys.map(number))
    };
    let check = |queue: &str, strategy: &str, numbers: [u64; 5], max_unsettled: Option<u64>| {
        let [attempts, deliveries, wait, chain, queues] = numbers.map(Some);
        let expected = [attempts, deliveries, wait, chain, queues, max_unsettled];
        assert_eq!(limits(queue), (strategy.to_owned(), expected), "{queue}");
    };
    // An attempt may last for a minute, except where the queue says otherwise.
    check("tiers", "tiers", [8, 44, 670_000, 1_150_000, 3], None);
    // 600 s are rounded up to 640 s.
    check("ladder", "ladder", [8, 44, 710_000, 1_190_000, 22], None);
    check("native", "native", [4, 13, 60_000, 80_000, 0], None);
    check("held", "in-process", [6, 11, 6_000, 366_000, 0], None);
    check("whole", "in-process", [4, 11, 1_000, 241_000, 0], Some(1));
    check("keys", "in-process", [6, 11, 70_000, 430_000, 0], Some(20));
    let names: Vec<_> =
        topology["queues"].as_array().unwrap().iter().map(|queue| &queue["name"]).collect();
    // Six work queues and their parked ones, the stray queue, three tiers and 22 rungs.
    assert_eq!((&topology["queue_count"], names.len()), (&json!(38), 38), "{names:?}");
    let table = run(&show, &[]).await.out;
    assert!(
        table.contains("11m 50s") && table.contains("19m 50s"),
        "the waits and the chain of the ladder: {table}"
    );
    for line in [
        "keys: one process at a time consumes it in order, and holds 20 messages at most",
        "38 queues in all",
    ] {
        assert!(table.lines().any(|it| it == line), "{line} is missing: {table}");
    }
    assert!(
        table.contains(
            "whole: one process at a time consumes it in order, and holds one message at most"
        ),
        "{table}"
    );
    assert_eq!(table.matches("consumes it in order").count(), 2, "{table}");
}

/// The part of Graphviz's grammar that is used: `"node" [attributes];` and
/// `"node" -> "node" [attributes];`, quotes escaped.
fn check_dot(dot: &str, nodes: usize) {
    let lines: Vec<_> = dot.lines().collect();
    assert!(dot.starts_with("digraph topology {\n") && lines.last() == Some(&"}"), "{dot}");
    let quoted = |text: &str| {
        let mut escaped = false;
        let end = text.strip_prefix('"')?.char_indices().find(|(_, c)| {
            let ends = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            ends
        })?;
        Some((text[1..=end.0].to_owned(), text[end.0 + 2..].trim_start().to_owned()))
    };
    let (mut declared, mut used) = (BTreeSet::new(), BTreeSet::new());
    for line in lines.iter().filter(|line| line.starts_with("  \"")) {
        let (from, rest) = quoted(line.trim_start()).unwrap_or_else(|| panic!("{line}"));
        let attributes = match rest.strip_prefix("-> ") {
            Some(rest) => {
                let (to, rest) = quoted(rest).unwrap_or_else(|| panic!("{line}"));
                used.extend([from, to]);
                rest
            }
            None => {
                declared.insert(from);
                rest
            }
        };
        assert!(attributes.starts_with('[') && attributes.ends_with("];"), "{line}");
    }
    assert_eq!(declared.len(), nodes, "{dot}");
    assert!(used.is_subset(&declared), "{used:?} {declared:?}");
}

#[tokio::test]
async fn a_reader_that_closes_the_pipe_early_is_not_an_error() {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_rehop"))
        .args(["topology", "show", "--queue", "orders"])
        .env_clear()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let finished = child.wait_with_output().unwrap();
    assert!(
        finished.status.success() && finished.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&finished.stderr)
    );
}

/// The help of every command for a terminal of 80 columns, by the command's words; that of `rehop`
/// itself has none. Each help names its subcommands, so a new command cannot be forgotten here.
async fn all_help() -> BTreeMap<String, String> {
    let (mut found, mut open) = (BTreeMap::new(), vec![String::new()]);
    while let Some(command) = open.pop() {
        let arguments: Vec<_> = command.split_whitespace().chain(["--help"]).collect();
        let help = run(&arguments, &[("COLUMNS", "80")]).await;
        assert_eq!(help.code(), 0, "{command}: {}", help.err);
        open.extend(
            subcommands(&help.out).map(|name| format!("{command} {name}").trim_start().to_owned()),
        );
        found.insert(command, help.out);
    }
    for known in ["relay", "parked list", "topology show"] {
        assert!(
            found.contains_key(known),
            "the lists of commands were not understood: {:?}",
            found.keys()
        );
    }
    found
}

/// The names under "Commands:", without clap's own `help`.
fn subcommands(help: &str) -> impl Iterator<Item = &str> {
    let list = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    // A description that is wrapped goes on further to the right.
    let named =
        list.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    named.filter_map(|line| line.split(' ').next()).filter(|name| *name != "help")
}

#[tokio::test]
async fn help_fits_a_terminal_of_eighty_columns_and_documents_the_headers() {
    let all = all_help().await;
    for (command, help) in &all {
        // The line of the usage is not wrapped.
        let is_long = |line: &&str| line.chars().count() > 80 && !line.starts_with("Usage: ");
        let long: Vec<_> = help.lines().filter(is_long).collect();
        assert!(long.is_empty(), "{command}: {long:#?}");
    }
    let discard = &all["parked discard"];
    assert!(discard.contains("<--queue <QUEUE>|--stray>"), "{discard}");
    for (command, does) in [("replay", "Send"), ("discard", "Discard"), ("restore", "Move")] {
        let help = &all[&format!("parked {command}")];
        for says in [
            format!("{does} the messages; without it, print a plan"),
            format!("{does} nothing unless"),
        ] {
            assert!(help.contains(&says), "{says:?} is missing: {help}");
        }
    }
    for header in [
        "rehop-queue",
        "rehop-exchange",
        "rehop-routing-key",
        "rehop-message-id",
        "rehop-attempt",
        "rehop-deadline",
    ] {
        assert!(all["relay"].contains(header), "{header}");
    }
    let version = run(&["--version"], &[]).await;
    assert_eq!(version.out.trim(), format!("rehop {}", env!("CARGO_PKG_VERSION")));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_with_secrets_that_everybody_can_read_are_named_in_a_warning() {
    let folder = Folder::new(&rehop_testing::Namespace::new("exposed"));
    let write = |name: &str, text: &str, mode: u32| {
        let file = folder.0.join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        file.display().to_string()
    };
    let password = write("password", "hunter2", 0o644);
    for (text, mode, warned) in [
        ("broker.password = \"hunter2\"".to_owned(), 0o644, &["settings.toml"][..]),
        ("broker.url = \"amqp://u:hunter2@rabbit\"".to_owned(), 0o644, &["settings.toml"]),
        ("broker.url = \"amqp://u:hunter2@rabbit\"".to_owned(), 0o640, &[]),
        ("broker.url = \"amqp://u@rabbit\"".to_owned(), 0o644, &[]),
        (format!("broker.password_file = {password:?}"), 0o644, &["password"]),
    ] {
        let settings = write("settings.toml", &format!("namespace = \"ns\"\n{text}\n"), mode);
        let export = ["topology", "export", "--queue", "q", "--config", &settings];
        let finished = run(&export, &[]).await;
        assert_eq!(finished.code(), 0, "{}", finished.err);
        let named: Vec<_> = finished
            .err
            .lines()
            .filter(|line| line.contains("every user of this machine"))
            .collect();
        assert_eq!(named.len(), warned.len(), "{text} {mode:o}: {}", finished.err);
        for (line, file) in named.iter().zip(warned) {
            assert!(line.contains(&format!("{}, which holds", folder.0.join(file).display())));
            assert!(!line.contains("hunter2"), "{line}");
        }
    }
}
