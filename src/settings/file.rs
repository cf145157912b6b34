//! Settings files: which part of one is rehop's.

use std::path::{Path, PathBuf};

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Source};

use super::{Settings, SettingsError};

/// The table for rehop in a file that has others beside it.
const TABLE: &str = "rehop";

/// Whom a file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// rehop. Without a table `[rehop]`, every key must be one of its own.
    Rehop,
    /// The service, which may keep its own settings in it.
    Service,
}

/// A settings file, or the part of it that is rehop's.
#[derive(Debug, Clone)]
pub(super) struct SettingsFile {
    path: PathBuf,
    settings: Dict,
}

impl figment::Provider for SettingsFile {
    fn metadata(&self) -> Metadata {
        Metadata::from("TOML file", Source::File(self.path.clone()))
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.settings.clone()))
    }
}

/// A file that is compiled in.
pub(super) fn built_in(text: &str) -> impl figment::Provider {
    Toml::string(text)
}

/// Reads exactly this file; figment would also look for a relative path in the parent directories.
/// Of a syntax error only the first and last line are kept, because the rest quotes the file.
pub(super) fn read(path: &Path, owner: Owner) -> Result<SettingsFile, SettingsError> {
    let unreadable = |problem: String| SettingsError::Unreadable { path: path.to_owned(), problem };
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    let all: Dict = Toml::from_str(&text).map_err(|error| {
        let lines: Vec<_> = error.to_string().lines().map(str::to_owned).collect();
        let (first, last) =
            (lines.first().cloned().unwrap_or_default(), lines.last().cloned().unwrap_or_default());
        unreadable(if first == last { first } else { format!("{first}: {last}") })
    })?;
    let settings = part_of_rehop(all, owner).map_err(|(key, problem)| SettingsError::Invalid {
        key,
        from: Some(path.display().to_string()),
        problem,
    })?;
    Ok(SettingsFile { path: path.to_owned(), settings })
}

/// The table `[rehop]`; or else the whole file, if all its keys are rehop's; or else nothing, if
/// none is and the file is the service's. A service's file with keys of both kinds may have a
/// mistyped key or be somebody else's, so it is an error.
fn part_of_rehop(mut all: Dict, owner: Owner) -> Result<Dict, (String, String)> {
    match all.remove(TABLE) {
        Some(Value::Dict(_, table)) => return Ok(table),
        Some(_) => return Err((TABLE.to_owned(), "expected a table".to_owned())),
        None => {}
    }
    let ours = keys();
    let (known, others): (Vec<&String>, Vec<&String>) =
        all.keys().partition(|key| ours.contains_key(*key));
    match (owner, known.first(), others.first()) {
        (Owner::Service, None, Some(_)) => Ok(Dict::new()),
        (Owner::Service, Some(known), Some(other)) => Err((
            (*other).clone(),
            format!(
                "unknown key, beside `{known}`, which is a key of rehop's; if this file also has other settings than rehop's, \
                 move rehop's under [rehop], or into rehop.toml; an empty [rehop] says that none of it is rehop's"
            ),
        )),
        _ => Ok(all),
    }
}

/// The keys at the top level; each has a default.
fn keys() -> Dict {
    Value::serialize(Settings::default()).ok().and_then(Value::into_dict).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys_of(text: &str, owner: Owner) -> Result<Vec<String>, (String, String)> {
        part_of_rehop(Toml::from_str(text).unwrap(), owner).map(|dict| dict.into_keys().collect())
    }

    #[test]
    fn every_top_level_key_of_the_settings_is_known() {
        let keys: Vec<_> = keys().into_keys().collect();
        let expected = [
            "broker",
            "consume",
            "expiry_header",
            "ladder",
            "mask",
            "namespace",
            "queues",
            "retry",
            "shutdown",
            "topology",
            "trace",
        ];
        assert_eq!(keys, expected);
    }

    #[test]
    fn of_a_services_file_the_table_for_rehop_is_read_or_the_whole_file_if_it_is_all_rehops() {
        let keys = |text: &str| keys_of(text, Owner::Service).unwrap();
        assert_eq!(
            keys("[database]\nurl = \"x\"\n[retry]\nmine = 1\n[rehop.consume]\nprefetch = 1\n"),
            ["consume"]
        );
        assert_eq!(keys("namespace = \"a\"\n[retry]\nimmediate = 1\n"), ["namespace", "retry"]);
        assert!(keys("log_level = \"info\"\n[database]\nurl = \"x\"\n").is_empty());
        assert!(keys("[retry]\nmine = 1\n[rehop]\n").is_empty());
        assert!(keys("").is_empty());
    }

    #[test]
    fn a_services_file_with_keys_of_both_kinds_is_an_error_that_says_how_to_tell_them_apart() {
        let (key, problem) =
            keys_of("namspace = \"hunter2\"\n[retry]\nimmediate = 1\n", Owner::Service)
                .unwrap_err();
        assert_eq!(key, "namspace");
        assert!(
            problem.contains("`retry`")
                && problem.contains("[rehop]")
                && problem.contains("rehop.toml")
        );
        assert!(!problem.contains("hunter2"));
    }

    #[test]
    fn a_file_of_rehops_is_read_whole_so_that_mistyped_keys_are_found() {
        assert_eq!(keys_of("namspace = 1\n", Owner::Rehop).unwrap(), ["namspace"]);
        assert_eq!(
            keys_of("[database]\n[rehop]\nnamespace = \"a\"\n", Owner::Rehop).unwrap(),
            ["namespace"]
        );
        assert_eq!(keys_of("rehop = 3\n", Owner::Rehop).unwrap_err().0, "rehop");
    }
}
