//! Layers, and mistakes in them: each error names the key and its source, says what to do, and never quotes the value.

use std::collections::BTreeSet;

use figment::Jail;
use secrecy::ExposeSecret;

use super::*;
use crate::{Backoff, Declare, MaxAge};

/// In a directory of its own, and with variables that end with the test. Such tests run one after the other.
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
        file(jail, "config/default.toml", "[retry]\nimmediate = 2\ndelays = [\"1s\"]\n[broker]\ntimeout = \"5s\"\n");
        file(jail, "own.toml", "[retry]\ndelays = [\"2s\", \"3s\"]\nmax_age = \"1h\"\n");
        jail.set_env("REHOP_CONFIG", "own.toml");
        jail.set_env("REHOP_RETRY__ON_EXPIRED", "discard");
        let settings = Settings::load().unwrap();
        assert_eq!(settings.retry.immediate, Some(2));
        assert_eq!(settings.retry.delays, Some(Backoff::List([2, 3].map(std::time::Duration::from_secs).to_vec())));
        assert_eq!(settings.retry.max_age, Some(MaxAge(Some(std::time::Duration::from_secs(3600)))));
        assert_eq!(settings.retry.on_expired, Some(crate::Ending::Discard));
        assert_eq!(settings.broker.timeout.as_secs(), 5);
    });
}

#[test]
fn the_loader_may_name_profile_file_and_directory_itself() {
    jailed(|jail| {
        jail.create_dir("elsewhere").unwrap();
        file(jail, "elsewhere/default.toml", "expiry_header = \"a\"");
        file(jail, "elsewhere/staging.toml", "namespace = \"b\"");
        file(jail, "c.toml", "[shutdown]\ngrace = \"7s\"");
        jail.set_env("REHOP_PROFILE", "missing");
        jail.set_env("REHOP_CONFIG", "missing.toml");
        let settings = Loader::new().directory("elsewhere").profile("staging").file("c.toml").load().unwrap();
        let seen = (settings.expiry_header.as_str(), settings.namespace.as_str(), settings.shutdown.grace.as_secs());
        assert_eq!(seen, ("a", "b", 7));
    });
}

