//! Shows rehop at work on a real broker, and accounts for every message: `make demo`.

mod account;
/// The relay's judgement of an HTTP answer, so that it exists only once. The tool is not a library, so its file is included.
#[path = "../../cli/src/relay/answer.rs"]
mod answer;
/// Jaeger's rule about clocks, as the library's own tests apply it.
#[path = "../../../src/telemetry/clocks.rs"]
mod clocks;
mod jitter;
#[allow(dead_code, reason = "the demo needs only a part of this file")]
#[path = "../../cli/src/output.rs"]
mod output;
mod parked;
mod policy;
mod progress;
mod publish;
mod replay;
mod report;
mod script;
mod service;
mod shop;
mod supervisor;
mod timeline;
mod traces;
mod watch;
mod waterfall;
mod witness;

use std::cell::RefCell;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::Router;
use clap::Parser;
use console::Term;
use rehop::signals::Signals;
use rehop::telemetry;
use rehop::topology::Role;
use rehop::{Settings, Topology};
use rehop_testing::{Broker, Client, eventually};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use policy::STRAY;
use progress::Progress;
use report::Report;
use script::{BINDINGS, EXCHANGE, Fate, Order};
use shop::Shop;
use supervisor::Consumer;
use traces::Receiver;
use witness::{Sent, Witness};

/// Shows rehop at work on a throwaway broker, in about a minute
#[derive(Debug, Parser)]
struct Args {
    /// How many orders to publish
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(100..=5000))]
    messages: u32,
    /// The tag of the RabbitMQ image, for example `3.10-management`
    #[arg(long)]
    tag: Option<String>,
    /// Also send the demo's traces to this OTLP collector, for example `http://127.0.0.1:4318` (http/protobuf)
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Print only the report, as JSON
    #[arg(long)]
    json: bool,
    /// Run as the consumer process, which posts orders to this URL
    #[arg(long, value_name = "URL", hide = true)]
    consume_for: Option<String>,
}

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
            eprintln!("{signal}: the consumer and the broker have been stopped");
            Ok(ExitCode::from(signal.exit_status()))
        }
    }
}

async fn demo(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.json {
        say(&report::introduction(args.messages))?;
        eprintln!("starting RabbitMQ, which takes a few seconds");
    }
    let broker = match &args.tag {
        Some(tag) => Broker::builder().tag(tag),
        None => Broker::builder().own(),
    };
    let broker = broker.start().await?;
    let receiver = Arc::<Receiver>::default();
    let play = Play::prepare(args.messages, &broker, &receiver).await?;
    let witness = play.run(Progress::new(!args.json), &receiver).await?;
    let report = Report::of(&witness);
    if args.json {
        say(&format!("{:#}", report.json()))?;
    } else {
        let width = Term::stdout().size_checked().map_or(100, |(_, columns)| usize::from(columns).clamp(80, 160));
        say(&report.text(width, console::colors_enabled()))?;
        say(report::NEXT)?;
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

/// The parts of the demo: a publisher, a consumer process, an HTTP service and an operator.
struct Play {
    orders: Vec<Order>,
    settings: Settings,
    /// What the consumer declares.
    topology: Topology,
    client: Client,
    shop: Arc<Shop>,
    consumer: Consumer,
    spans: telemetry::Telemetry,
    /// What the broker has confirmed so far.
    sent: RefCell<Vec<Sent>>,
}

impl Play {
    async fn prepare(messages: u32, broker: &Broker, receiver: &Arc<Receiver>) -> anyhow::Result<Self> {
        let orders = script::orders(messages);
        let settings = policy::settings(broker.amqp_url());
        let topology = Topology::of(&settings)?;
        let shop = Shop::new(&orders);
        let otlp = serve(receiver.router()).await?;
        let consumer = Consumer {
            broker: broker.amqp_url().to_owned(),
            orders: format!("{}/orders", serve(shop.router()).await?),
            otlp: otlp.clone(),
            crashes: RefCell::default(),
        };
        let spans = telemetry::builder(EXCHANGE).endpoint(otlp).without_subscriber().init()?;
        let client = broker.client().await?;
        client.declare_exchange(EXCHANGE, "topic", json!({ "alternate-exchange": STRAY })).await?;
        Ok(Self { orders, settings, topology, client, shop, consumer, spans, sent: RefCell::default() })
    }

    /// Binds the service's queues, when it has declared them and all others.
    async fn bind(&self) -> anyhow::Result<bool> {
        for (queue, pattern) in BINDINGS {
            self.client.bind(queue, EXCHANGE, pattern, json!({})).await?;
        }
        for role in [Role::Wait, Role::Parked, Role::Stray] {
            self.depth(role).await?;
        }
        Ok(true)
    }

    async fn run(self, mut progress: Progress, receiver: &Receiver) -> anyhow::Result<Witness> {
        let stop = CancellationToken::new();
        let mut consuming = std::pin::pin!(self.consumer.keep_running(&stop));
        let orders_end = async {
            eventually(Duration::from_secs(20), "the service has declared its queues", async || self.bind().await)
                .await?;
            let ((), seen) = tokio::try_join!(self.publish(), self.watch(&mut progress))?;
            let replay = self.replay(&seen.listing, &mut progress).await?;
            anyhow::Ok((seen, replay))
        };
        let (seen, replay) = tokio::select! {
            ended = orders_end => ended?,
            ended = &mut consuming => {
                ended?;
                bail!("the consumer process is no longer supervised");
            }
        };
        progress.erase();
        stop.cancel();
        tokio::time::timeout(Duration::from_secs(20), consuming)
            .await
            .context("the consumer did not stop in time")??;
        let strays = seen.found.iter().filter(|(_, fate)| *fate == Fate::Stray).cloned();
        let found = strays.chain(self.empty().await?).collect();
        self.spans.shutdown().await.context("the demo's own spans were not exported")?;
        Ok(Witness {
            found,
            seen,
            replay,
            sent: self.sent.take().into_iter().map(|sent| (sent.order.id, sent)).collect(),
            requests: self.shop.log(),
            crashes: self.consumer.crashes.take(),
            spans: receiver.spans()?,
        })
    }
}

/// Serves on a free port of the loopback address until the demo ends, and returns the base URL.
async fn serve(router: Router) -> anyhow::Result<String> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            eprintln!("the demo's HTTP server at {address} ended: {error}");
        }
    });
    Ok(format!("http://{address}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
