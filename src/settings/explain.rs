//! Turns figment's errors into ours: they name the key and its source, and quote no value but the
//! queue's name.

use figment::error::{Actual, Kind};
use figment::value::Value;
use figment::{Figment, Metadata, Source};

use super::{SettingsError, values};

/// The prefix of the variables that hold settings.
pub(super) const PREFIX: &str = "REHOP_";
/// The name of a layer with one variable.
pub(super) const VARIABLE: &str = "environment variable";

/// Adds the source to an error found by validation, which knows only the key.
pub(super) fn located(error: SettingsError, figment: &Figment) -> SettingsError {
    let SettingsError::Invalid { key, problem, .. } = error else { return error };
    let mut path = key.as_str();
    let metadata = loop {
        if let Some(metadata) = figment.find_metadata(path) {
            break Some(metadata);
        }
        match path.rsplit_once('.') {
            Some((parent, _)) => path = parent,
            None => break None,
        }
    };
    let from = metadata.map(|metadata| source_of(metadata, path));
    SettingsError::Invalid { key, from, problem }
}

pub(super) fn source_of(metadata: &Metadata, path: &str) -> String {
    match &metadata.source {
        Some(Source::File(file)) => file.display().to_string(),
        _ if is_of_our_variables(&metadata.name) => variable(path),
        _ => metadata.name.to_string(),
    }
}

/// figment names its providers of variables after their prefix. A figment of the service's own may
/// have others.
fn is_of_our_variables(name: &str) -> bool {
    name == VARIABLE || name.contains("environment variable") && name.contains(PREFIX)
}

/// The variable that holds this key. It may hold a whole list or table that contains it.
pub(super) fn variable(path: &str) -> String {
    let name = |path: &str| format!("{PREFIX}{}", path.replace('.', "__").to_uppercase());
    let mut paths =
        std::iter::successors(Some(path), |path| path.rsplit_once('.').map(|(parent, _)| parent));
    paths.find(|path| std::env::var_os(name(path)).is_some()).map_or_else(|| name(path), name)
}

/// figment's errors quote the value and do not name the variable. Ours name the variable and do not
/// quote the value.
pub(super) fn explain(error: figment::Error) -> SettingsError {
    let mut key = error.path.join(".");
    let problem = match &error.kind {
        Kind::InvalidType(actual, expected) => {
            format!("expected {expected}, found {}", type_of(actual))
        }
        Kind::InvalidValue(_, expected) => format!("expected {expected}"),
        Kind::InvalidLength(length, expected) => {
            format!("expected {expected}, found {length} values")
        }
        Kind::UnknownVariant(_, expected) => format!("expected one of {}", expected.join(", ")),
        Kind::UnknownField(field, expected) => {
            // In some layers figment's path includes the field, in others it does not.
            if error.path.last() != Some(field) {
                key = if key.is_empty() { field.clone() } else { format!("{key}.{field}") };
            }
            format!("unknown key; expected one of {}{}", expected.join(", "), remark(&key))
        }
        Kind::MissingField(field) => format!("the key `{field}` is missing"),
        Kind::DuplicateField(field) => format!("the key `{field}` appears twice"),
        Kind::ISizeOutOfRange(_) | Kind::USizeOutOfRange(_) => {
            "the number is out of range".to_owned()
        }
        Kind::Message(message) => message.clone(),
        Kind::Unsupported(actual) => format!("{} is not allowed here", type_of(actual)),
        Kind::UnsupportedKey(_, expected) => format!("expected {expected} as key"),
    };
    let from = error.metadata.as_ref().map(|metadata| source_of(metadata, &key));
    SettingsError::Invalid { key, from, problem }
}

/// As [`explain`], for an error in the settings as a whole: names also the queue whose settings are
/// wrong.
pub(super) fn explain_in(error: figment::Error, figment: &Figment) -> SettingsError {
    let error = explain(error);
    let SettingsError::Invalid { key, .. } = &error else { return error };
    let queue = figment.find_value("queues").ok().and_then(|queues| queue_of(key, &queues));
    match queue {
        Some(queue) => error.of_queue(&queue),
        None => error,
    }
}

/// The name of the queue to whose settings a key such as `queues.3.retry.delays` belongs. `None` if
/// there is none, because the list is wrong in other ways too.
fn queue_of(key: &str, queues: &Value) -> Option<String> {
    /// Read as the setting is.
    #[derive(serde::Deserialize)]
    struct Name(#[serde(deserialize_with = "values::text")] String);

    let index = key.strip_prefix("queues.")?.split('.').next()?.parse::<usize>().ok()?;
    let name = queues.as_array()?.get(index)?.as_dict()?.get("queue")?;
    name.deserialize().ok().map(|Name(name)| name)
}

/// What else to say about a key that is not there.
fn remark(key: &str) -> &'static str {
    let is_below_queues_or_retry = key.starts_with("queues.") || key.starts_with("retry.");
    if is_below_queues_or_retry && key.ends_with(".ladder") {
        return "; there is one ladder for each namespace: set it in [ladder], and run a queue that needs another one under another namespace";
    }
    ""
}

fn type_of(actual: &Actual) -> &'static str {
    match actual {
        Actual::Bool(_) => "a boolean",
        Actual::Unsigned(_) | Actual::Signed(_) => "a number",
        Actual::Float(_) => "a fraction",
        Actual::Char(_) | Actual::Str(_) => "a string",
        Actual::Bytes(_) => "bytes",
        Actual::Unit | Actual::Option => "nothing",
        Actual::Seq => "a list",
        Actual::Map => "a table",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use figment::providers::{Format, Toml};
    use figment::value::Dict;

    use super::*;

    fn named(key: &str, toml: &str) -> Option<String> {
        let dict: Dict = Toml::from_str(toml).unwrap();
        queue_of(key, &dict["queues"])
    }

    #[test]
    fn a_key_in_the_list_of_queues_belongs_to_the_queue_at_its_place() {
        let two = "[[queues]]\nqueue = \"a\"\n[[queues]]\nretri = 1\nqueue = \"b \\\"c\\\"\"\n";
        let name = |key| named(key, two);
        assert_eq!(
            [name("queues.0"), name("queues.0.retry.delays")],
            [Some("a".to_owned()), Some("a".to_owned())]
        );
        assert_eq!(name("queues.1.retri"), Some("b \"c\"".to_owned()));
        for other in [
            "",
            "queues",
            "queues.",
            "queues.2",
            "queues.-1",
            "queues.x",
            "queues.99999999999999999999",
            "retry.0",
        ] {
            assert_eq!(name(other), None, "{other}");
        }
        for name in ["42", "-1", "true"] {
            assert_eq!(
                named("queues.0.retri", &format!("queues = [{{ queue = {name} }}]")).as_deref(),
                Some(name)
            );
        }
    }

    #[test]
    fn a_list_of_queues_that_is_wrong_itself_names_none() {
        for queues in ["3", "\"a\"", "{}", "{ 0 = { queue = \"a\" } }", "[]", "[3]", "[[]]", "[{}]"]
        {
            assert_eq!(named("queues.0.retry", &format!("queues = {queues}")), None, "{queues}");
        }
        for name in ["[\"a\"]", "{ a = 1 }", "1.5"] {
            assert_eq!(
                named("queues.0.retry", &format!("queues = [{{ queue = {name} }}]")),
                None,
                "{name}"
            );
        }
    }
}
