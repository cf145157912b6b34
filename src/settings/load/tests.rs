//! The layers, and mistakes in them: each error names the key and its source, says what to do, and
//! never quotes the value.

use std::collections::BTreeSet;
use std::time::Duration;

use figment::Jail;
use figment::error::Kind;
use figment::providers::{Env, Format, Toml};

use super::*;
use crate::Backoff;
use crate::settings::explain::variable;
use crate::settings::{Declare, MaxAge, Treatment};

/// Runs a test in a directory of its own, with variables that are unset afterwards. Such tests run
/// one at a time.
#[allow(clippy::result_large_err, reason = "figment's own signature")]
fn jailed(test: impl FnOnce(&mut Jail)) {
    Jail::expect_with(|jail| {
        jail.set_env("REHOP_PROFILE", "");
        jail.set_env("REHOP_CONFIG", "");
        jail.create_dir("config")?;
        test(jail);
        Ok(())
    });
}

fn file(jail: &mut Jail, path: &str, text: &str) {
    jail.create_file(path, text).unwrap();
}

fn entry(entries: &[Entry], key: &str) -> (String, String) {
    let entry = entries.iter().find(|entry| entry.key == key).unwrap_or_else(|| panic!("no {key}"));
    (entry.value.clone(), entry.source.clone())
}

#[test]
fn later_layers_win() {
    jailed(|jail| {
        let namespace = |loader: Loader| loader.load().unwrap().namespace;
        assert!(namespace(Loader::new()).starts_with("rehop"), "the program's name");
        file(jail, "rehop.toml", "namespace = \"own\"");
        assert_eq!(namespace(Loader::new()), "own");
        file(jail, "config/default.toml", "namespace = \"default\"");
        assert_eq!(namespace(Loader::new()), "default");
        file(jail, "config/production.toml", "namespace = \"profile\"");
        jail.set_env("REHOP_PROFILE", "production");
        assert_eq!(namespace(Loader::new()), "profile");
        file(jail, "own.toml", "namespace = \"file\"");
        jail.set_env("REHOP_CONFIG", "own.toml");
        assert_eq!(namespace(Loader::new()), "file");
        jail.set_env("REHOP_NAMESPACE", "variable");
        assert_eq!(namespace(Loader::new()), "variable");
        assert_eq!(namespace(Loader::new().set("namespace", "program")), "program");
    });
}

#[test]
fn a_layer_that_says_nothing_about_a_key_leaves_it_alone() {
    jailed(|jail| {
        file(
            jail,
            "config/default.toml",
            "[retry]\nimmediate = 2\ndelays = [\"1s\"]\n[broker]\ntimeout = \"5s\"\n",
        );
        file(jail, "own.toml", "[retry]\ndelays = [\"2s\", \"3s\"]\nmax_age = \"1h\"\n");
        jail.set_env("REHOP_CONFIG", "own.toml");
        jail.set_env("REHOP_RETRY__ON_EXPIRED", "discard");
        let settings = Settings::load().unwrap();
        assert_eq!(settings.retry.immediate, Some(2));
        assert_eq!(
            settings.retry.delays,
            Some(Backoff::List([2, 3].map(std::time::Duration::from_secs).to_vec()))
        );
        assert_eq!(
            settings.retry.max_age,
            Some(MaxAge(Some(std::time::Duration::from_secs(3600))))
        );
        assert_eq!(settings.retry.on_expired, Some(crate::settings::Ending::Discard));
        assert_eq!(settings.broker.timeout.as_secs(), 5);
    });
}

#[test]
fn the_loader_can_name_profile_file_and_directory_itself() {
    jailed(|jail| {
        jail.create_dir("elsewhere").unwrap();
        file(jail, "elsewhere/default.toml", "expiry_header = \"a\"");
        file(jail, "elsewhere/staging.toml", "namespace = \"b\"");
        file(jail, "c.toml", "[shutdown]\ngrace = \"7s\"");
        jail.set_env("REHOP_PROFILE", "missing");
        jail.set_env("REHOP_CONFIG", "missing.toml");
        let settings =
            Loader::new().directory("elsewhere").profile("staging").file("c.toml").load().unwrap();
        let seen = (
            settings.expiry_header.as_str(),
            settings.namespace.as_str(),
            settings.shutdown.grace.as_secs(),
        );
        assert_eq!(seen, ("a", "b", 7));
    });
}

#[test]
fn the_services_own_files_may_have_other_tables() {
    jailed(|jail| {
        file(jail, "rehop.toml", "namespace = \"billing\"\n[retry]\nimmediate = 2\n");
        file(jail, "config/default.toml", "log_level = \"info\"\n[database]\nurl = \"x\"\n");
        file(jail, "config/staging.toml", "[retry]\nmine = true\n[rehop.retry]\nimmediate = 3\n");
        let settings = Loader::new().load().unwrap();
        assert_eq!((settings.namespace.as_str(), settings.retry.immediate), ("billing", Some(2)));
        let settings = Loader::new().profile("staging").load().unwrap();
        assert_eq!((settings.namespace.as_str(), settings.retry.immediate), ("billing", Some(3)));
        file(jail, "all.toml", "[database]\nurl = \"x\"\n[rehop.retry]\nimmediate = 4\n");
        assert_eq!(Loader::new().file("all.toml").load().unwrap().retry.immediate, Some(4));
        file(jail, "config/default.toml", "[database]\nurl = \"x\"\n[retry]\nimmediate = 1\n");
        let text = Loader::new().load().unwrap_err().to_string();
        assert!(
            text.starts_with("database (from config/default.toml)") && text.contains("[rehop]"),
            "{text}"
        );
    });
}

