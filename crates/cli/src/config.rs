//! `rehop config`: the settings in effect.

use clap::Subcommand;

use super::options::Options;
use super::{init, output};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print every setting with its value and the layer that it came from; secrets are masked
    ///
    /// `rehop config init` writes a file that documents every key.
    Show {
        /// Print JSON: an array of objects with key, value and source
        #[arg(long)]
        json: bool,
    },
    /// Write a settings file in which every key is documented and commented out
    ///
    /// It sets only the namespace, if --namespace names one.
    Init(init::Args),
}

pub(super) fn run(args: Args, options: &Options) -> anyhow::Result<()> {
    let json = match args.command {
        Command::Init(args) => return init::run(&args, options.namespace.as_deref()),
        Command::Show { json } => json,
    };
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
