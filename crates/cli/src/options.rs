//! The options of every command.

use std::path::PathBuf;

use rehop::Settings;
use rehop::settings::Loader;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of every command")]
pub(super) struct Options {
    /// Use this profile, whatever REHOP_PROFILE says: development, production, or config/<PROFILE>.toml
    #[arg(long, global = true, value_name = "PROFILE")]
    profile: Option<String>,
    /// Use this settings file, or its table [rehop], whatever REHOP_CONFIG says
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The namespace: the prefix of what rehop declares for this service, except <queue>.parked. The same as --set namespace=NAME
    ///
    /// Give each service its own, and give the tool the service's. If nothing sets it, the tool uses `rehop`.
    #[arg(long, global = true, value_name = "NAME")]
    pub(super) namespace: Option<String>,
    /// Set one key above all layers, for instance retry.immediate=3; may be repeated
    ///
    /// Values are written as in variables: numbers, strings and lists such as retry.delays=[1s,1m]. Other users of the machine
    /// can see the command line, so keep passwords in a file or a variable.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Log more: -v for what rehop does, -vv for every message
    ///
    /// RUST_LOG overrides this, for instance RUST_LOG=rehop=debug. The default of relay and ui is rehop=info. The other commands
    /// log warnings and errors, and what they do to parked messages.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
    /// The format of log lines on standard error
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(super) log_format: LogFormat,
}

/// The option of the commands that look at the broker.
#[derive(Debug, clap::Args)]
pub(super) struct Management {
    /// The broker's management API, such as http://127.0.0.1:15672. The same as --set broker.management_url=URL
    ///
    /// User and password are those of the AMQP connection unless the URL has its own. Other users of the machine can see the
    /// command line, so keep passwords in a file or a variable.
    #[arg(long = "management", id = "management", value_name = "URL")]
    url: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum LogFormat {
    /// For people; coloured on a terminal, unless NO_COLOR is set
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

impl Options {
    /// The layers of settings, with the command line on top.
    pub(super) fn loader(&self) -> anyhow::Result<Loader> {
        let mut loader = Loader::new();
        if let Some(profile) = &self.profile {
            loader = loader.profile(profile);
        }
        if let Some(file) = &self.config {
            loader = loader.file(file);
        }
        if let Some(namespace) = &self.namespace {
            loader = loader.set_text("namespace", namespace, "--namespace");
        }
        for set in &self.set {
            // The argument is not quoted, because it may be a secret.
            let Some((key, value)) = set.split_once('=').filter(|(key, _)| !key.trim().is_empty()) else {
                return Err(Usage("--set needs KEY=VALUE, for instance --set retry.immediate=3".to_owned()).into());
            };
            loader = loader.set_text(key.trim(), value, "--set");
        }
        Ok(loader)
    }

    /// The options that choose the settings, as the arguments of another command.
    pub(super) fn arguments(&self) -> impl Iterator<Item = String> {
        let config = self.config.as_ref().map(|file| file.display().to_string());
        let named =
            [("--profile", self.profile.clone()), ("--config", config), ("--namespace", self.namespace.clone())];
        let set = self.set.iter().map(|set| ("--set", Some(set.clone())));
        let given = named.into_iter().chain(set).filter_map(|(name, value)| Some([name.to_owned(), value?]));
        given.flatten()
    }

    /// The settings, for a command that declares something or moves messages. Warns if they name no namespace: the service may use another
    /// one than the default, which shows only later, in a queue that belongs to the wrong one.
    pub(super) fn settings_for_changes(&self) -> anyhow::Result<Settings> {
        Self::with_namespace(&self.loader()?)
    }

    /// The settings, for a command that looks at what a service has declared.
    pub(super) fn settings_to_look(&self, management: &Management) -> anyhow::Result<Settings> {
        let mut loader = self.loader()?;
        if let Some(url) = &management.url {
            loader = loader.set_text("broker.management_url", url, "--management");
        }
        Self::with_namespace(&loader)
    }

    fn with_namespace(loader: &Loader) -> anyhow::Result<Settings> {
        let settings = loader.load()?;
        if loader.effective()?.iter().any(|entry| entry.key == "namespace" && entry.is_default()) {
            tracing::warn!(
                "no namespace is set, so this uses {:?}; name the service's with --namespace or in rehop.toml",
                settings.namespace
            );
        }
        Ok(settings)
    }
}

/// A mistake in the command line that clap cannot see, or would quote.
#[derive(Debug, thiserror::Error)]
#[error("{0}; see --help")]
pub(super) struct Usage(pub(super) String);
