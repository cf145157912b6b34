//! Loads the layers of settings, with figment.

use std::path::{Path, PathBuf};

use figment::providers::{Env, Serialized};
use figment::value::Value;
use figment::{Figment, Metadata};

use super::explain::{PREFIX, VARIABLE, explain, explain_in, located, source_of};
use super::file::{self, Owner};
use super::service_links::is_service_link;
use super::values::{MASK, mask_url};
use super::{DEFAULT_URL, Settings, SettingsError};

const BUILT_IN: &str = "built-in default";
/// These variables choose the layers and are not settings.
const CONTROL: [&str; 2] = ["profile", "config"];
/// Read from their variables literally. figment parses variables as values, so the password 0123
/// would lose its zero.
const LITERAL: [&str; 10] = [
    "namespace",
    "expiry_header",
    "broker.url",
    "broker.username",
    "broker.password",
    "broker.password_file",
    "broker.management_url",
    "broker.tls.ca_file",
    "broker.tls.cert_file",
    "broker.tls.key_file",
];

/// One effective setting.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Entry {
    /// The key, with dots between its levels.
    pub key: String,
    /// The value, as in JSON, but without quotes around addresses and secrets; secrets are masked.
    /// Serialized, it is the value itself and not its text.
    #[serde(serialize_with = "super::values::json_text")]
    pub value: String,
    /// The layer that it came from.
    pub source: String,
}

impl Entry {
    /// Whether no layer sets it, so that it has its built-in default.
    pub fn is_default(&self) -> bool {
        self.source == BUILT_IN
    }
}

/// Loads settings from their layers.
///
/// ```
/// # fn main() -> Result<(), rehop::SettingsError> {
/// let settings = rehop::settings::Loader::new()
///     .without_files()
///     .set("namespace", "billing")
///     .load()?;
/// assert_eq!(settings.namespace, "billing");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a loader does nothing until load"]
pub struct Loader {
    /// `None`: no files are looked for.
    folders: Option<Folders>,
    profile: Option<String>,
    file: Option<PathBuf>,
    overrides: Figment,
}

/// Where files are looked for.
#[derive(Debug, Clone)]
struct Folders {
    /// The directory of `rehop.toml`.
    own: PathBuf,
    /// The directory of the service's settings: `default.toml` and a file for each profile.
    service: PathBuf,
    /// Whether the program named it, so that it has to have one of them.
    is_named: bool,
}

impl Default for Loader {
    fn default() -> Self {
        Self::new()
    }
}

impl Loader {
    /// A loader that reads `rehop.toml` and `config/` in the working directory, `REHOP_PROFILE` and
    /// `REHOP_CONFIG`.
    pub fn new() -> Self {
        let (own, service) = (PathBuf::new(), PathBuf::from("config"));
        let folders = Some(Folders { own, service, is_named: false });
        Self { folders, profile: None, file: None, overrides: Figment::new() }
    }

