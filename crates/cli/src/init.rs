//! `rehop config init`: a settings file to start from.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rehop::settings::DOCUMENTED;

use super::output;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file. An existing one is not overwritten
    #[arg(default_value = "rehop.toml")]
    file: PathBuf,
}

const HEADER: &str = "\
# Settings of rehop. Every key is listed with its meaning, unit, bounds and default. Uncomment what you change.
# `rehop config show` prints the settings in effect and where each comes from.
#
# Durations are written \"500ms\", \"30s\", \"5m\", \"1h 30m\", \"1d\".
";

pub(super) fn run(args: &Args, namespace: Option<&str>) -> anyhow::Result<()> {
    write(&args.file, &commented(namespace))?;
    output::print(&format!("wrote {}", args.file.display()))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let file = match OpenOptions::new().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{} exists already, and was not changed; name another file", path.display())
        }
        file => file,
    };
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The documented settings, with every key commented out but the namespace, if it is known.
fn commented(namespace: Option<&str>) -> String {
    let (_, settings) = DOCUMENTED.split_once("\n\n").unwrap_or(("", DOCUMENTED));
    let lines = settings.lines().map(|line| match namespace {
        Some(namespace) if line.starts_with("# namespace = ") => {
            format!("namespace = {}", toml_string(namespace))
        }
        _ if line.is_empty() || line.starts_with(['#', '[']) => line.to_owned(),
        _ => format!("# {line}"),
    });
    format!("{HEADER}\n{}\n", lines.collect::<Vec<_>>().join("\n"))
}

/// TOML's basic strings escape like JSON's.
fn toml_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_there_and_commented_out_but_a_namespace_that_is_known() {
        let is_set = |line: &&str| !line.is_empty() && !line.starts_with(['#', '[']);
        let unknown = commented(None);
        assert_eq!(unknown.lines().filter(is_set).count(), 0, "{unknown}");
        let named = commented(Some("bil\"ling"));
        assert_eq!(
            named.lines().filter(is_set).collect::<Vec<_>>(),
            [r#"namespace = "bil\"ling""#]
        );
        for line in DOCUMENTED.lines().filter(is_set) {
            assert!(unknown.contains(&format!("\n# {line}\n")), "{line}");
        }
        assert!(
            !unknown.contains("built-in defaults; commented-out keys"),
            "the header is its own"
        );
    }
}
