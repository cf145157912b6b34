//! `rehop parked show`.

use std::process::ExitCode;

use rehop_operator::format;
use rehop_operator::parked::{Body, Detail, ParkedMessage, Shown};

use super::list::{Scan, scan};
use super::plan::now;
use super::select::PlaceArgs;
use super::text;
use crate::options::Options;
use crate::{exit, output};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// The id of its chain, or a unique prefix of it
    ///
    /// A chain is a message with all its attempts. Lists, logs and spans show its id.
    #[arg(value_name = "CHAIN")]
    chain: String,
    /// Look at the first N messages of the queue, or at `all`
    #[arg(long, value_name = "N", default_value = "all", value_parser = scan)]
    scan: Scan,
    /// Show what mask.headers and mask.json hide
    #[arg(long)]
    reveal: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<ExitCode> {
    let (parked, _) = super::open(args.place.place(), options).await?;
    let parked = if args.reveal { parked.reveal() } else { parked };
    let shown = parked.show_by_prefix(&args.chain, args.scan.0).await?;
    if args.json {
        output::print(&text::json(&shown)?)?;
    } else {
        let parts = shown.messages.iter().map(one).chain(more(&shown)).chain(unseen(&shown));
        output::print(&parts.collect::<Vec<_>>().join("\n\n"))?;
    }
    Ok(if shown.looked_at < shown.wanted {
        ExitCode::from(exit::UNFINISHED)
    } else {
        ExitCode::SUCCESS
    })
}

/// That messages of the chain may be among those that could not be looked at.
fn unseen(shown: &Shown) -> Option<String> {
    (shown.looked_at < shown.wanted).then(|| {
        let [looked_at, wanted] = [shown.looked_at, shown.wanted].map(format::count);
        format!("only the first {looked_at} of {wanted} messages could be looked at; run the command again")
    })
}

/// What is not shown, and how to see it.
fn more(shown: &Shown) -> Option<String> {
    (shown.more() > 0).then(|| {
        format!(
            "and {} more messages of this chain: at most {} are shown, with 1 MiB of headers and bodies in all. `rehop parked list` and \
             `export` take --chain together with other filters, such as --since and --where",
            format::count(shown.more()),
            Shown::MOST
        )
    })
}

fn one(detail: &Detail) -> String {
    [summary(&detail.message), history(&detail.message), headers(detail), body(detail)]
        .map(|section| section.join("\n"))
        .join("\n\n")
}

fn summary(message: &ParkedMessage) -> Vec<String> {
    let key = |key: &str, value: &str| format!("{key:<12} {value}");
    let origin = if message.exchange.is_empty() {
        format!("queue {}", text::line(&message.routing_key))
    } else {
        format!(
            "exchange {}, routing key {}",
            text::line(&message.exchange),
            text::line(&message.routing_key)
        )
    };
    let destination = message.destination.as_deref().map_or_else(
        || "unknown; a replay needs --to".to_owned(),
        |queue| format!("queue {}, where a replay sends it", text::line(queue)),
    );
    let mut lines = vec![
        key("chain", &text::line(&message.chain)),
        key("reason", &text::line(&message.reason)),
        key(
            "parked",
            &format!(
                "{} ({} ago)",
                text::time(message.parked_at),
                text::age(message.parked_at, now())
            ),
        ),
        key("published to", &origin),
        key("belongs to", &destination),
        key("position", &message.position.to_string()),
        key(
            "attempts",
            &format!(
                "{}, after {}; replayed {}",
                message.attempts,
                format::counted(message.hops.into(), "wait"),
                format::counted(message.replays.into(), "time")
            ),
        ),
    ];
    if let Some(deadline) = message.deadline {
        lines.push(key("deadline", &text::time(Some(deadline))));
    }
    if let Some(traceparent) = &message.traceparent {
        lines.push(key("trace", &text::line(traceparent)));
    }
    lines
}

fn history(message: &ParkedMessage) -> Vec<String> {
    let mut lines = vec!["history".to_owned()];
    if let Some(first_seen) = message.first_seen {
        lines.push(format!("  {}  first seen", text::time(Some(first_seen))));
    }
    for error in &message.history {
        let (class, error_text) = (text::line(&error.class), text::line(&error.message));
        lines.push(format!(
            "  {}  attempt {} failed: {class}: {error_text}",
            text::time(Some(error.at)),
            error.attempt
        ));
    }
    lines.push(format!(
        "  {}  parked: {}",
        text::time(message.parked_at),
        text::line(&message.reason)
    ));
    lines
}

fn headers(detail: &Detail) -> Vec<String> {
    let mut lines = vec!["properties and headers".to_owned()];
    let properties =
        detail.properties.iter().map(|(name, value)| format!("  {name}: {}", text::line(value)));
    lines.extend(properties);
    for (name, value) in &detail.headers {
        let value = value.as_str().map_or_else(|| text::line(&value.to_string()), text::line);
        lines.push(format!("  {}: {value}", text::line(name)));
    }
    lines
}

fn body(detail: &Detail) -> Vec<String> {
    let mut lines = vec![format!("body, {}", format::size(detail.message.size))];
    lines.push(match &detail.body {
        Body::Json(value) => text::json(value).unwrap_or_default(),
        Body::Text(body) => rehop_operator::format::lines(body),
        Body::Hex(body) => body.clone(),
    });
    if detail.omitted > 0 {
        lines.push(format!("({} more bytes)", format::count(detail.omitted)));
    }
    lines
}
