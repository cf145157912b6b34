//! The layers. figment stays in this file.

use std::path::{Path, PathBuf};

use figment::error::{Actual, Kind};
use figment::providers::{Env, Format, Serialized, Toml};
use figment::value::Value;
use figment::{Figment, Metadata, Source};

use super::{DEFAULT_URL, MASK, Settings, mask_url};

const PREFIX: &str = "REHOP_";
const BUILT_IN: &str = "built-in default";
/// Steers the layers themselves. The rest steer tests and tools, and are no settings either.
const CONTROL: [&str; 2] = ["profile", "config"];
/// Taken from their variables letter by letter. figment reads variables as values: a password 0123 would lose its zero.
const LITERAL: [&str; 8] = [
    "namespace",
    "expiry_header",
    "broker.url",
    "broker.username",
    "broker.password",
    "broker.tls.ca_file",
    "broker.tls.cert_file",
    "broker.tls.key_file",
];

/// What is wrong with the settings, and where it was said.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A value is wrong, missing or unknown.
    #[error("{key}{}: {problem}", from.as_ref().map(|from| format!(" (from {from})")).unwrap_or_default())]
    Invalid {
        /// The key, with dots between its levels.
        key: String,
        /// The file or the variable that it was read from, if it is known.
        from: Option<String>,
        /// What is wrong. Never the value itself.
        problem: String,
    },
    /// A file that was named is not there.
    #[error("the settings file {} does not exist; {hint}", path.display())]
    MissingFile {
        /// The file.
        path: PathBuf,
        /// Who named it.
        hint: String,
    },
    /// A file is no TOML.
    #[error("the settings file {} is no valid TOML: {problem}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Where it is wrong.
        problem: String,
    },
}

crate::error::debug_is_display!(SettingsError);

impl SettingsError {
    pub(super) fn invalid(key: String, problem: String) -> Self {
        Self::Invalid { key, from: None, problem }
    }
}

/// One effective setting.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Entry {
    /// The key, with dots between its levels.
    pub key: String,
    /// The value; secrets are masked.
    pub value: String,
    /// The layer that it came from.
    pub source: String,
}

/// Loads settings from their layers.
///
/// ```
/// # fn main() -> Result<(), rehop::SettingsError> {
/// let settings = rehop::Loader::new()
///     .directory("/nonexistent") // no files
///     .set("namespace", "billing")
///     .load()?;
/// assert_eq!(settings.namespace, "billing");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a loader does nothing until load"]
pub struct Loader {
    directory: PathBuf,
    profile: Option<String>,
    file: Option<PathBuf>,
    overrides: Figment,
}

impl Default for Loader {
    fn default() -> Self {
        Self::new()
    }
}

impl Loader {
    /// A loader that looks into `config/` of the working directory, and at `REHOP_PROFILE` and `REHOP_CONFIG`.
    pub fn new() -> Self {
        Self { directory: PathBuf::from("config"), profile: None, file: None, overrides: Figment::new() }
    }

