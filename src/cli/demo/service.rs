//! The consumer, in a process of its own so that poison can kill it: what a service that embeds rehop looks like.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use rehop::{Failure, Message, telemetry};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, StatusCode};
use tokio::sync::oneshot;

use super::script::{Body, NAMESPACE, POISON, QUEUE, settings};
use super::shop::ATTEMPT;
use super::tracing_to::{flush, tracing_to};

/// In the environment, because the URL holds a password and arguments are everybody's to read.
pub(super) const BROKER_VARIABLE: &str = "REHOP_DEMO_BROKER";

/// Arguments of the consumer process.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where orders are posted to.
    #[arg(long)]
    pub(super) orders: String,
    /// Where spans are sent to.
    #[arg(long)]
    pub(super) otlp: String,
}

/// Consumes until standard input is closed, which the end of the demo's process does too.
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let broker = std::env::var(BROKER_VARIABLE).with_context(|| format!("{BROKER_VARIABLE} must name the broker"))?;
    let spans = tracing_to(&args.otlp, NAMESPACE)?;
    let shop = Shop { client: Client::builder().timeout(Duration::from_secs(5)).build()?, orders: args.orders };
    rehop::connect(&settings(&broker))
        .await?
        .consumer(QUEUE, move |order: Message<Body>| {
            let shop = shop.clone();
            async move { shop.handle(order).await }
        })
        .with_graceful_shutdown(standard_input_closed())
        .await?;
    flush(spans).await?;
    Ok(ExitCode::SUCCESS)
}

/// What the handler needs.
#[derive(Clone)]
struct Shop {
    client: Client,
    orders: String,
}

impl Shop {
    async fn handle(&self, order: Message<Body>) -> Result<(), Failure> {
        if order.item == POISON {
            eprintln!("{DYING}{}", order.id);
            std::process::abort();
        }
        let mut request = self.client.post(&self.orders).body(order.raw_body().clone());
        request = request.header(CONTENT_TYPE, "application/json").header(ATTEMPT, order.attempt());
        for (name, value) in telemetry::current_headers() {
            request = request.header(name, value);
        }
        let response = request.send().await.map_err(|error| Failure::transient(error).with_class("http_connection"))?;
        let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        judge(response.status(), after.map(Duration::from_secs))
    }
}

/// What an answer means for the message.
fn judge(status: StatusCode, retry_after: Option<Duration>) -> Result<(), Failure> {
    let text = format!("the shop answered {status}");
    let failure = match status.as_u16() {
        200..300 => return Ok(()),
        409 | 423 => Failure::requeue(text),
        408 | 425 | 429 | 500.. => match retry_after {
            Some(delay) => Failure::transient(text).after(delay),
            None => Failure::transient(text),
        },
        _ => Failure::permanent(text),
    };
    Err(failure.with_class(format!("http_{}", status.as_u16())))
}

/// The last words of a process that poison kills, before the order's number.
pub(super) const DYING: &str = "killed by order ";

async fn standard_input_closed() {
    let (closed, wait) = oneshot::channel();
    // Reading standard input cannot be interrupted: a thread of the runtime would keep it from ending.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = closed.send(());
    });
    let _ = wait.await;
}