#[test]
fn a_mistake_in_the_table_for_rehop_names_its_key_and_its_file() {
    jailed(|jail| {
        file(jail, "config/default.toml", "[database]\nurl = \"x\"\n[rehop.retry]\nimmediat = 1\n");
        let text = Settings::load().unwrap_err().to_string();
        assert!(
            text.starts_with("retry.immediat (from config/default.toml): unknown key"),
            "{text}"
        );
    });
}

#[test]
fn the_built_in_profiles_need_no_file_and_every_file_overrides_them() {
    jailed(|jail| {
        jail.set_env("REHOP_PROFILE", "production");
        assert_eq!(
            Settings::load().unwrap().retry.max_age,
            Some(MaxAge(Some(Duration::from_secs(86_400))))
        );
        let entries = Loader::new().effective().unwrap();
        assert_eq!(entry(&entries, "shutdown.grace").1, "built-in profile production");
        file(jail, "rehop.toml", "[retry]\nmax_age = \"2h\"\n");
        file(jail, "config/production.toml", "[database]\nurl = \"x\"\n");
        let settings = Settings::load().unwrap();
        assert_eq!(settings.retry.max_age, Some(MaxAge(Some(Duration::from_secs(7200)))));
        assert_eq!(settings.shutdown.grace, Duration::from_secs(25));
        file(jail, "config/production.toml", "[rehop.shutdown]\ngrace = \"9s\"\n");
        assert_eq!(Settings::load().unwrap().shutdown.grace, Duration::from_secs(9));
    });
}

#[test]
fn variables_of_a_kubernetes_service_named_rehop_are_passed_over_and_other_unknown_ones_are_not() {
    jailed(|jail| {
        jail.set_env("REHOP_PORT", "tcp://10.0.0.1:5672");
        jail.set_env("REHOP_SERVICE_HOST", "10.0.0.1");
        jail.set_env("REHOP_SERVICE_PORT_AMQP", "5672");
        jail.set_env("REHOP_PORT_5672_TCP_ADDR", "10.0.0.1");
        jail.set_env("REHOP_RELAY_SERVICE_PORT", "80");
        let settings = Settings::load().unwrap();
        assert_eq!(settings.broker.url.expose(), DEFAULT_URL);
        jail.set_env("REHOP_BROKER__PORT", "5672");
        let text = Settings::load().unwrap_err().to_string();
        assert!(text.starts_with("broker.port (from REHOP_BROKER__PORT): unknown key"), "{text}");
    });
}

#[test]
fn a_queue_is_read_with_all_its_settings() {
    jailed(|jail| {
        file(
            jail,
            "config/default.toml",
            r#"
            [[queues]]
            queue = "orders"
            declare = "existing"
            queue_type = "quorum"
            parked = "orders.dead"
            bindings = [{ exchange = "shop", routing_key = "order.*" }, { exchange = "audit" }]
            consume = { prefetch = 10, concurrency = 2, handler_timeout = "3s" }
            [queues.retry]
            immediate = 0
            delays = { kind = "fixed", delay = "5s", waits = 3 }
            max_age = "none"
            errors = { "payment::Error" = "permanent" }
            "#,
        );
        let settings = Settings::load().unwrap();
        let queue = &settings.queues[0];
        assert_eq!((queue.queue.as_str(), queue.declare), ("orders", Declare::Existing));
        assert_eq!(queue.bindings.len(), 2);
        assert_eq!(settings.policy("orders").unwrap().max_attempts(), 4);
    });
}

#[test]
fn values_that_consist_of_digits_are_read_as_strings_where_a_string_is_expected() {
    jailed(|jail| {
        jail.set_env("REHOP_NAMESPACE", "42");
        jail.set_env("REHOP_BROKER__USERNAME", "true");
        jail.set_env("REHOP_BROKER__PASSWORD", "12345");
        let settings = Settings::load().unwrap();
        assert_eq!(settings.namespace, "42");
        assert_eq!(settings.broker.username.as_deref(), Some("true"));
        assert_eq!(settings.broker.password.unwrap().expose(), "12345");
    });
}

/// A password must arrive exactly as it was written, whatever else the text could mean.
#[test]
fn a_password_in_a_variable_is_not_read_as_another_value() {
    for password in [
        "012345",
        "1e5",
        "0.10",
        "+7",
        "18446744073709551616",
        "true",
        "1.0",
        " x ",
        "[1]",
        "{a=1}",
        "a,b",
    ] {
        jailed(|jail| {
            jail.set_env("REHOP_BROKER__PASSWORD", password);
            let settings = Settings::load().unwrap_or_else(|error| panic!("{password}: {error}"));
            assert_eq!(settings.broker.password.unwrap().expose(), password);
        });
    }
}