    /// Reads `rehop.toml`, `default.toml` and the profiles from this directory, and from no other.
    /// It has to exist, and need not have any of them. A directory in which only `config/` has a
    /// `default.toml` is an error, because that was probably meant.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        let service = directory.into();
        self.folders = Some(Folders { own: service.clone(), service, is_named: true });
        self
    }

    /// Reads no files, apart from one that [`file`](Self::file) or `REHOP_CONFIG` names. Only the
    /// built-in profiles can be used.
    pub fn without_files(mut self) -> Self {
        self.folders = None;
        self
    }

    /// Uses this profile, whatever `REHOP_PROFILE` says.
    pub fn profile(mut self, profile: impl Into<String>) -> Self {
        self.profile = Some(profile.into());
        self
    }

    /// Uses this file, whatever `REHOP_CONFIG` says.
    pub fn file(mut self, file: impl Into<PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// Sets one key, with dots between its levels, above all layers.
    pub fn set(mut self, key: &str, value: impl serde::Serialize) -> Self {
        let layer = Serialized::default(key, value);
        self.overrides =
            self.overrides.merge(Named { provider: layer, name: "the program".to_owned() });
        self
    }

    /// Sets one key, with dots between its levels, above all layers. The text is parsed like the
    /// value of a variable: numbers and `[lists, of, values]` are understood. Use it for
    /// command-line flags; `source` names the flag in errors and in [`effective`](Self::effective).
    pub fn set_text(mut self, key: &str, text: &str, source: impl Into<String>) -> Self {
        let value = match text.parse() {
            _ if LITERAL.contains(&key) => Value::from(text),
            Ok(value) => value,
            Err(never) => match never {},
        };
        self.overrides = self
            .overrides
            .merge(Named { provider: Serialized::default(key, value), name: source.into() });
        self
    }

    /// Loads and validates.
    ///
    /// # Errors
    ///
    /// As [`Settings::load`].
    pub fn load(&self) -> Result<Settings, SettingsError> {
        let settings = checked(&self.figment()?)?;
        warn_of_service_links();
        Ok(settings)
    }

    /// Every effective setting with the layer that it came from.
    ///
    /// # Errors
    ///
    /// As [`Settings::load`].
    pub fn effective(&self) -> Result<Vec<Entry>, SettingsError> {
        let (retry, consume) = self.load()?.resolved()?;
        // Keys that no layer sets have a default too.
        let resolved = Serialized::default("retry", retry);
        let figment = self
            .figment()?
            .join(Named { provider: resolved, name: BUILT_IN.to_owned() })
            .join(Named {
                provider: Serialized::default("consume", consume),
                name: BUILT_IN.to_owned(),
            });
        let mut entries = Vec::new();
        let dict = figment.extract::<figment::value::Dict>().map_err(explain)?;
        for (key, _) in dict {
            let value = figment.find_value(&key).map_err(explain)?;
            collect(&figment, &key, &value, &mut entries);
        }
        Ok(entries)
    }

    /// Adds the files that are there, or have to be.
    fn merge_files(
        &self,
        mut figment: Figment,
        profile: Option<&str>,
        is_built_in: bool,
    ) -> Result<Figment, SettingsError> {
        if let Some(folders) = &self.folders {
            folders.check()?;
            for (path, owner) in [
                (folders.own.join("rehop.toml"), Owner::Rehop),
                (folders.service.join("default.toml"), Owner::Service),
            ] {
                if path.exists() {
                    figment = figment.merge(file::read(&path, owner)?);
                }
            }
        }
        let Some(profile) = profile else { return Ok(figment) };
        let known: Vec<_> = PROFILES.iter().map(|(name, _)| *name).collect();
        let hint = format!(
            "profile {profile:?} needs it: create the file, or set REHOP_PROFILE to another profile; {} are built in",
            known.join(" and ")
        );
        let name = PathBuf::from(format!("{profile}.toml"));
        match &self.folders {
            None if is_built_in => Ok(figment),
            None => Err(SettingsError::MissingFile {
                path: name,
                hint: format!(
                    "profile {profile:?} is not built in, and the program reads no files"
                ),
            }),
            Some(folders) => {
                let path = folders.service.join(name);
                if is_built_in && !path.exists() {
                    return Ok(figment);
                }
                Ok(figment.merge(file::read(&existing(path, hint)?, Owner::Service)?))
            }
        }
    }

    fn figment(&self) -> Result<Figment, SettingsError> {
        let mut figment = above_defaults(Figment::new());
        let profile = self.profile.clone().or_else(|| control("REHOP_PROFILE"));
        let built_in = profile.as_deref().and_then(built_in_profile);
        if let Some((name, text)) = built_in {
            let provider = file::built_in(text);
            figment = figment.merge(Named { provider, name: format!("built-in profile {name}") });
        }
        figment = self.merge_files(figment, profile.as_deref(), built_in.is_some())?;
        if let Some(file) = self.file.clone().or_else(|| control("REHOP_CONFIG").map(PathBuf::from))
        {
            let hint = "it was named by REHOP_CONFIG or --config".to_owned();
            figment = figment.merge(file::read(&existing(file, hint)?, Owner::Rehop)?);
        }
        let environment = Env::prefixed(PREFIX)
            .ignore(&CONTROL)
            .filter(|key| !key.starts_with("test_") && !is_service_link(key.as_str()))
            .split("__");
        refuse_classes_that_lose_their_case(&environment)?;
        let literal: Vec<_> =
            environment.iter().filter(|(key, _)| LITERAL.contains(&key.as_str())).collect();
        figment = figment.merge(environment);
        for (key, text) in literal {
            let layer = Serialized::default(key.as_str(), text);
            figment = figment.merge(Named { provider: layer, name: VARIABLE.to_owned() });
        }
        Ok(figment.merge(self.overrides.clone()))
    }
}

impl Folders {
    /// Checks that a directory that the program named is not obviously another than was meant.
    /// Otherwise all settings would silently have their defaults.
    fn check(&self) -> Result<(), SettingsError> {
        let below = self.service.join("config");
        let instead = if !self.is_named {
            return Ok(());
        } else if !self.service.is_dir() {
            "nor does the directory, which Loader::directory names; if there are to be no files, call \
             Loader::without_files"
                .to_owned()
        } else if below.join("default.toml").exists() && !self.service.join("default.toml").exists()
        {
            format!("Loader::directory names this directory; name {} instead", below.display())
        } else {
            return Ok(());
        };
        Err(SettingsError::MissingFile { path: self.service.join("default.toml"), hint: instead })
    }
}

/// As [`Settings::from_figment`] says.
pub(super) fn settings_in(figment: &Figment) -> Result<Settings, SettingsError> {
    let figment = above_defaults(figment.clone());
    for key in LITERAL {
        let value = figment.find_value(key).ok();
        if value.is_some_and(|value| matches!(value, Value::Num(..))) {
            let problem =
                "expected a text, found a number; a variable needs double quotes around it"
                    .to_owned();
            return Err(located(SettingsError::invalid(key.to_owned(), problem), &figment));
        }
    }
    checked(&figment)
}

