//! `rehop ui`: the local page.

use std::path::PathBuf;

use rehop_operator::parked::{Parked, ParkedError, Place, add_unlisted_queues};
use rehop_page::{Action, Listen};

use super::options::{Options, Usage};
use super::{limits, output, signals};

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Traces, metrics and logs go to an OpenTelemetry collector if a variable such as
OTEL_EXPORTER_OTLP_ENDPOINT asks for it, as for `rehop relay`.

Examples:
  rehop ui --namespace billing --queue orders
  rehop ui --queue orders --allow replay,discard
  rehop ui --queue orders --socket /run/user/1000/rehop   (on a jump host)
    ssh -L 7672:/run/user/1000/rehop jump-host            (on your machine)")]
pub(super) struct Args {
    /// A work queue, whether in the settings or not; may be repeated
    ///
    /// Default: all queues in the settings, and those that --management finds.
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,
    /// Listen on this address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7672")]
    listen: String,
    /// Listen on a Unix socket that only you can open
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    socket: Option<PathBuf>,
    /// What the page may do besides looking: replay, discard, edit, reveal (show masked values);
    /// separated by commas
    #[arg(long, value_name = "ACTIONS", value_delimiter = ',')]
    allow: Vec<Action>,
    /// Listen where other machines can reach the page
    ///
    /// It has no TLS of its own, so put it behind a proxy that has, and give the proxy's address
    /// with --public-url.
    #[arg(long)]
    allow_remote: bool,
    /// The address at which a proxy serves the page, such as https://rehop.example.com
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Link messages to their traces, such as http://localhost:16686/trace/{trace_id}
    #[arg(long, value_name = "URL")]
    trace_url: Option<String>,
}

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<()> {
    let mut settings = options.settings()?;
    if args.queues.is_empty() {
        let unseen = match add_unlisted_queues(&mut settings).await {
            Ok(left_out) => left_out,
            Err(unseen) => vec![unseen],
        };
        if settings.queues.is_empty() {
            let problem = "the settings list no queue: name one with --queue, or list queues under [[queues]]";
            return Err(
                Usage([&[problem.to_owned()], &unseen[..]].concat().join(". Not seen: ")).into()
            );
        }
        // Without the management API nobody expects that it is used.
        if settings.broker.management_url.is_some() {
            unseen.iter().for_each(|unseen| output::notice(&format!("not seen: {unseen}")));
        }
    }
    if !args.queues.is_empty() {
        settings.queues.retain(|queue| args.queues.contains(&queue.queue));
        for name in &args.queues {
            settings.queue_mut(name);
        }
    }
    let stop = signals::watch()?;
    let mut serve = rehop_page::Options::default();
    serve.listen = args.socket.clone().map_or(Listen::Tcp(args.listen), Listen::Socket);
    serve.allow_remote = args.allow_remote;
    serve.public_url = args.public_url;
    serve.trace_url = args.trace_url;
    serve.allowed = args.allow.into_iter().collect();
    let allowed = serve.allowed.clone();
    let page = tokio::select! {
        page = rehop_page::start(&settings, serve) => page?,
        () = stop.cancelled() => return Ok(()),
    };
    tracing::info!(namespace = %settings.namespace, %allowed, "the page is served");
    if let Some(path) = &args.socket {
        output::print(&format!("On your machine: ssh -L 7672:{} <this host>", path.display()))?;
    }
    output::print(&format!("Open this address, once: {}", page.address()))?;
    let work = settings.queues.iter().map(|queue| Place::queue(&queue.queue));
    let resting = work
        .chain([Place::Stray, Place::Discarded])
        .map(|place| Parked::open(&settings, place).map(|parked| parked.queue().to_owned()))
        .collect::<Result<Vec<_>, ParkedError>>()?;
    tokio::select! {
        () = limits::warn(&settings, &resting) => {}
        () = stop.cancelled() => {}
    }
    stop.cancelled().await;
    page.shutdown().await;
    Ok(())
}
