//! The options of every command.

use std::path::PathBuf;

use rehop::Settings;
use rehop::settings::Loader;

use super::exposed;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of every command")]
pub(super) struct Options {
    /// Use this profile, whatever REHOP_PROFILE says: development, production, or
    /// config/<PROFILE>.toml
    #[arg(long, hide_short_help = true, global = true, value_name = "PROFILE")]
    profile: Option<String>,
    /// Use this settings file, whatever REHOP_CONFIG says
    ///
    /// If it has a table [rehop], only that table is read.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The service's namespace
    ///
    /// The same as --set namespace=NAME. It is the prefix of what rehop declares for this service,
    /// except <queue>.parked. Give each service its own, and give the tool the service's. If
    /// nothing sets it, the tool uses `rehop`.
    #[arg(long, global = true, value_name = "NAME")]
    pub(super) namespace: Option<String>,
    /// The broker, such as amqp://user@rabbit:5672/%2f
    ///
    /// It takes the place of broker.url and broker.urls. broker.username and broker.password
    /// override those in it. Other users of the machine can see the command line, so keep passwords
    /// in a file or in REHOP_BROKER__URL.
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// The broker's management API, such as http://127.0.0.1:15672
    ///
    /// The same as --set broker.management_url=URL. It shows what AMQP cannot, such as policies and
    /// bindings. User and password are those of the AMQP connection unless the URL has its own;
    /// keep passwords off the command line here, too.
    #[arg(long, global = true, value_name = "URL")]
    management: Option<String>,
    /// Set one key above all layers; may be repeated
    ///
    /// For instance retry.immediate=3. Values are written as in variables: numbers, strings and
    /// lists such as retry.delays=[1s,1m]. Other users of the machine can see the command line, so
    /// keep passwords in a file or a variable.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Log more; -vv logs every message
    ///
    /// RUST_LOG overrides this, for instance RUST_LOG=rehop=debug. The default of relay and ui is
    /// rehop=info. The other commands log warnings and errors, and what they do to parked messages.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
    /// The format of log lines on standard error
    #[arg(
        long,
        hide_short_help = true,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub(super) log_format: LogFormat,
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
        for (key, option, value) in [
            ("namespace", "--namespace", &self.namespace),
            ("broker.url", "--url", &self.url),
            ("broker.management_url", "--management", &self.management),
        ] {
            if let Some(value) = value {
                loader = loader.set_text(key, value, option);
            }
        }
        if self.url.is_some() {
            loader = loader.set_text("broker.urls", "[]", "--url");
        }
        for set in &self.set {
            // The argument is not quoted, because it may be a secret.
            let Some((key, value)) = set.split_once('=').filter(|(key, _)| !key.trim().is_empty())
            else {
                return Err(Usage(
                    "--set needs KEY=VALUE, for instance --set retry.immediate=3".to_owned(),
                )
                .into());
            };
            loader = loader.set_text(key.trim(), value, "--set");
        }
        Ok(loader)
    }

    /// The options that choose the settings, as the arguments of another command.
    pub(super) fn arguments(&self) -> impl Iterator<Item = String> {
        let config = self.config.as_ref().map(|file| file.display().to_string());
        let named = [
            ("--profile", self.profile.clone()),
            ("--config", config),
            ("--namespace", self.namespace.clone()),
            ("--url", self.url.clone()),
            ("--management", self.management.clone()),
        ];
        let set = self.set.iter().map(|set| ("--set", Some(set.clone())));
        let given = named
            .into_iter()
            .chain(set)
            .filter_map(|(name, value)| Some([name.to_owned(), value?]));
        given.flatten()
    }

    /// The settings, for a command that concerns a service. Warns of secrets that everybody can
    /// read, and if they name no namespace: the service may use another one than the default, which
    /// shows only later, in a queue that belongs to the wrong one.
    pub(super) fn settings(&self) -> anyhow::Result<Settings> {
        let loader = self.loader()?;
        let settings = loader.load()?;
        let entries = loader.effective()?;
        exposed::warn(&entries);
        if entries.iter().any(|entry| entry.key == "namespace" && entry.is_default()) {
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
