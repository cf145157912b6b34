//! The command line.

use clap::Parser;

/// Shows rehop at work on a throwaway broker
///
/// Without Docker and without a rabbitmq-server it plays on a simulated broker.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// How many orders to publish
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(100..=5000))]
    pub(crate) messages: u32,
    /// Play on a simulated broker in virtual time, in seconds
    #[arg(long, conflicts_with_all = ["tag", "otlp"])]
    pub(crate) simulated: bool,
    /// The tag of the RabbitMQ image, for example `3.10-management`
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// Also send the demo's traces to this OTLP collector, for example `http://127.0.0.1:4318`
    /// (http/protobuf)
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<String>,
    /// Print only the report, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Run as the consumer process, which posts orders to this URL
    #[arg(long, value_name = "URL", hide = true)]
    pub(crate) consume_for: Option<String>,
}