const SECRET: &str = "hunter2";

/// Loads a wrong value from a file and from a variable.
fn check_mistake(key: &str, toml_value: &str, variable_value: Option<&str>, says: &str) {
    jailed(|jail| {
        let look = |error: SettingsError, source: &str| {
            let text = error.to_string();
            let SettingsError::Invalid { key: named, from, .. } = error else {
                panic!("{key}: {text}")
            };
            assert!(named == key || named.starts_with(&format!("{key}.")), "{key}: {text}");
            assert!(
                from.as_deref().unwrap_or_default().ends_with(source),
                "{key} from {source}: {text}"
            );
            assert!(text.contains(says), "{key} says {says:?}: {text}");
            assert!(!text.contains(SECRET), "{key}: the value is quoted: {text}");
        };
        let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
        let table = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
        file(jail, "rehop.toml", &format!("{table}{name} = {toml_value}\n"));
        look(Settings::load().unwrap_err(), "rehop.toml");
        file(jail, "rehop.toml", "");
        if let Some(value) = variable_value {
            let name = variable(key);
            jail.set_env(&name, value);
            look(Settings::load().unwrap_err(), &name);
        }
    });
}

#[test]
fn every_mistake_names_its_key_its_source_and_what_to_do() {
    let check = check_mistake;
    check("namespace", "\"\"", None, "1 to 200 bytes");
    check("namespace", "\"amq.hunter2\"", Some("amq.hunter2"), "reserved for the broker");
    check("namespace", "[\"hunter2\"]", None, "expected a string, found a list");
    check("topology", "\"hunter2\"", Some("hunter2"), "expected one of declare, check");
    check("expiry_header", "\"rehop-hop\"", Some("rehop-hop"), "another meaning");
    check("expiry_header", "\"x-death\"", Some("x-death"), "another meaning");
    check("expiry_header", "\"rehop-return-to\"", Some("rehop-return-to"), "another meaning");
    check(
        "broker.url",
        "\"hunter2\"",
        Some("hunter2"),
        "such as amqp://user:password@host:5672/vhost",
    );
    check("broker.url", "\"http://u:hunter2@h\"", Some("http://u:hunter2@h"), "such as amqp://");
    check("broker.url", "\"amqp://u:hunter2#@h\"", Some("amqp://u:hunter2#@h"), "percent-encoded");
    check("broker.url", "[\"hunter2\"]", None, "expected a string");
    check("broker.password", "[\"hunter2\"]", None, "expected a string");
    check("broker.urls", "[\"hunter2\"]", Some("[hunter2]"), "such as amqp://");
    check("broker.urls", "\"amqp://u:hunter2@h\"", Some("amqp://u:hunter2@h"), "found a string");
    check(
        "broker.urls",
        "[\"amqp://u:hunter2@a\", \"http://u:hunter2@b\"]",
        None,
        "such as amqp://",
    );
    check("broker.password_file", "[\"hunter2\"]", None, "expected path string, found a list");
    check(
        "broker.management_url",
        "\"hunter2\"",
        Some("hunter2"),
        "such as http://127.0.0.1:15672",
    );
    check(
        "broker.management_url",
        "\"amqp://u:hunter2@h\"",
        Some("amqp://u:hunter2@h"),
        "such as http://",
    );
    check(
        "broker.management_url",
        "\"http://u:hunter2@\"",
        Some("http://u:hunter2@"),
        "such as http://",
    );
    check("broker.timeout", "\"hunter2\"", Some("hunter2"), "a duration such as \"30s\"");
    check("broker.timeout", "30", Some("30"), "a duration such as \"30s\"");
    check("broker.timeout", "\"0s\"", Some("0s"), "out of bounds: 1s to 10m");
    check("broker.startup_timeout", "\"2h\"", Some("2h"), "out of bounds: 0s to 1h");
    check("broker.heartbeat", "\"6m\"", Some("6m"), "out of bounds: 1s to 5m");
    check("shutdown.grace", "\"2h\"", Some("2h"), "out of bounds: 100ms to 1h");
    check("trace.max_age", "\"1ms\"", Some("1ms"), "out of bounds: 1s to 365d");
    check("retry.delivery_limit", "0", Some("0"), "out of bounds: 1 to 1000");
    check("retry.delivery_limit", "1001", Some("1001"), "out of bounds: 1 to 1000");
    check("retry.delivery_limit", "-3", Some("-3"), "expected");
    check("retry.immediate", "10", Some("10"), "raise delivery_limit above immediate");
    check("retry.delays", "[\"hunter2\"]", Some("[hunter2]"), "a duration such as \"30s\"");
    check("retry.delays", "\"hunter2\"", Some("hunter2"), "a list such as");
    check("retry.delays", "[\"0s\"]", Some("[\"0s\"]"), "at least 1ms");
    check("retry.delays", "[\"31d\"]", None, "30 days at most");
    check(
        "retry.delays",
        "{ kind = \"fixed\", waits = 2 }",
        Some("{kind=fixed,waits=2}"),
        "need `delay`",
    );
    check(
        "retry.delays",
        "{ kind = \"fixed\", delay = \"1s\", waits = 2, jitter = 0.5 }",
        None,
        "set retry.jitter",
    );
    check("retry.jitter", "\"full\"", Some("full"), "retry.strategy = \"ladder\"");
    check(
        "retry.jitter",
        "\"some\"",
        Some("some"),
        "expected one of none, full, equal, decorrelated",
    );
    check(
        "retry.strategy",
        "\"stairs\"",
        Some("stairs"),
        "expected one of tiers, ladder, delayed-exchange",
    );
    check("retry.after", "\"later\"", Some("later"), "expected one of own, ladder");
    check("retry.max_defers", "10001", Some("10001"), "out of bounds: 0 to 10000");
    check("ladder.rung", "\"0s\"", Some("0s"), "out of bounds: 1ms to 1d");
    check("ladder.precision", "0", Some("0"), "out of bounds: 1 to 8");
    check("ladder.precision", "9", Some("9"), "out of bounds: 1 to 8");
    check("ladder.max", "\"31d\"", Some("31d"), "out of bounds: 1s to 30d");
    check("ladder.max", "\"999ms\"", Some("999ms"), "out of bounds: 1s to 30d");
    check(
        "retry.max_age",
        "\"hunter2\"",
        Some("hunter2"),
        "a duration such as \"1d\", or \"none\"",
    );
    check("retry.max_age", "\"0s\"", Some("0s"), "out of bounds: 1ms to 3650d");
    check("retry.on_exhausted", "\"hunter2\"", Some("hunter2"), "expected one of park, discard");
    check("retry.on_expired", "\"hunter2\"", Some("hunter2"), "expected one of park, discard");
    check(
        "retry.errors",
        "{ x = \"hunter2\" }",
        Some("{x=hunter2}"),
        "transient, requeue, permanent, discard",
    );
    check("consume.prefetch", "0", Some("0"), "at least 1");
    check("consume.prefetch", "70000", Some("70000"), "expected");
    check("consume.concurrency", "101", Some("101"), "1 to prefetch, which is 100");
    check("consume.handler_timeout", "\"0s\"", Some("0s"), "out of bounds: 1ms to 1d");
    check("consume.handler_timeout", "\"hunter2\"", Some("hunter2"), "a duration such as");
}