/// What a figment says, and the built-in defaults of all else. Joined, they leave what each value
/// in it came from as it is.
fn above_defaults(figment: Figment) -> Figment {
    let name = || BUILT_IN.to_owned();
    // Serialized settings mask their secrets, so the URL needs a layer of its own.
    figment
        .join(Named { provider: Serialized::default("broker.url", DEFAULT_URL), name: name() })
        .join(Named { provider: Serialized::defaults(defaults()), name: name() })
}

fn checked(figment: &Figment) -> Result<Settings, SettingsError> {
    let settings: Settings = figment.extract().map_err(|error| explain_in(error, figment))?;
    settings.resolve().map_err(|error| located(error, figment))?;
    Ok(settings)
}

/// figment turns the names of variables into lower case. A class such as `ParseIntError` in one
/// would set the class `parseinterror`, which no failure has.
fn refuse_classes_that_lose_their_case(environment: &Env) -> Result<(), SettingsError> {
    const TABLE: &str = "retry.errors.";
    // The error names the variable as it is written.
    for (name, _) in environment.clone().lowercase(false).iter() {
        let Some(class) = name.starts_with(TABLE).then(|| &name.as_str()[TABLE.len()..]) else {
            continue;
        };
        // In capitals alone, as variables usually are, it is taken for a class without any.
        if class.contains(char::is_uppercase) && class.contains(char::is_lowercase) {
            let problem = "the name of a variable loses its case, so it cannot hold this class; set all classes in one variable, such as \
                           REHOP_RETRY__ERRORS='{ParseIntError=\"permanent\"}'";
            return Err(SettingsError::Invalid {
                key: format!("{TABLE}{class}"),
                from: Some(format!("{PREFIX}{}", name.as_str().replace('.', "__"))),
                problem: problem.to_owned(),
            });
        }
    }
    Ok(())
}

/// A variable that chooses a layer; an empty one counts as unset.
fn control(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn existing(path: PathBuf, hint: String) -> Result<PathBuf, SettingsError> {
    if path.is_file() { Ok(path) } else { Err(SettingsError::MissingFile { path, hint }) }
}

/// The profiles that need no file.
const PROFILES: [(&str, &str); 2] = [
    ("development", include_str!("../../config/development.toml")),
    ("production", include_str!("../../config/production.toml")),
];

fn built_in_profile(name: &str) -> Option<(&'static str, &'static str)> {
    PROFILES.into_iter().find(|(known, _)| *known == name)
}

/// Says which variables are passed over, because one of them may have been meant as a setting.
fn warn_of_service_links() {
    let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let passed_over: Vec<_> =
        variables.filter(|name| name.strip_prefix(PREFIX).is_some_and(is_service_link)).collect();
    if let Some(first) = passed_over.first() {
        tracing::warn!(
            "ignoring {} variables such as {first}: Kubernetes sets them for a Service whose name begins with \"rehop\"; \
             enableServiceLinks: false in the pod's spec avoids them",
            passed_over.len()
        );
    }
}

/// The default namespace is the program's name.
fn defaults() -> Settings {
    let mut settings = Settings::default();
    let program = std::env::current_exe().ok();
    if let Some(name) = program.as_deref().and_then(Path::file_stem).and_then(|name| name.to_str())
    {
        settings.namespace = name.to_owned();
    }
    settings
}

/// A provider with the name that `config show` prints for it.
struct Named<P> {
    provider: P,
    name: String,
}

impl<P: figment::Provider> figment::Provider for Named<P> {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(
        &self,
    ) -> Result<figment::value::Map<figment::Profile, figment::value::Dict>, figment::Error> {
        self.provider.data()
    }
}

/// Flattens tables. A list is one entry, because layers replace it as a whole.
fn collect(figment: &Figment, key: &str, value: &Value, entries: &mut Vec<Entry>) {
    if let Value::Dict(_, dict) = value {
        for (name, value) in dict {
            collect(figment, &format!("{key}.{name}"), value, entries);
        }
        return;
    }
    let source = figment
        .get_metadata(value.tag())
        .map_or_else(|| "unknown".to_owned(), |metadata| source_of(metadata, key));
    let text = match key {
        "broker.url" | "broker.management_url" => {
            value.as_str().map_or_else(|| MASK.to_owned(), mask_url)
        }
        "broker.urls" => {
            let urls = value.as_array().unwrap_or_default();
            let masked: Vec<_> = urls
                .iter()
                .map(|url| url.as_str().map_or_else(|| MASK.to_owned(), mask_url))
                .collect();
            serde_json::to_string(&masked).unwrap_or_default()
        }
        "broker.password" => MASK.to_owned(),
        _ => serde_json::to_string(value).unwrap_or_default(),
    };
    entries.push(Entry { key: key.to_owned(), value: text, source });
}

#[cfg(test)]
mod tests;
