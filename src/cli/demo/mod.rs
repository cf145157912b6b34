//! `rehop demo`: the main job on a real broker, counted by those who saw it.

mod account;
mod chains;
mod clock;
mod progress;
mod receiver;
mod report;
mod script;
pub(crate) mod service;
mod shop;
mod spans;
mod supervisor;
mod timeline;
mod tracing_to;
mod waterfall;
mod witness;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use axum::Router;
use console::Term;
use futures_util::StreamExt;
use opentelemetry::trace::{SpanKind, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue, global};
use rehop::telemetry;
use rehop::testing::{Broker, Client, eventually};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use clock::now_nanos;
use progress::Progress;
use receiver::Receiver;
use report::Report;
use script::{EXCHANGE, Order, PATTERN, QUEUE, STRAY};
use shop::Shop;
use supervisor::Consumer;
use witness::{Sent, Witness, collect, leftovers, waiting};

/// Arguments of the demo.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many orders are published.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(50..=5000))]
    messages: u32,
    /// The tag of the RabbitMQ image, for example `3.10-management`.
    #[arg(long)]
    tag: Option<String>,
    /// Sends the demo's traces to this OTLP collector as well, for example `http://127.0.0.1:4318` (http/protobuf).
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Prints the report as JSON, and nothing else.
    #[arg(long)]
    json: bool,
}

/// Runs the demo. An interrupt ends it, and everything that it has started.
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    tokio::select! {
        ended = demo(&args) => ended,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            eprintln!("interrupted; the consumer and the broker are gone");
            Ok(ExitCode::from(130))
        }
    }
}

async fn demo(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.json {
        say(&report::introduction(args.messages))?;
        eprintln!("starting a RabbitMQ, which takes a few seconds");
    }
    let broker = match &args.tag {
        Some(tag) => Broker::builder().tag(tag),
        None => Broker::builder().own(),
    };
    let broker = broker.start().await?;
    let started = Instant::now();
    let (witness, failure) = act(args, &broker).await?;
    let report = Report::of(&witness, broker.version(), started.elapsed().as_secs_f64());
    if args.json {
        say(&format!("{:#}", report.json()))?;
    } else {
        let width = Term::stdout().size_checked().map_or(100, |(_, columns)| usize::from(columns).clamp(80, 160));
        say(&report.text(width, console::colors_enabled()))?;
        say(report::NEXT)?;
    }
    if let (Some(failure), Some(url)) = (failure, &args.otlp) {
        eprintln!("rehop: {url} did not take all traces: {failure}");
    }
    Ok(if report.adds_up() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A reader that has seen enough closes the pipe: no reason to panic.
fn say(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// The whole play, on a broker that is there: what was seen, and why the collector did not get all of it.
async fn act(args: &Args, broker: &Broker) -> anyhow::Result<(Witness, Option<String>)> {
    let (orders, mut servers) = (script::orders(args.messages), JoinSet::new());
    let (shop, receiver) = (Shop::new(&orders), Receiver::new(args.otlp.as_deref())?);
    let otlp = serve(&mut servers, receiver.router()).await?;
    let consumer = Consumer {
        broker: broker.amqp_url().to_owned(),
        orders: format!("{}/orders", serve(&mut servers, shop.router()).await?),
        otlp: otlp.clone(),
        crashes: Arc::default(),
    };
    let spans = tracing_to::tracing_to(&otlp, EXCHANGE)?;

    let client = broker.client().await?;
    client.declare_exchange(EXCHANGE, "topic", json!({ "alternate-exchange": STRAY })).await?;
    let stop = CancellationToken::new();
    let _stop_with_the_play = stop.clone().drop_guard();
    // Dropped with the play, and the process with it.
    let mut supervisor = JoinSet::new();
    supervisor.spawn(consumer.clone().keep_running(stop.clone()));
    let declared = eventually(Duration::from_secs(20), "the service has declared its queue", async || {
        client.bind(QUEUE, EXCHANGE, PATTERN, json!({})).await.map(|()| true)
    });
    tokio::select! {
        declared = declared => declared?,
        ended = ended(&mut supervisor) => ended?,
    }

    let sent = Mutex::new(Vec::new());
    let mut witness = Witness::default();
    let mut progress = Progress::new(args.json, u64::from(args.messages));
    let watched = async {
        tokio::try_join!(
            publish(&client, &orders, &shop, &sent),
            watch(&client, &orders, &shop, &consumer, &sent, &mut witness, &mut progress),
        )
    };
    tokio::select! {
        watched = watched => drop(watched?),
        ended = ended(&mut supervisor) => ended?,
    }
    progress.finish();

    stop.cancel();
    tokio::time::timeout(Duration::from_secs(20), ended(&mut supervisor))
        .await
        .context("the consumer does not stop")??;
    tracing_to::flush(spans).await.context("the demo's own spans were not exported")?;
    collect(&client, &mut witness.found).await?;
    witness.left = leftovers(&client).await?;
    witness.sent = lock(&sent).drain(..).map(|sent| (sent.order.id, sent)).collect();
    witness.requests = shop.log();
    witness.crashes = consumer.crashes();
    witness.spans = receiver.spans();
    Ok((witness, receiver.failure()))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Serves on a free port of the loopback address; gives the base of its URL.
async fn serve(servers: &mut JoinSet<()>, router: Router) -> anyhow::Result<String> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    servers.spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            eprintln!("rehop: the demo's HTTP server at {address} ended: {error}");
        }
    });
    Ok(format!("http://{address}"))
}

