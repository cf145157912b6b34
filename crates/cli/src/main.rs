//! The `rehop` command-line tool: the command line, and what every command does at its start and
//! end.

mod config;
mod doctor;
mod exit;
mod exposed;
mod generate;
mod init;
mod input;
mod limits;
mod log_lines;
mod logging;
mod options;
mod output;
mod parked;
mod publish;
mod queues;
mod relay;
mod report;
mod signals;
mod topology;
mod ui;

use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use logging::Lifetime;
use options::{Options, Usage};

/// Retries for RabbitMQ consumers
///
/// A failed message is retried immediately, then after waits in queues of the broker, and ends up
/// either handled or parked with its history. `relay` does this for any HTTP endpoint. `parked` and
/// `ui` show parked messages and send them back; `doctor` and `topology` check and prepare the
/// broker.
#[derive(Debug, Parser)]
#[command(name = "rehop", version, after_long_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Consume a queue and POST each message to an HTTP endpoint
    Relay(relay::Args),
    /// Publish one message, and wait until the broker has confirmed it
    Publish(publish::Args),
    /// See parked messages, understand them, and send them back
    Parked(Box<parked::Args>),
    /// Check the broker for problems, and say how to fix them
    Doctor(doctor::Args),
    /// Show, declare, compare, prune or export what a service needs
    Topology(topology::Args),
    /// Serve a local web page with the queues and the parked messages
    Ui(ui::Args),
    /// Show the settings in effect, or write a file to start from
    Config(config::Args),
    /// Print a completion script for a shell
    Completions(generate::Completions),
    /// Print the manual page, or write the pages of all commands
    Man(generate::Manual),
}

/// Lines have at most 80 columns, because clap would wrap longer ones and break the layout.
const EXAMPLES: &str = "\
Examples:
  Show the settings and where each comes from:
    rehop config show

  Declare what the queue \"orders\" needs, then relay its messages to a service:
    rehop topology declare --namespace billing --queue orders
    rehop relay --namespace billing --queue orders \\
      --to http://127.0.0.1:8080/orders

  Publish a message to it:
    rehop publish --queue orders --json '{\"id\": 7}'

  See what failed, in all queues:
    rehop parked list --management http://127.0.0.1:15672

  Use another broker, and other waits between the attempts:
    export REHOP_BROKER__URL='amqp://user:password@rabbit:5672/%2f'
    export REHOP_RETRY__DELAYS='[5s, 1m, 15m]'
    rehop relay --queue orders --to http://127.0.0.1:8080/orders

Settings come in layers, and later ones win: built-in defaults, the built-in
profile, rehop.toml, config/default.toml, config/<profile>.toml, the file of
--config, variables such as REHOP_BROKER__URL (two underscores between the
levels), and --set. Of a file with a table [rehop], only this table is read.

Exit status:
  0    success
  1    an error; standard error says which
  2    a wrong command line
  3    doctor (see --fail-on), topology verify or topology plan found something;
       a signal stopped topology prune; or a command of parked stopped before
       its end, left some messages where they were, did not see all of them (a
       list of one queue and a plan then exit with 0), or sent some that parked
       again or that their handler discarded
  4    a replayed or edited message has no final fate yet
  129  SIGHUP, when the terminal closed, ended it; but the commands of the next
       line stop cleanly, however often it comes. Under nohup it is ignored
  130  SIGINT (Ctrl-C) ended it: a second one for relay, ui, parked and topology
       prune --apply, which stop cleanly at the first
  131  SIGQUIT (Ctrl-\\) ended it, likewise
  143  SIGTERM ended it, likewise";

fn main() -> ExitCode {
    let cli = Cli::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit());
    let ended = start(cli);
    logging::finish();
    match ended {
        Ok(code) => code,
        Err(error) => {
            output::error(&error);
            ExitCode::from(if error.is::<Usage>() { exit::USAGE } else { exit::ERROR })
        }
    }
}

/// The command line. The options of every command are in the help of `rehop` itself; in that of
/// each command they would hide the command's own.
fn command() -> clap::Command {
    let mut command = Cli::command();
    // Passes the options on to the commands.
    command.build();
    without_common_options(command, 0)
}

fn without_common_options(mut command: clap::Command, depth: u8) -> clap::Command {
    const NOTE: &str =
        "Also --namespace, --url, --management, --config, --set and -v: rehop --help";
    if depth > 0 {
        command = command.mut_args(|arg| if arg.is_global_set() { arg.hide(true) } else { arg });
        let long = command
            .get_after_long_help()
            .map_or(NOTE.to_owned(), |text| format!("{text}\n\n{NOTE}"));
        command = command.after_help(NOTE).after_long_help(long);
    }
    let names: Vec<_> =
        command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in names {
        command =
            command.mut_subcommand(name, |command| without_common_options(command, depth + 1));
    }
    command
}

