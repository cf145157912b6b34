//! `rehop topology`: what a configuration needs in the broker.

mod declare;
mod export;
mod plan;
mod prune;
mod show;

use std::process::ExitCode;

use clap::Subcommand;
use rehop_operator::doctor::{self, Severity};

use super::options::Options;
use super::output;
use super::queues::Queues;
use super::report::{print, status};
use show::Needs;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the exchanges, queues and bindings, without contacting the broker
    ///
    /// For each queue it also prints the most attempts that a message can get if it keeps failing,
    /// how long these and the waits between them take at most, and the most deliveries if it also
    /// crashes its consumer; for an ordered queue also how many messages its consumer holds at
    /// most.
    #[command(after_long_help = "\
Examples:
  rehop topology show --queue orders
  rehop topology show --dot | dot -Tsvg > topology.svg
  rehop topology show --json | jq '.queues[].name'")]
    Show {
        #[command(flatten)]
        queues: Queues,
        /// Print JSON
        #[arg(long, conflicts_with = "dot")]
        json: bool,
        /// Print a graph in the DOT language
        #[arg(long)]
        dot: bool,
    },
    /// Declare the exchanges, queues and bindings
    ///
    /// Services then need no configure permission: run them with topology = "check". Existing
    /// objects are not changed; if one has different arguments, the error names the difference. For
    /// queues with declare = "existing", the command only checks that they exist.
    #[command(after_long_help = "\
Examples:
  rehop topology declare --namespace billing --queue orders
  rehop relay --namespace billing --set topology=check --queue orders \\
    --to http://127.0.0.1:8080/orders")]
    Declare {
        #[command(flatten)]
        queues: Queues,
    },
    /// Compare the broker with the settings; exit with 3 if it differs
    ///
    /// It changes nothing. By AMQP it compares exchanges, queues and their arguments; through the
    /// management API also bindings and the policies in effect. `rehop doctor` checks more.
    #[command(after_long_help = "\
Examples:
  rehop topology verify --queue orders
  rehop topology verify --queue orders --management http://127.0.0.1:15672")]
    Verify {
        #[command(flatten)]
        queues: Queues,
        /// Print JSON: an object with findings and unseen
        #[arg(long)]
        json: bool,
    },
    /// Print what declare would do, and the steps for what it cannot do; exit with 3 if anything
    /// would change
    ///
    /// It changes nothing. The arguments of a queue that exists cannot be changed, so for each that
    /// differs it prints how to get there without losing a message.
    Plan {
        #[command(flatten)]
        queues: Queues,
        /// Print JSON: an object with parts and unseen
        #[arg(long)]
        json: bool,
    },
    /// Delete wait queues and exchanges that nothing uses and that are empty; without --apply, list
    /// them
    Prune(prune::Args),
    /// Print the topology for another tool to declare
    Export(export::Args),
}

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Show { queues, json, dot } => {
            let needs = Needs::of(&queues.select(options.loader()?.load()?)?)?;
            match (json, dot) {
                (true, _) => output::print_json(&needs)?,
                (_, true) => output::print(needs.topology.to_dot().trim_end())?,
                _ => output::print(&needs.to_text())?,
            }
        }
        Command::Declare { queues } => {
            declare::declare(queues.select(options.settings()?)?).await?
        }
        Command::Verify { queues, json } => {
            let report = doctor::verify(&queues.select(options.settings()?)?).await?;
            print(&report, json, "the broker is as the settings ask for")?;
            return Ok(status(&report, Severity::Notice));
        }
        Command::Plan { queues, json } => {
            return plan::run(&queues.select(options.settings()?)?, json).await;
        }
        Command::Prune(args) => return prune::run(args, options).await,
        Command::Export(args) => export::run(&args, options).await?,
    }
    Ok(ExitCode::SUCCESS)
}