#[test]
fn a_queue_is_read_with_everything_that_it_can_say() {
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
            errors = { "payment::Declined" = "permanent" }
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
fn values_of_digits_are_text_where_a_text_is_meant() {
    jailed(|jail| {
        jail.set_env("REHOP_NAMESPACE", "42");
        jail.set_env("REHOP_BROKER__USERNAME", "true");
        jail.set_env("REHOP_BROKER__PASSWORD", "12345");
        let settings = Settings::load().unwrap();
        assert_eq!(settings.namespace, "42");
        assert_eq!(settings.broker.username.as_deref(), Some("true"));
        assert_eq!(settings.broker.password.unwrap().expose_secret(), "12345");
    });
}

/// A password must arrive as its owner wrote it, whatever else the text could mean.
#[test]
fn a_password_in_a_variable_is_not_read_as_another_value() {
    for password in ["012345", "1e5", "0.10", "+7", "18446744073709551616", "true", "1.0", " x ", "[1]", "{a=1}", "a,b"]
    {
        jailed(|jail| {
            jail.set_env("REHOP_BROKER__PASSWORD", password);
            let settings = Settings::load().unwrap_or_else(|error| panic!("{password}: {error}"));
            assert_eq!(settings.broker.password.unwrap().expose_secret(), password);
        });
    }
}

const SECRET: &str = "hunter2";

/// Loads what is wrong in three ways: by a file, by a variable and by the program.
fn check_mistake(key: &str, toml_value: &str, variable_value: Option<&str>, says: &str) {
    jailed(|jail| {
        let look = |error: SettingsError, source: &str| {
            let text = error.to_string();
            let SettingsError::Invalid { key: named, from, .. } = error else { panic!("{key}: {text}") };
            assert!(named == key || named.starts_with(&format!("{key}.")), "{key}: {text}");
            assert!(from.as_deref().unwrap_or_default().ends_with(source), "{key} from {source}: {text}");
            assert!(text.contains(says), "{key} says {says:?}: {text}");
            assert!(!text.contains(SECRET), "{key}: the value is quoted: {text}");
        };
        let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
        let table = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
        file(jail, "config/default.toml", &format!("{table}{name} = {toml_value}\n"));
        look(Settings::load().unwrap_err(), "default.toml");
        file(jail, "config/default.toml", "");
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
    check("namespace", "\"amq.hunter2\"", Some("amq.hunter2"), "the broker's own");
    check("namespace", "[\"hunter2\"]", None, "expected a text, found a list");
    check("topology", "\"hunter2\"", Some("hunter2"), "expected one of declare, check");
    check("expiry_header", "\"rehop-hop\"", Some("rehop-hop"), "another meaning");
    check("expiry_header", "\"x-death\"", Some("x-death"), "another meaning");
    check("expiry_header", "\"return-to\"", Some("return-to"), "another meaning");
    check("broker.url", "\"hunter2\"", Some("hunter2"), "such as amqp://user:password@host:5672/vhost");
    check("broker.url", "\"http://u:hunter2@h\"", Some("http://u:hunter2@h"), "such as amqp://");
    check("broker.url", "\"amqp://u:hunter2#@h\"", Some("amqp://u:hunter2#@h"), "percent-encoded");
    check("broker.url", "[\"hunter2\"]", None, "expected a text");
    check("broker.password", "[\"hunter2\"]", None, "expected a text");
    check("broker.timeout", "\"hunter2\"", Some("hunter2"), "a duration such as \"30s\"");
    check("broker.timeout", "30", Some("30"), "a duration such as \"30s\"");
    check("broker.timeout", "\"0s\"", Some("0s"), "out of bounds: 1s to 10m");
    check("broker.startup_timeout", "\"2h\"", Some("2h"), "out of bounds: 0s to 1h");
    check("broker.heartbeat", "\"6m\"", Some("6m"), "out of bounds: 1s to 5m");
    check("shutdown.grace", "\"2h\"", Some("2h"), "out of bounds: 0s to 1h");
    check("trace.max_age", "\"1ms\"", Some("1ms"), "out of bounds: 1s to 365d");
    check("retry.delivery_limit", "0", Some("0"), "out of bounds: 1 to 1000");
    check("retry.delivery_limit", "1001", Some("1001"), "out of bounds: 1 to 1000");
    check("retry.delivery_limit", "-3", Some("-3"), "expected");
    check("retry.immediate", "10", Some("10"), "raise delivery_limit above immediate");
    check("retry.delays", "[\"hunter2\"]", Some("[hunter2]"), "a duration such as \"30s\"");
    check("retry.delays", "\"hunter2\"", Some("hunter2"), "a list such as");
    check("retry.delays", "[\"0s\"]", Some("[\"0s\"]"), "at least 1ms");
    check("retry.delays", "[\"31d\"]", None, "30 days at most");
    check("retry.delays", "{ kind = \"fixed\", waits = 2 }", Some("{kind=fixed,waits=2}"), "need `delay`");
    check("retry.delays", "{ kind = \"fixed\", delay = \"1s\", waits = 2, jitter = 0.5 }", None, "cannot carry jitter");
    check("retry.max_age", "\"hunter2\"", Some("hunter2"), "a duration such as \"1d\", or \"none\"");
    check("retry.max_age", "\"0s\"", Some("0s"), "out of bounds: 1ms to 3650d");
    check("retry.on_exhausted", "\"hunter2\"", Some("hunter2"), "expected one of park, discard");
    check("retry.on_expired", "\"hunter2\"", Some("hunter2"), "expected one of park, discard");
    check("retry.errors", "{ x = \"hunter2\" }", Some("{x=hunter2}"), "transient, requeue, permanent, discard");
    check("consume.prefetch", "0", Some("0"), "at least 1");
    check("consume.prefetch", "70000", Some("70000"), "expected");
    check("consume.concurrency", "101", Some("101"), "1 to prefetch, which is 100");
    check("consume.handler_timeout", "\"0s\"", Some("0s"), "out of bounds: 1ms to 1d");
    check("consume.handler_timeout", "\"hunter2\"", Some("hunter2"), "a duration such as");
}

#[test]
fn a_certificate_needs_its_key_and_a_key_its_certificate() {
    for (given, missing) in [("cert_file", "key_file"), ("key_file", "cert_file")] {
        let error =
            Loader::new().directory("/nonexistent").set(&format!("broker.tls.{given}"), "a.pem").load().unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(&format!("broker.tls.{missing}")) && text.contains(&format!("set `{missing}` too")),
            "{text}"
        );
    }
}

#[test]
fn an_unknown_key_is_named_with_those_that_exist() {
    check_mistake("namspace", "\"hunter2\"", Some("hunter2"), "possible are namespace, topology");
    check_mistake("broker.pasword", "\"hunter2\"", Some("hunter2"), "possible are url, username, password");
    check_mistake("retry.limit", "3", Some("3"), "possible are delivery_limit, immediate");
    check_mistake("consume.threads", "3", Some("3"), "possible are prefetch, concurrency");
}

#[test]
fn a_mistake_in_a_queue_names_the_queues_place_and_key() {
    let check = |toml: &str, key: &str, says: &str| {
        jailed(|jail| {
            file(jail, "config/default.toml", toml);
            let text = Settings::load().unwrap_err().to_string();
            assert!(text.starts_with(key) && text.contains("default.toml") && text.contains(says), "{toml}\n{text}");
            assert!(!text.contains(SECRET), "{text}");
        });
    };
    check("[[queues]]\n", "queues.0.queue", "1 to 255 bytes");
    check("[[queues]]\nqueue = \"a\"\n[[queues]]\nqueue = \"a\"\n", "queues.1.queue", "listed twice");
    check("[[queues]]\nqueue = \"a\"\nparked = \"a\"\n", "queues.0.parked", "its own parked queue");
    check("[[queues]]\nqueue = \"a\"\nqueue_type = \"classic\"\n", "queues.0.queue_type", "declare = \"existing\"");
    check(
        "[[queues]]\nqueue = \"a\"\nbindings = [{ exchange = \"\" }]\n",
        "queues.0.bindings.0.exchange",
        "default exchange",
    );
    check(
        "[[queues]]\nqueue = \"a\"\nbindings = [{ routing_key = \"hunter2\" }]\n",
        "queues.0.bindings.0",
        "`exchange` is missing",
    );
    check(
        "[[queues]]\nqueue = \"a\"\n[queues.retry]\nimmediate = 10\n",
        "queues.0.retry.immediate",
        "raise delivery_limit",
    );
    check("[[queues]]\nqueue = \"a\"\n[queues.consume]\nprefetch = 0\n", "queues.0.consume.prefetch", "at least 1");
    check("[[queues]]\nqueue = \"a\"\nretri = \"hunter2\"\n", "queues.0.retri", "no such key");
    check("queues = \"hunter2\"\n", "queues", "found a text");
}

#[test]
fn what_was_named_and_is_missing_is_an_error_that_says_who_named_it() {
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
        assert_eq!(entry(&entries, "broker.password"), ("***".to_owned(), "REHOP_BROKER__PASSWORD".to_owned()));
        assert_eq!(entry(&entries, "retry.immediate"), ("3".to_owned(), "REHOP_RETRY__IMMEDIATE".to_owned()));
        assert_eq!(entry(&entries, "shutdown.grace"), ("\"5s\"".to_owned(), "the program".to_owned()));
        assert_eq!(entry(&entries, "broker.heartbeat"), ("\"15s\"".to_owned(), "built-in default".to_owned()));
        assert!(!format!("{entries:?}").contains(SECRET));
    });
}