fn start(cli: Cli) -> anyhow::Result<ExitCode> {
    choose_cryptography();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(run(cli));
    // A plain drop would wait for a DNS lookup that is still running.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Relay(args) => {
            let is_scraped = args.listen.is_some();
            let telemetry = logging::start_with_telemetry(
                &cli.options,
                Lifetime::LongRunning,
                "rehop relay",
                is_scraped,
            )?;
            let relayed = relay::run(args, &cli.options).await;
            logging::shut_down(telemetry).await;
            relayed?;
        }
        Command::Publish(args) => {
            logging::start(&cli.options, Lifetime::OneShot)?;
            publish::run(args, &cli.options).await?;
        }
        Command::Parked(args) => {
            let telemetry = logging::start_with_telemetry(
                &cli.options,
                Lifetime::OneShot,
                "rehop parked",
                false,
            )?;
            let status = parked::run(*args, &cli.options).await;
            logging::shut_down(telemetry).await;
            return status;
        }
        Command::Topology(args) => {
            logging::start(&cli.options, Lifetime::OneShot)?;
            return topology::run(args, &cli.options).await;
        }
        Command::Doctor(args) => {
            logging::start(&cli.options, Lifetime::OneShot)?;
            return doctor::run(args, &cli.options).await;
        }
        Command::Ui(args) => {
            let telemetry = logging::start_with_telemetry(
                &cli.options,
                Lifetime::LongRunning,
                "rehop ui",
                false,
            )?;
            let served = ui::run(args, &cli.options).await;
            logging::shut_down(telemetry).await;
            served?;
        }
        Command::Config(args) => config::run(args, &cli.options)?,
        Command::Completions(args) => generate::completions(&args, Cli::command())?,
        Command::Man(args) => generate::manual(&args, Cli::command())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Broker, endpoint and telemetry share one crypto provider. If several are linked, rustls refuses
/// to choose.
fn choose_cryptography() {
    #[cfg(feature = "tls-aws-lc")]
    let provider = Some(rustls::crypto::aws_lc_rs::default_provider());
    #[cfg(all(feature = "tls-ring", not(feature = "tls-aws-lc")))]
    let provider = Some(rustls::crypto::ring::default_provider());
    #[cfg(not(any(feature = "tls-ring", feature = "tls-aws-lc")))]
    let provider: Option<rustls::crypto::CryptoProvider> = None;
    if let Some(provider) = provider {
        // This fails only if a provider is already installed, which is fine.
        let _ = provider.install_default();
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn the_options_of_every_command_are_in_no_commands_own_help() {
        let mut command = super::command();
        assert!(command.render_long_help().to_string().contains("--log-format"));
        let relay = command.find_subcommand_mut("relay").unwrap();
        for help in [relay.render_help().to_string(), relay.render_long_help().to_string()] {
            assert!(!help.contains("--log-format") && help.contains("--concurrency"), "{help}");
            assert!(help.trim_end().ends_with("rehop --help"), "{help}");
        }
    }

    #[test]
    fn the_short_help_of_each_command_fits_on_one_screen() {
        fn check(command: &mut clap::Command, too_long: &mut Vec<String>) {
            // A width is not passed on to commands that are built.
            *command = command.clone().term_width(80);
            let help = command.render_help().to_string();
            let is_subcommand = command.get_name() != "rehop";
            if is_subcommand
                && (help.lines().count() > 24
                    || help
                        .lines()
                        .any(|line| line.chars().count() > 80 && !line.starts_with("Usage: ")))
            {
                too_long.push(format!(
                    "{}, {} lines:\n{help}",
                    command.get_name(),
                    help.lines().count()
                ));
            }
            let more = command.get_subcommands_mut().filter(|command| command.get_name() != "help");
            more.for_each(|command| check(command, too_long));
        }
        let (mut command, mut too_long) = (super::command(), Vec::new());
        check(&mut command, &mut too_long);
        assert!(too_long.is_empty(), "{}", too_long.join("\n"));
    }

    #[test]
    fn the_options_of_every_command_are_understood_before_and_behind_the_command() {
        for arguments in [
            ["rehop", "--set", "a=b", "config", "show"],
            ["rehop", "config", "show", "--set", "a=b"],
        ] {
            super::command().try_get_matches_from(arguments).unwrap();
        }
    }
}
