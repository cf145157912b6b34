//! `rehop publish`: one message, as a service's publisher sends it.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use rehop::{Publish, Publisher};

use super::options::{Options, Usage};
use super::{input, output};

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct Args {
    /// Publish directly to this queue
    #[arg(long, value_name = "QUEUE", required_unless_present = "exchange", conflicts_with_all = ["exchange", "routing_key"])]
    queue: Option<String>,
    /// Publish to this exchange
    #[arg(long, value_name = "EXCHANGE")]
    exchange: Option<String>,
    /// The routing key for the exchange; empty by default
    #[arg(long, value_name = "KEY", requires = "exchange")]
    routing_key: Option<String>,
    /// The body, which must be JSON; sets the content type application/json
    #[arg(long, value_name = "JSON", conflicts_with = "file")]
    json: Option<String>,
    /// The file with the body, or - for standard input; its bytes are sent unchanged. Without it
    /// and --json the body is empty
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The content type
    #[arg(long, value_name = "TYPE", conflicts_with = "json")]
    content_type: Option<String>,
    /// The message's type, for services that go by it
    #[arg(long = "type", value_name = "TYPE")]
    message_type: Option<String>,
    /// The message id. Default: a random one
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    /// The time until the message's deadline, such as 10m. Default: the consuming service's
    /// retry.max_age
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    deadline: Option<Duration>,
    /// A header; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE")]
    headers: Vec<String>,
}

/// Lines have at most 80 columns, because clap would wrap longer ones and break the layout.
const HELP: &str = "\
The command succeeds when the broker has confirmed the message, and prints its
id. A message that no queue takes is an error.

Examples:
  rehop publish --queue orders --json '{\"id\": 7, \"amount\": \"12\"}'
  rehop publish --exchange shop --routing-key order.created --file order.json
  generate-order | rehop publish --queue orders --file - --deadline 1h";

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<()> {
    let settings = options.loader()?.load()?;
    let message = message(args)?;
    let id = message.id().to_owned();
    let publisher = Publisher::connect(&settings).await?;
    let published = publisher.publish(message).await;
    publisher.close().await;
    published?;
    output::print(&format!("published {id}"))
}

fn message(args: Args) -> anyhow::Result<Publish> {
    let mut message = match (args.queue, args.exchange) {
        (Some(queue), _) => Publish::to_queue(queue),
        (None, exchange) => {
            Publish::to(exchange.unwrap_or_default(), args.routing_key.unwrap_or_default())
        }
    };
    if let Some(json) = args.json {
        if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&json) {
            return Err(Usage(format!("--json is not valid JSON: {error}")).into());
        }
        message = message.bytes(json).content_type("application/json");
    }
    if let Some(file) = args.file {
        message = message
            .bytes(input::read(&file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    if let Some(content_type) = args.content_type {
        message = message.content_type(content_type);
    }
    if let Some(message_type) = args.message_type {
        message = message.message_type(message_type);
    }
    if let Some(id) = args.message_id {
        message = message.message_id(id);
    }
    if let Some(deadline) = args.deadline {
        let deadline = SystemTime::now().checked_add(deadline);
        message = message
            .deadline(deadline.ok_or_else(|| Usage("--deadline is too far away".to_owned()))?);
    }
    for header in args.headers {
        let Some((name, value)) = header.split_once('=').filter(|(name, _)| !name.is_empty())
        else {
            return Err(Usage(
                "--header needs NAME=VALUE, for instance --header tenant=a".to_owned(),
            )
            .into());
        };
        message = message.header(name, value);
    }
    Ok(message)
}