#[test]
fn no_form_of_the_settings_shows_a_secret() {
    jailed(|jail| {
        jail.set_env("REHOP_BROKER__URL", "amqp://u:hunter2@h/%2f");
        jail.set_env("REHOP_BROKER__PASSWORD", SECRET);
        let settings = Settings::load().unwrap();
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
        let under = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
        match value {
            Value::Dict(_, dict) if !at.ends_with(".errors") && !at.ends_with(".delays") => {
                dict.iter().for_each(|(name, value)| keys(value, &under(name), found));
            }
            Value::Array(_, list) if matches!(list.first(), Some(Value::Dict(..))) => keys(&list[0], at, found),
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

    /// With the comments taken off of every key that is out-commented because it has no default.
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
            assert_eq!(settings.broker.url.expose_secret(), DEFAULT_URL);
            let plan = |settings: &Settings| {
                let plan = settings.plan().unwrap().queue("any").unwrap();
                (plan.prefetch, plan.concurrency, plan.handler_timeout)
            };
            assert_eq!(plan(&Settings::default()), plan(&Settings::load().unwrap()));
        });
    }

    #[test]
    fn the_default_file_has_every_key() {
        jailed(|jail| {
            let text = uncommented();
            // Every key that there is: unknown ones are refused, so the file has no others.
            file(
                jail,
                "config/default.toml",
                &text.replace("cert_file", "# cert_file").replace("key_file", "# key_file"),
            );
            Settings::load().unwrap_or_else(|error| panic!("{error}\n{text}"));
            let documented = keys_of(&text);
            for (table, fields) in fields() {
                for field in fields {
                    let key = if table.is_empty() { field.to_owned() } else { format!("{table}.{field}") };
                    let there = documented.iter().any(|other| *other == key || other.starts_with(&format!("{key}.")));
                    assert!(there, "config/default.toml does not say {key}; it has {documented:?}");
                }
            }
        });
    }

    /// The keys that each table takes, as serde itself lists them when it meets one that it does not know.
    fn fields() -> Vec<(&'static str, Vec<String>)> {
        let tables = ["", "broker", "broker.tls", "retry", "consume", "shutdown", "trace"];
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
        fields.push(("queues", list("queues".to_owned(), "[[queues]]\nqueue = \"a\"\nzzz = 1\n".to_owned())));
        fields.push((
            "queues.bindings",
            list(
                "bindings".to_owned(),
                "[[queues]]\nqueue = \"a\"\n[[queues.bindings]]\nexchange = \"a\"\nzzz = 1\n".to_owned(),
            ),
        ));
        fields
    }

    #[test]
    fn the_profiles_are_valid() {
        for (profile, text) in [("development", DEVELOPMENT), ("production", PRODUCTION)] {
            jailed(|jail| {
                file(jail, "config/default.toml", DEFAULT);
                file(jail, &format!("config/{profile}.toml"), text);
                Loader::new().profile(profile).load().unwrap_or_else(|error| panic!("{error}"));
            });
        }
    }
}