/// The consumer's supervisor ends by itself only where something is wrong.
async fn ended(supervisor: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    match supervisor.join_next().await {
        Some(ended) => ended?,
        None => bail!("the consumer process is not watched any more"),
    }
}

/// So long the publishing takes, for most numbers of orders: the outage and the crashes both fall into it.
const PUBLISHING: Duration = Duration::from_secs(6);
/// What the handlers can keep up with.
const CLOSEST: Duration = Duration::from_millis(3);
/// Unconfirmed at a time.
const PIPELINED: usize = 16;

/// Publishes the orders at a steady pace, each in a span of its own, and notes what the broker has confirmed.
async fn publish(client: &Client, orders: &[Order], shop: &Shop, sent: &Mutex<Vec<Sent>>) -> anyhow::Result<()> {
    let pace = (PUBLISHING / u32::try_from(orders.len()).unwrap_or(u32::MAX)).max(CLOSEST);
    let start = tokio::time::Instant::now();
    shop.open();
    let confirmed = orders.iter().zip(0..).map(|(order, turn)| async move {
        tokio::time::sleep_until(start + pace * turn).await;
        publish_one(client, order).await
    });
    let mut confirmed = futures_util::stream::iter(confirmed).buffered(PIPELINED);
    while let Some(order) = confirmed.next().await {
        lock(sent).push(order?);
    }
    Ok(())
}

async fn publish_one(client: &Client, order: &Order) -> anyhow::Result<Sent> {
    let tracer = global::tracer("rehop demo");
    let span = tracer
        .span_builder(format!("publish {EXCHANGE}:{}", order.routing_key))
        .with_kind(SpanKind::Producer)
        .with_attributes([
            KeyValue::new("messaging.system", "rabbitmq"),
            KeyValue::new("messaging.operation.name", "publish"),
            KeyValue::new("messaging.operation.type", "send"),
            KeyValue::new("messaging.destination.name", format!("{EXCHANGE}:{}", order.routing_key)),
        ])
        .start(&tracer);
    let context = Context::new().with_span(span);
    let at = now_nanos();
    let mut message = order.message(i64::try_from(at / 1_000_000).unwrap_or(i64::MAX));
    {
        let _current = context.clone().attach();
        for (name, value) in telemetry::current_headers() {
            message = message.header(name, value);
        }
    }
    client.publish(message).await?;
    context.span().end();
    Ok(Sent { order: order.clone(), at, trace_id: context.span().span_context().trace_id().to_string() })
}

/// How long the demo goes on when orders are missing. What it finds then is reported.
const PATIENCE: Duration = Duration::from_secs(40);
/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Looks until every order has ended and nothing waits any more, and says what is going on.
async fn watch(
    client: &Client,
    orders: &[Order],
    shop: &Shop,
    consumer: &Consumer,
    sent: &Mutex<Vec<Sent>>,
    witness: &mut Witness,
    progress: &mut Progress,
) -> anyhow::Result<()> {
    let (started, mut published_at, mut out, mut crashes) = (Instant::now(), None, false, 0);
    loop {
        let so_far = |text: String| format!("{:5.1} s  {text}", started.elapsed().as_secs_f64());
        if shop.is_out() != out {
            out = !out;
            let word = if out { "the HTTP service goes down: 503 to everything" } else { "the HTTP service is back" };
            progress.event(&so_far(word.to_owned()));
        }
        for (index, crash) in consumer.crashes().iter().enumerate().skip(crashes) {
            crashes = index + 1;
            let text = format!(
                "order {} calls abort() in its handler: the process dies (crash {crashes}) and is started again",
                crash.order
            );
            progress.event(&so_far(text));
        }
        collect(client, &mut witness.found).await?;
        let mut ended: BTreeSet<u32> = witness.found.iter().filter_map(|found| found.order).collect();
        let parked_or_stray = ended.len();
        ended.extend(shop.log().iter().filter(|request| request.is_success()).map(|request| request.order));
        let waits = waiting(client).await?;
        let published = lock(sent).len();
        progress.update(
            ended.len() as u64,
            format!("{published} published, {waits} waiting, {parked_or_stray} parked or stray, {crashes} crashes"),
        );
        if published == orders.len() {
            let published_at = *published_at.get_or_insert_with(Instant::now);
            if (ended.len() == published && waits == 0 && client.depth(QUEUE).await? == 0)
                || published_at.elapsed() > PATIENCE
            {
                return Ok(());
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outage_falls_into_the_publishing() {
        assert!(script::OUTAGE.end < PUBLISHING);
    }
}
