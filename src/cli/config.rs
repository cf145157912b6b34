//! `rehop config`: the settings in effect.

use clap::Subcommand;

use super::options::Options;
use super::output;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print every setting with its value and the layer that it came from; secrets are masked
    ///
    /// What is not listed has its default: config/default.toml documents every key.
    Show {
        /// Print JSON: a list of objects with key, value and source
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(args: Args, options: &Options) -> anyhow::Result<()> {
    let Command::Show { json } = args.command;
    let entries = options.loader()?.effective()?;
    if json {
        return output::print_json(&entries);
    }
    let mut table = output::table(["KEY", "VALUE", "FROM"]);
    for entry in entries {
        table.add_row([entry.key, entry.value, entry.source]);
    }
    output::print(&table.trim_fmt())
}
