//! What the command line looks like, and how every command starts and ends.

mod config;
mod demo;
mod logging;
mod options;
mod output;
mod relay;
mod signals;
mod topology;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use options::{Options, Usage};

/// RabbitMQ consumers that survive failing messages
///
/// A message that fails is tried again at once, then after waits in queues of the broker, and ends either handled or parked
/// with its history. `relay` does that for any HTTP endpoint; the other commands show and prepare what a service needs.
#[derive(Debug, Parser)]
#[command(version, after_long_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
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
    /// Show or declare the exchanges, queues and bindings that a configuration needs
    Topology(topology::Args),
    /// Show the settings in effect
    Config(config::Args),
    /// See the main job on a throwaway broker, in under a minute
    Demo(demo::Args),
    /// The demo's consumer process
    #[command(hide = true)]
    DemoService(demo::service::Args),
}

/// Lines of at most 80 columns: clap would wrap longer ones out of shape.
const EXAMPLES: &str = "\
Examples:
  See what rehop does, on a broker that is thrown away afterwards:
    rehop demo

  See what the settings are and where each comes from:
    rehop config show

  Declare what queue \"orders\" needs, then hand its messages to a service:
    rehop topology declare --queue orders
    rehop relay --queue orders --to http://127.0.0.1:8080/orders

  Point it at a broker, with other waits between the attempts:
    export REHOP_BROKER__URL='amqp://user:password@rabbit:5672/%2f'
    export REHOP_RETRY__DELAYS='[5s, 1m, 15m]'
    rehop relay --queue orders --to http://127.0.0.1:8080/orders

Settings come in layers, and later ones win: built-in defaults, then
config/default.toml, config/<profile>.toml, the file of --config, variables such
as REHOP_BROKER__URL (two underscores between the levels), and --set.

Exit status: 0 when all went well, 1 for an error, 2 for a wrong command line,
130 or 143 when a second SIGINT or SIGTERM stopped it at once.";

pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    match start(cli) {
        Ok(code) => code,
        Err(error) => {
            output::error(&error);
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}

fn start(cli: Cli) -> anyhow::Result<ExitCode> {
    choose_cryptography();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(run(cli));
    // Not a plain drop: a name that is still being looked up would hold the end of the process.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        // These two speak for themselves.
        Command::Demo(args) => return demo::run(args).await,
        Command::DemoService(args) => return demo::service::run(args).await,
        Command::Relay(args) => {
            let telemetry = logging::start_with_telemetry(&cli.options, "rehop relay")?;
            let relayed = relay::run(args, &cli.options).await;
            logging::shut_down(telemetry).await;
            relayed?;
        }
        Command::Topology(args) => {
            logging::start(&cli.options)?;
            topology::run(args, &cli.options).await?;
        }
        Command::Config(args) => config::run(args, &cli.options)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Broker, endpoint and telemetry share one implementation of cryptography. Where several are linked, rustls would refuse to
/// choose.
fn choose_cryptography() {
    #[cfg(feature = "tls-aws-lc")]
    let provider = Some(rustls::crypto::aws_lc_rs::default_provider());
    #[cfg(all(feature = "tls-ring", not(feature = "tls-aws-lc")))]
    let provider = Some(rustls::crypto::ring::default_provider());
    #[cfg(not(any(feature = "tls-ring", feature = "tls-aws-lc")))]
    let provider: Option<rustls::crypto::CryptoProvider> = None;
    if let Some(provider) = provider {
        // Refused only when one is chosen already, which is as good.
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
}
