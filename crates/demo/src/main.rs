//! Shows rehop at work, and accounts for every message: `make demo`.

mod account;
/// The relay's judgement of an HTTP answer, so that it exists only once. The tool is not a library,
/// so its file is included.
#[path = "../../cli/src/relay/answer.rs"]
mod answer;
mod arguments;
mod client;
/// Jaeger's rule about clocks, as the library's own tests apply it.
#[path = "../../../src/telemetry/clocks.rs"]
mod clocks;
mod crash;
mod ground;
mod jitter;
mod lock;
mod on_a_broker;
#[allow(dead_code, reason = "the demo needs only a part of this file")]
#[path = "../../cli/src/output.rs"]
mod output;
mod parked;
mod play;
mod policy;
mod progress;
mod publish;
mod replay;
mod report;
mod run;
mod script;
mod service;
mod shop;
mod simulated;
mod supervisor;
mod timeline;
mod traces;
mod watch;
mod waterfall;
mod witness;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use console::Term;
use rehop::signals::Signals;

use arguments::Args;
use ground::Ground;
use report::Report;
use traces::Receiver;

/// Runs the demo. SIGINT or SIGTERM ends it and everything that it has started.
#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if let Some(orders) = args.consume_for {
        service::run(orders).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut signals = Signals::listen()?;
    tokio::select! {
        ended = demo(&args) => ended,
        signal = signals.next() => {
            eprintln!("{signal}: everything that the demo has started has been stopped");
            Ok(ExitCode::from(signal.exit_status()))
        }
    }
}

async fn demo(args: &Args) -> anyhow::Result<ExitCode> {
    let ground = Ground::choose(args).await?;
    if !args.json {
        say(&ground.introduction(args.messages))?;
    }
    let receiver = Arc::<Receiver>::default();
    let witness = match &ground {
        Ground::Broker(broker) => {
            on_a_broker::play(args.messages, broker, &receiver, !args.json).await?
        }
        Ground::Simulated(_) => simulated::play(args.messages, !args.json).await?,
    };
    let report = Report::of(&witness, ground.is_simulated());
    if args.json {
        say(&format!("{:#}", report.json()))?;
    } else {
        let width = Term::stdout()
            .size_checked()
            .map_or(100, |(_, columns)| usize::from(columns).clamp(80, 160));
        say(&report.text(width, console::colors_enabled()))?;
        say(ground.conclusion())?;
    }
    if let Some(url) = &args.otlp
        && let Err(error) = receiver.pass_on(url).await
    {
        eprintln!("{url} did not accept all traces: {error:#}");
    }
    Ok(if report.adds_up() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// It is not an error if the reader closes the pipe early, as `head` does.
fn say(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