    /// Looks for `default.toml` and the profiles in another directory.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = directory.into();
        self
    }

    /// Takes this profile, whatever `REHOP_PROFILE` says.
    pub fn profile(mut self, profile: impl Into<String>) -> Self {
        self.profile = Some(profile.into());
        self
    }

    /// Takes this file, whatever `REHOP_CONFIG` says.
    pub fn file(mut self, file: impl Into<PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// Sets one key, with dots between its levels, above all layers.
    pub fn set(mut self, key: &str, value: impl serde::Serialize) -> Self {
        let layer = Serialized::default(key, value);
        self.overrides = self.overrides.merge(Named { provider: layer, name: "the program".to_owned() });
        self
    }

    /// Sets one key, with dots between its levels, above all layers, from text that is read as a variable's value is: numbers
    /// and `[lists, of, values]` are understood. For flags of a command line, which `source` names in errors and in
    /// [`effective`](Self::effective).
    pub fn set_text(mut self, key: &str, text: &str, source: impl Into<String>) -> Self {
        let value = match text.parse() {
            _ if LITERAL.contains(&key) => Value::from(text),
            Ok(value) => value,
            Err(never) => match never {},
        };
        self.overrides = self.overrides.merge(Named { provider: Serialized::default(key, value), name: source.into() });
        self
    }

    /// Loads and validates.
    ///
    /// # Errors
    ///
    /// As [`Settings::load`].
    pub fn load(&self) -> Result<Settings, SettingsError> {
        let figment = self.figment()?;
        let settings: Settings = figment.extract().map_err(explain)?;
        settings.plan().map_err(|error| located(error, &figment))?;
        Ok(settings)
    }

    /// Every effective setting with the layer that it came from.
    ///
    /// # Errors
    ///
    /// As [`Settings::load`].
    pub fn effective(&self) -> Result<Vec<Entry>, SettingsError> {
        let (retry, consume) = self.load()?.resolved()?;
        // What no layer sets has a default all the same.
        let resolved = Serialized::default("retry", retry);
        let figment = self
            .figment()?
            .join(Named { provider: resolved, name: BUILT_IN.to_owned() })
            .join(Named { provider: Serialized::default("consume", consume), name: BUILT_IN.to_owned() });
        let mut entries = Vec::new();
        let dict = figment.extract::<figment::value::Dict>().map_err(explain)?;
        for (key, _) in dict {
            let value = figment.find_value(&key).map_err(explain)?;
            collect(&figment, &key, &value, &mut entries);
        }
        Ok(entries)
    }

    fn figment(&self) -> Result<Figment, SettingsError> {
        // Settings mask their secrets when they are serialized, so the URL comes by itself.
        let mut figment =
            Figment::from(Named { provider: Serialized::defaults(built_in()), name: BUILT_IN.to_owned() })
                .merge(Named { provider: Serialized::default("broker.url", DEFAULT_URL), name: BUILT_IN.to_owned() });
        let default = self.directory.join("default.toml");
        if default.exists() {
            figment = figment.merge(toml(&default)?);
        }
        if let Some(profile) = self.profile.clone().or_else(|| control("REHOP_PROFILE")) {
            let path = self.directory.join(format!("{profile}.toml"));
            let hint = format!("profile {profile:?} needs it: create it, or set REHOP_PROFILE to one that exists");
            figment = figment.merge(toml(&existing(path, hint)?)?);
        }
        if let Some(file) = self.file.clone().or_else(|| control("REHOP_CONFIG").map(PathBuf::from)) {
            let hint = "it was named by REHOP_CONFIG or --config".to_owned();
            figment = figment.merge(toml(&existing(file, hint)?)?);
        }
        let environment = Env::prefixed(PREFIX).ignore(&CONTROL).filter(|key| !key.starts_with("test_")).split("__");
        let literal: Vec<_> = environment.iter().filter(|(key, _)| LITERAL.contains(&key.as_str())).collect();
        figment = figment.merge(environment);
        for (key, text) in literal {
            let layer = Serialized::default(key.as_str(), text);
            figment = figment.merge(Named { provider: layer, name: "environment variable".to_owned() });
        }
        Ok(figment.merge(self.overrides.clone()))
    }
}

