//! Options of every command.

use std::path::PathBuf;

use rehop::Loader;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of every command")]
pub(super) struct Options {
    /// Take config/<PROFILE>.toml, whatever REHOP_PROFILE says
    #[arg(long, global = true, value_name = "PROFILE")]
    profile: Option<String>,
    /// Take this settings file, whatever REHOP_CONFIG says
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one key above all layers, for instance retry.immediate=3; may be repeated
    ///
    /// Values read as in variables: numbers, texts and lists such as retry.delays=[1s,1m]. Other users of the machine can see a
    /// command line: passwords belong into a file or a variable.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Log more: -v for what rehop does, -vv for every message
    ///
    /// RUST_LOG overrides it, for instance RUST_LOG=rehop=debug. The default is rehop=info.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
    /// How log lines on standard error look
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(super) log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum LogFormat {
    /// For people; in colours on a terminal, unless NO_COLOR is set
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

impl Options {
    /// The layers of settings, with those of the command line on top.
    pub(super) fn loader(&self) -> anyhow::Result<Loader> {
        let mut loader = Loader::new();
        if let Some(profile) = &self.profile {
            loader = loader.profile(profile);
        }
        if let Some(file) = &self.config {
            loader = loader.file(file);
        }
        for set in &self.set {
            // What was given is not quoted: it may be a secret.
            let Some((key, value)) = set.split_once('=').filter(|(key, _)| !key.trim().is_empty()) else {
                return Err(Usage("--set needs KEY=VALUE, for instance --set retry.immediate=3".to_owned()).into());
            };
            loader = loader.set_text(key.trim(), value, "--set");
        }
        Ok(loader)
    }
}

/// A mistake in the command line that clap cannot see, or would quote.
#[derive(Debug, thiserror::Error)]
#[error("{0}; see --help")]
pub(super) struct Usage(pub(super) String);
