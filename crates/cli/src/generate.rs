//! `rehop completions` and `rehop man`: what is generated from the command line's own description.

use std::path::PathBuf;

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use super::output;

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  rehop completions bash > /etc/bash_completion.d/rehop
  rehop completions zsh > \"${fpath[1]}/_rehop\"
  rehop completions fish > ~/.config/fish/completions/rehop.fish")]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  rehop man | man -l -
  rehop man --directory /usr/local/share/man/man1")]
pub(super) struct Manual {
    /// Write a page for each command into this directory, instead of printing rehop(1)
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

pub(super) fn completions(args: &Completions, mut command: Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "rehop", &mut script);
    output::print(String::from_utf8(script)?.trim_end())
}

pub(super) fn manual(args: &Manual, command: Command) -> anyhow::Result<()> {
    let Some(directory) = &args.directory else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        return output::print(String::from_utf8(page)?.trim_end());
    };
    clap_mangen::generate_to(command, directory)
        .with_context(|| format!("cannot write the pages into {}", directory.display()))
}
