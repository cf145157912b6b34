//! Why settings cannot be used.

use std::path::PathBuf;

/// What is wrong with the settings, and where it was set.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A value is wrong, missing or unknown.
    #[error("{key}{}: {problem}", from.as_ref().map(|from| format!(" (from {from})")).unwrap_or_default())]
    Invalid {
        /// The key, with dots between its levels.
        key: String,
        /// The file or variable that it was read from, if known.
        from: Option<String>,
        /// What is wrong. It quotes no string value except the name of a queue.
        problem: String,
    },
    /// A file that was named does not exist.
    #[error("the settings file {} does not exist; {hint}", path.display())]
    MissingFile {
        /// The file.
        path: PathBuf,
        /// Who named it.
        hint: String,
    },
    /// A file cannot be read, or is not valid TOML.
    #[error("cannot read the settings file {}: {problem}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Where it is wrong.
        problem: String,
    },
}

crate::debug::debug_is_display!(SettingsError);

impl SettingsError {
    #[doc(hidden)]
    pub fn invalid(key: String, problem: String) -> Self {
        Self::Invalid { key, from: None, problem }
    }

    /// Names the queue whose settings are wrong: a key such as `queues.3.retry.delays` has only its
    /// position.
    pub(crate) fn of_queue(self, queue: &str) -> Self {
        match self {
            Self::Invalid { key, from, problem } if !queue.is_empty() => {
                Self::Invalid { key, from, problem: format!("queue {queue:?}: {problem}") }
            }
            other => other,
        }
    }
}