#[test]
fn a_class_that_the_name_of_a_variable_cannot_hold_is_an_error_that_shows_the_form_that_works() {
    jailed(|jail| {
        jail.set_env("REHOP_RETRY__ERRORS__http_404", "permanent");
        jail.set_env("REHOP_RETRY__ERRORS__ParseIntError", SECRET);
        let text = Settings::load().unwrap_err().to_string();
        assert!(
            text.starts_with(
                "retry.errors.ParseIntError (from REHOP_RETRY__ERRORS__ParseIntError): "
            ),
            "{text}"
        );
        assert!(text.ends_with(r#"REHOP_RETRY__ERRORS='{ParseIntError="permanent"}'"#), "{text}");
        assert!(!text.contains(SECRET), "{text}");
    });
    for (variable, value, class) in [
        ("REHOP_RETRY__ERRORS", r#"{ParseIntError="permanent"}"#, "ParseIntError"),
        ("REHOP_RETRY__ERRORS__http_404", "permanent", "http_404"),
        ("REHOP_RETRY__ERRORS__HTTP_404", "permanent", "http_404"),
    ] {
        jailed(|jail| {
            jail.set_env(variable, value);
            let errors = Settings::load().unwrap().retry.errors.unwrap();
            assert_eq!(
                errors.into_iter().collect::<Vec<_>>(),
                [(class.to_owned(), Treatment::Permanent)]
            );
        });
    }
}

#[test]
fn two_settings_for_one_thing_are_an_error_that_names_both() {
    let check = |set: [(&str, Value); 2], key: &str, says: &str| {
        jailed(|_| {
            let loader =
                set.into_iter().fold(Loader::new(), |loader, (key, value)| loader.set(key, value));
            let text = loader.load().unwrap_err().to_string();
            assert!(
                text.starts_with(key) && text.contains(says) && !text.contains(SECRET),
                "{text}"
            );
        });
    };
    let url = || Value::from("amqp://u:hunter2@a");
    check(
        [("broker.url", url()), ("broker.urls", vec![url()].into())],
        "broker.urls (",
        "`url` or `urls`, not both",
    );
    check(
        [("broker.password", SECRET.into()), ("broker.password_file", "/x".into())],
        "broker.password_file (",
        "`password` or `password_file`, not both",
    );
}

#[test]
fn several_addresses_come_from_any_layer_and_are_shown_without_passwords() {
    jailed(|jail| {
        jail.set_env("REHOP_BROKER__URLS", r#"["amqp://u:hunter2@a", "amqp://u:hunter2@b"]"#);
        let settings = Settings::load().unwrap();
        let urls: Vec<_> = settings.broker.urls.iter().map(|url| url.expose().to_owned()).collect();
        assert_eq!(urls, ["amqp://u:hunter2@a", "amqp://u:hunter2@b"]);
        let (shown, source) = entry(&Loader::new().effective().unwrap(), "broker.urls");
        assert_eq!(
            (shown.as_str(), source.as_str()),
            (r#"["amqp://u:***@a","amqp://u:***@b"]"#, "REHOP_BROKER__URLS")
        );
        assert!(
            !format!("{settings:?}{}", serde_json::to_string(&settings).unwrap()).contains(SECRET)
        );
    });
}

#[test]
fn a_certificate_needs_its_key_and_a_key_its_certificate() {
    for (given, missing) in [("cert_file", "key_file"), ("key_file", "cert_file")] {
        jailed(|_| {
            let error =
                Loader::new().set(&format!("broker.tls.{given}"), "a.pem").load().unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains(&format!("broker.tls.{missing}"))
                    && text.contains(&format!("set `{missing}` too")),
                "{text}"
            );
        });
    }
}

#[test]
fn for_an_unknown_key_the_error_lists_the_known_ones() {
    check_mistake(
        "namspace",
        "\"hunter2\"",
        Some("hunter2"),
        "expected one of namespace, topology",
    );
    check_mistake(
        "broker.pasword",
        "\"hunter2\"",
        Some("hunter2"),
        "expected one of url, urls, username, password",
    );
    check_mistake("retry.limit", "3", Some("3"), "expected one of delivery_limit, immediate");
    check_mistake("consume.threads", "3", Some("3"), "expected one of prefetch, concurrency");
}

#[test]
fn for_a_mistake_in_a_queue_the_error_names_the_queue_its_position_and_the_key() {
    let check = |toml: &str, key: &str, says: &str| {
        jailed(|jail| {
            file(jail, "config/default.toml", toml);
            let text = Settings::load().unwrap_err().to_string();
            assert!(
                text.starts_with(key) && text.contains("default.toml") && text.contains(says),
                "{toml}\n{text}"
            );
            assert!(!text.contains(SECRET), "{text}");
        });
    };
    check("[[queues]]\n", "queues.0.queue", ": a queue's name must be 1 to 255 bytes long");
    check(
        "[[queues]]\nqueue = \"a\"\n[[queues]]\nqueue = \"a\"\n",
        "queues.1.queue",
        "listed twice",
    );
    check(
        "[[queues]]\nqueue = \"a\"\nparked = \"a\"\n",
        "queues.0.parked",
        ": queue \"a\": a queue cannot be its own",
    );
    check(
        "[[queues]]\nqueue = \"a\"\nqueue_type = \"classic\"\n",
        "queues.0.queue_type",
        "declare = \"existing\"",
    );
    check(
        "[[queues]]\nqueue = \"a\"\nbindings = [{ exchange = \"\" }]\n",
        "queues.0.bindings.0.exchange",
        "default exchange",
    );
    check(
        "[[queues]]\nqueue = \"a\"\nbindings = [{ routing_key = \"hunter2\" }]\n",
        "queues.0.bindings.0",
        ": queue \"a\": the key `exchange` is missing",
    );
    check(
        "[[queues]]\nqueue = \"a\"\n[queues.retry]\nimmediate = 10\n",
        "queues.0.retry.immediate",
        ": queue \"a\": immediate is 10",
    );
    check(
        "[[queues]]\nqueue = \"a\"\n[queues.consume]\nprefetch = 0\n",
        "queues.0.consume.prefetch",
        "at least 1",
    );
    check(
        "[[queues]]\nqueue = \"a\"\nretri = \"hunter2\"\n",
        "queues.0.retri",
        ": queue \"a\": unknown key",
    );
    check(
        "[[queues]]\nqueue = \"a\"\n[[queues]]\nqueue = \"b\"\nretry = { delays = 3 }\n",
        "queues.1.retry.delays",
        ": queue \"b\": ",
    );
    check("[[queues]]\nqueue = \"a\"\nretry = 3\n", "queues.0.retry", ": queue \"a\": expected");
    // Without a name there is only the position.
    check("[[queues]]\nretri = 1\n", "queues.0.retri", "default.toml): unknown key");
    check(
        "[[queues]]\nqueue = [\"hunter2\"]\n",
        "queues.0.queue",
        "default.toml): expected a string, found a list",
    );
    check("queues = [\"hunter2\"]\n", "queues.0", "default.toml): ");
    check("queues = \"hunter2\"\n", "queues", "found a string");
}

#[test]
fn a_queue_that_cannot_wait_as_it_is_to_is_refused_with_its_key_and_what_to_take_instead() {
    let check = |queue: &str, key: &str, says: &[&str]| {
        jailed(|jail| {
            file(jail, "config/default.toml", &format!("[[queues]]\nqueue = \"a\"\n{queue}"));
            let text = Settings::load().unwrap_err().to_string();
            assert!(
                text.starts_with(&format!("{key} (from config/default.toml): ")),
                "{queue}\n{text}"
            );
            assert!(says.iter().all(|says| text.contains(says)), "{queue}\n{text}");
        });
    };
    let retry = |rest: &str| format!("retry = {{ {rest} }}\n");
    check(
        &retry("jitter = \"full\""),
        "queues.0.retry.jitter",
        &["queue \"a\": ", "retry.strategy = \"ladder\""],
    );
    let native = |rest: &str| retry(&format!("strategy = \"native\", {rest}"));
    check(
        &native("delays = [\"1s\", \"5s\"]"),
        "queues.0.retry.delays",
        &["one fixed delay", "kind = \"fixed\"", "retry.strategy = \"tiers\""],
    );
    let once = "delays = [\"5s\"]";
    check(
        &native(&format!("{once}, jitter = \"full\"")),
        "queues.0.retry.jitter",
        &["retry.strategy = \"ladder\""],
    );
    check(
        &native(&format!("{once}, max_age = \"1d\"")),
        "queues.0.retry.max_age",
        &["\"none\"", "retry.strategy = \"tiers\""],
    );
    check(
        &retry("strategy = \"in-process\", delays = [\"1h\"]"),
        "queues.0.retry.delays",
        &["broker.consumer_timeout is 30m", "shorten retry.delays", "retry.strategy = \"tiers\""],
    );
    for order in ["\"queue\"", "\"routing-key\"", "{ header = \"customer\" }"] {
        check(
            &format!("consume = {{ order = {order} }}\n"),
            "queues.0.consume.order",
            &["queue \"a\": ", "retry.strategy = \"in-process\"", "order = \"none\""],
        );
    }
    check(
        "retry = { strategy = \"in-process\", delays = [\"1s\"], after = \"ladder\" }\nconsume = { order = \"queue\" }\n",
        "queues.0.retry.after",
        &["retry.after = \"own\"", "order = \"none\""],
    );
    let one_ladder = "one ladder for each namespace: set it in [ladder]";
    check("ladder = { rung = \"2s\" }\n", "queues.0.ladder", &[one_ladder]);
    check(&retry("ladder = { rung = \"2s\" }"), "queues.0.retry.ladder", &[one_ladder]);
}

#[test]
fn for_a_missing_file_the_error_says_who_named_it() {
    jailed(|jail| {
        Settings::load().expect("empty counts as unset");
        jail.set_env("REHOP_CONFIG", "gone.toml");
        let text = Settings::load().unwrap_err().to_string();
        assert!(text.contains("gone.toml") && text.contains("REHOP_CONFIG"), "{text}");
        jail.set_env("REHOP_PROFILE", "staging");
        let text = Settings::load().unwrap_err().to_string();
        assert!(text.contains("staging.toml") && text.contains("REHOP_PROFILE"), "{text}");
        file(jail, "config/staging.toml", "");
        let text = Loader::new().file("there.toml").load().unwrap_err().to_string();
        assert!(text.contains("there.toml"), "{text}");
    });
}

#[test]
fn a_syntax_error_says_where_and_does_not_quote_the_file() {
    for toml in [
        "[broker]\npassword = \"hunter2\n",
        "[broker]\npassword = hunter2\n",
        "[broker]\npassword = \"hunter2\" \"again\"\n",
        "[broker]\npassword = 'hunter2'\npassword = 'hunter2'\n",
        "[broker\nurl = \"amqp://u:hunter2@h\"\n",
        "hunter2",
        "hunter2 = ",
        "a = 1\n[a.hunter2]\n",
    ] {
        jailed(|jail| {
            file(jail, "config/default.toml", toml);
            let error = Settings::load().unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(matches!(error, SettingsError::Unreadable { .. }), "{toml}\n{text}");
            assert!(text.contains("default.toml") && text.contains("line"), "{toml}\n{text}");
            assert!(!text.contains(SECRET), "{toml}\n{text}");
        });
    }
}

#[test]
fn effective_settings_name_their_layers_and_mask_secrets() {
    jailed(|jail| {
        file(
            jail,
            "config/default.toml",
            "[broker]\nurl = \"amqp://u:hunter2@rabbit/%2f\"\n[[queues]]\nqueue = \"orders\"\n",
        );
        jail.set_env("REHOP_BROKER__PASSWORD", SECRET);
        jail.set_env("REHOP_RETRY__IMMEDIATE", "3");
        jail.set_env("REHOP_TEST_ANYTHING", SECRET);
        let entries = Loader::new().set("shutdown.grace", "5s").effective().unwrap();
        let (url, source) = entry(&entries, "broker.url");
        assert_eq!(url, "amqp://u:***@rabbit/%2f");
        assert!(source.ends_with("config/default.toml"), "{source}");
        assert_eq!(
            entry(&entries, "broker.password"),
            ("***".to_owned(), "REHOP_BROKER__PASSWORD".to_owned())
        );
        assert_eq!(
            entry(&entries, "retry.immediate"),
            ("3".to_owned(), "REHOP_RETRY__IMMEDIATE".to_owned())
        );
        assert_eq!(
            entry(&entries, "shutdown.grace"),
            ("\"5s\"".to_owned(), "the program".to_owned())
        );
        assert_eq!(
            entry(&entries, "broker.heartbeat"),
            ("\"15s\"".to_owned(), "built-in default".to_owned())
        );
        assert!(!format!("{entries:?}").contains(SECRET));
    });
}

#[test]
fn no_form_of_the_settings_shows_a_secret() {
    jailed(|jail| {
        jail.set_env("REHOP_BROKER__URL", "amqp://u:hunter2@h/%2f");
        jail.set_env("REHOP_BROKER__PASSWORD", SECRET);
        jail.set_env("REHOP_BROKER__MANAGEMENT_URL", "http://u:hunter2@h:15672");
        let settings = Settings::load().unwrap();
        assert!(
            settings
                .broker
                .management_url
                .as_ref()
                .is_some_and(|url| url.expose().contains(SECRET))
        );
        let (shown, _) = entry(&Loader::new().effective().unwrap(), "broker.management_url");
        assert_eq!(shown, "http://u:***@h:15672");
        assert!(!format!("{settings:?}").contains(SECRET));
        assert!(!serde_json::to_string(&settings).unwrap().contains(SECRET));
    });
}

mod shipped {
    use super::*;

    const DEFAULT: &str = include_str!("../../../config/default.toml");
    const DEVELOPMENT: &str = include_str!("../../../config/development.toml");
    const PRODUCTION: &str = include_str!("../../../config/production.toml");

    /// The keys of a table, with dots between its levels; of a list, its first entry's.
    fn keys(value: &Value, at: &str, found: &mut BTreeSet<String>) {
        let under =
            |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
        match value {
            Value::Dict(_, dict) if !at.ends_with(".errors") && !at.ends_with(".delays") => {
                dict.iter().for_each(|(name, value)| keys(value, &under(name), found));
            }
            Value::Array(_, list) if matches!(list.first(), Some(Value::Dict(..))) => {
                keys(&list[0], at, found)
            }
            _ => {
                found.insert(at.to_owned());
            }
        }
    }

    fn keys_of(toml: &str) -> BTreeSet<String> {
        let dict: figment::value::Dict = Toml::from_str(toml).unwrap();
        let mut found = BTreeSet::new();
        keys(&Value::from(dict), "", &mut found);
        found
    }

    /// The default file, with every key uncommented.
    fn uncommented() -> String {
        let is_setting = |line: &str| {
            line.starts_with("[[")
                || line
                    .split_once(" = ")
                    .is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        };
        let lines = DEFAULT.lines().map(|line| match line.strip_prefix("# ") {
            Some(setting) if is_setting(setting) => setting,
            _ => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_default_file_says_what_is_built_in() {
        jailed(|jail| {
            let resolved = || {
                let settings = Loader::new().set("namespace", "same").load().unwrap();
                (settings.policy("any").unwrap(), settings)
            };
            let (built_in, _) = resolved();
            file(jail, "config/default.toml", DEFAULT);
            let (shipped, settings) = resolved();
            assert_eq!(format!("{built_in:?}"), format!("{shipped:?}"));
            let same = Settings { namespace: "same".to_owned(), ..Settings::default() };
            let shown = |mut settings: Settings| {
                (settings.retry, settings.consume) = Default::default();
                serde_json::to_value(settings).unwrap()
            };
            assert_eq!(shown(same), shown(settings.clone()));
            assert_eq!(settings.broker.url.expose(), DEFAULT_URL);
            let plan = |settings: &Settings| {
                let plan = settings.resolve().unwrap().queue("any").unwrap();
                (plan.prefetch, plan.concurrency, plan.handler_timeout)
            };
            assert_eq!(plan(&Settings::default()), plan(&Settings::load().unwrap()));
        });
    }

    #[test]
    fn the_default_file_has_every_key() {
        jailed(|jail| {
            let text = uncommented();
            // Unknown keys are refused, so loading shows that the file has no others.
            file(
                jail,
                "config/default.toml",
                &text
                    .replace("cert_file", "# cert_file")
                    .replace("key_file", "# key_file")
                    .replace("password_file", "# password_file"),
            );
            Settings::load().unwrap_or_else(|error| panic!("{error}\n{text}"));
            let documented = keys_of(&text);
            for (table, fields) in fields() {
                for field in fields {
                    let key = if table.is_empty() {
                        field.to_owned()
                    } else {
                        format!("{table}.{field}")
                    };
                    let there = documented
                        .iter()
                        .any(|other| *other == key || other.starts_with(&format!("{key}.")));
                    assert!(there, "config/default.toml does not say {key}; it has {documented:?}");
                }
            }
        });
    }

    /// The keys of each table, as serde lists them when it meets an unknown one.
    fn fields() -> Vec<(&'static str, Vec<String>)> {
        let tables =
            ["", "broker", "broker.tls", "retry", "ladder", "consume", "shutdown", "trace"];
        let list = |key: String, toml: String| {
            let error = Figment::from(Toml::string(&toml)).extract::<Settings>().unwrap_err();
            let Kind::UnknownField(_, expected) = &error.kind else { panic!("{key}: {error}") };
            expected.iter().map(|field| (*field).to_owned()).collect()
        };
        let mut fields: Vec<_> = tables
            .map(|table| {
                let header = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
                (table, list(table.to_owned(), format!("{header}zzz = 1\n")))
            })
            .into();
        fields.push((
            "queues",
            list("queues".to_owned(), "[[queues]]\nqueue = \"a\"\nzzz = 1\n".to_owned()),
        ));
        fields.push((
            "queues.bindings",
            list(
                "bindings".to_owned(),
                "[[queues]]\nqueue = \"a\"\n[[queues.bindings]]\nexchange = \"a\"\nzzz = 1\n"
                    .to_owned(),
            ),
        ));
        fields
    }

    #[test]
    fn the_profiles_are_valid() {
        assert_eq!(PROFILES, [("development", DEVELOPMENT), ("production", PRODUCTION)]);
        for (profile, text) in [("development", DEVELOPMENT), ("production", PRODUCTION)] {
            jailed(|jail| {
                file(jail, "config/default.toml", DEFAULT);
                file(jail, &format!("config/{profile}.toml"), text);
                Loader::new().profile(profile).load().unwrap_or_else(|error| panic!("{error}"));
            });
        }
    }
}

/// A service's own figment, with other settings beside rehop's.
fn own(rehop: &str) -> Figment {
    let text = format!("database = \"postgres://billing\"\n[rehop]\n{rehop}");
    Figment::new().merge(Toml::string(&text)).merge(Env::prefixed("BILLING_").split("__"))
}

#[test]
fn a_figment_of_the_services_own_is_used_above_the_defaults_and_nothing_else_is_read() {
    jailed(|jail| {
        file(jail, "rehop.toml", "namespace = \"a file\"");
        jail.set_env("REHOP_NAMESPACE", "a variable");
        jail.set_env("BILLING_REHOP__RETRY__DELAYS", "[\"2s\"]");
        let figment = own("namespace = \"billing\"\nqueues = [{ queue = \"orders\" }]");
        let settings = Settings::from_figment(&figment.focus("rehop")).unwrap();
        assert_eq!(settings.namespace, "billing");
        assert_eq!(settings.broker.url.expose(), DEFAULT_URL);
        assert_eq!(settings.policy("orders").unwrap().max_attempts(), 4);
        let secret = "amqp://a:hunter2@rabbit-1/%2f";
        jail.set_env("BILLING_REHOP__BROKER__URL", secret);
        let settings = Settings::from_figment(&own("").focus("rehop")).unwrap();
        assert_eq!(settings.broker.url.expose(), secret);
    });
}

#[test]
fn errors_in_a_figment_of_the_services_own_name_the_key_and_what_provides_it() {
    jailed(|jail| {
        let check = |text: &str, expected: &[&str]| {
            let error = Settings::from_figment(&own(text).focus("rehop")).unwrap_err().to_string();
            for part in expected {
                assert!(error.contains(part), "{part:?}: {error}");
            }
            assert!(!error.contains("REHOP_") || error.contains("BILLING_"), "{error}");
            assert!(!error.contains("hunter"), "{error}");
        };
        check("namespaces = 1", &["namespaces", "unknown key", "TOML"]);
        check("retry = { delivery_limit = \"hunter\" }", &["retry.delivery_limit", "TOML"]);
        check("retry = { delivery_limit = 0 }", &["retry.delivery_limit", "TOML"]);
        check("broker = { url = \"hunter\" }", &["broker.url", "TOML"]);
        jail.set_env("BILLING_REHOP__BROKER__PASSWORD", "0123");
        check("", &["broker.password", "`BILLING_`", "expected a text", "double quotes"]);
        jail.set_env("BILLING_REHOP__BROKER__PASSWORD", "\"0123\"");
        let settings = Settings::from_figment(&own("").focus("rehop")).unwrap();
        assert_eq!(settings.broker.password.unwrap().expose(), "0123");
    });
}

#[test]
fn a_directory_that_the_program_names_has_to_exist_and_to_be_the_one_that_was_meant() {
    jailed(|jail| {
        file(jail, "config/default.toml", "namespace = \"billing\"");
        let error =
            |directory: &str| Loader::new().directory(directory).load().unwrap_err().to_string();
        assert!(error(".").contains("name ./config instead"), "{}", error("."));
        assert!(error("away").contains("call Loader::without_files"), "{}", error("away"));
        let loaded = |directory: &str| Loader::new().directory(directory).load().unwrap().namespace;
        assert_eq!(loaded("config"), "billing");
        jail.create_dir("empty").unwrap();
        assert_ne!(loaded("empty"), "billing", "variables may say all");
        file(jail, "empty/staging.toml", "namespace = \"staging\"");
        let staging = Loader::new().directory("empty").profile("staging").load().unwrap();
        assert_eq!(staging.namespace, "staging");
    });
}

#[test]
fn a_program_that_reads_no_files_finds_none() {
    jailed(|jail| {
        file(jail, "rehop.toml", "namespace = \"from-a-file\"");
        file(jail, "config/staging.toml", "namespace = \"staging\"");
        let loader = || Loader::new().without_files();
        assert_ne!(loader().load().unwrap().namespace, "from-a-file");
        assert!(loader().profile("production").load().is_ok(), "it is built in");
        let error = loader().profile("staging").load().unwrap_err().to_string();
        assert!(error.contains("staging.toml") && error.contains("reads no files"), "{error}");
        let named = loader().file("rehop.toml").load().unwrap();
        assert_eq!(named.namespace, "from-a-file");
    });
}