/// A variable that steers the layers; an empty one counts as unset.
fn control(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn existing(path: PathBuf, hint: String) -> Result<PathBuf, SettingsError> {
    if path.is_file() { Ok(path) } else { Err(SettingsError::MissingFile { path, hint }) }
}

/// The exact file: figment would look for a relative one in the parent directories as well. Only the first line of a syntax
/// error is kept, because the rest quotes the file.
fn toml(path: &Path) -> Result<figment::providers::Data<Toml>, SettingsError> {
    let unreadable = |problem: String| SettingsError::Unreadable { path: path.to_owned(), problem };
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    if let Err(error) = Toml::from_str::<figment::value::Dict>(&text) {
        let lines: Vec<_> = error.to_string().lines().map(str::to_owned).collect();
        let (first, last) = (lines.first().cloned().unwrap_or_default(), lines.last().cloned().unwrap_or_default());
        return Err(unreadable(if first == last { first } else { format!("{first}: {last}") }));
    }
    Ok(Toml::file_exact(path))
}

/// A service's namespace is its program's name unless it says otherwise.
fn built_in() -> Settings {
    let mut settings = Settings::default();
    let program = std::env::current_exe().ok();
    if let Some(name) = program.as_deref().and_then(Path::file_stem).and_then(|name| name.to_str()) {
        settings.namespace = name.to_owned();
    }
    settings
}

/// A provider under a name that means something to the reader of `config show`.
struct Named<P> {
    provider: P,
    name: String,
}

impl<P: figment::Provider> figment::Provider for Named<P> {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<figment::value::Map<figment::Profile, figment::value::Dict>, figment::Error> {
        self.provider.data()
    }
}

/// Names the source of what validation found, which knows only keys.
fn located(error: SettingsError, figment: &Figment) -> SettingsError {
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

fn source_of(metadata: &Metadata, path: &str) -> String {
    match &metadata.source {
        Some(Source::File(file)) => file.display().to_string(),
        _ if metadata.name.contains("environment variable") => variable(path),
        _ => metadata.name.to_string(),
    }
}

/// A variable may hold a whole list or table, of which the path names a part.
fn variable(path: &str) -> String {
    let name = |path: &str| format!("{PREFIX}{}", path.replace('.', "__").to_uppercase());
    let mut paths = std::iter::successors(Some(path), |path| path.rsplit_once('.').map(|(parent, _)| parent));
    paths.find(|path| std::env::var_os(name(path)).is_some()).map_or_else(|| name(path), name)
}

/// figment's errors quote the value and do not name the variable; this does the opposite.
fn explain(error: figment::Error) -> SettingsError {
    let mut key = error.path.join(".");
    let problem = match &error.kind {
        Kind::InvalidType(actual, expected) => format!("expected {expected}, found {}", type_of(actual)),
        Kind::InvalidValue(_, expected) => format!("expected {expected}"),
        Kind::InvalidLength(length, expected) => format!("expected {expected}, found {length} values"),
        Kind::UnknownVariant(_, expected) => format!("expected one of {}", expected.join(", ")),
        Kind::UnknownField(field, expected) => {
            // figment's path ends with the field in some layers and before it in others.
            if error.path.last() != Some(field) {
                key = if key.is_empty() { field.clone() } else { format!("{key}.{field}") };
            }
            format!("there is no such key; possible are {}", expected.join(", "))
        }
        Kind::MissingField(field) => format!("the key `{field}` is missing"),
        Kind::DuplicateField(field) => format!("the key `{field}` is there twice"),
        Kind::ISizeOutOfRange(_) | Kind::USizeOutOfRange(_) => "the number is out of range".to_owned(),
        Kind::Message(message) => message.clone(),
        Kind::Unsupported(actual) => format!("{} is not possible here", type_of(actual)),
        Kind::UnsupportedKey(_, expected) => format!("expected {expected} as key"),
    };
    let from = error.metadata.as_ref().map(|metadata| source_of(metadata, &key));
    SettingsError::Invalid { key, from, problem }
}

fn type_of(actual: &Actual) -> &'static str {
    match actual {
        Actual::Bool(_) => "true or false",
        Actual::Unsigned(_) | Actual::Signed(_) => "a number",
        Actual::Float(_) => "a fraction",
        Actual::Char(_) | Actual::Str(_) => "a text",
        Actual::Bytes(_) => "bytes",
        Actual::Unit | Actual::Option => "nothing",
        Actual::Seq => "a list",
        Actual::Map => "a table",
        _ => "something else",
    }
}

/// Flattens tables; a list stays one entry, because layers replace it as a whole.
fn collect(figment: &Figment, key: &str, value: &Value, entries: &mut Vec<Entry>) {
    if let Value::Dict(_, dict) = value {
        for (name, value) in dict {
            collect(figment, &format!("{key}.{name}"), value, entries);
        }
        return;
    }
    let source =
        figment.get_metadata(value.tag()).map_or_else(|| "unknown".to_owned(), |metadata| source_of(metadata, key));
    let text = match key {
        "broker.url" => value.as_str().map_or_else(|| MASK.to_owned(), mask_url),
        "broker.password" => MASK.to_owned(),
        _ => serde_json::to_string(value).unwrap_or_default(),
    };
    entries.push(Entry { key: key.to_owned(), value: text, source });
}

#[cfg(test)]
mod tests;
