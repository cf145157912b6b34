//! The consumer, in a process of its own so that poison can kill it. It shows what a service that
//! embeds rehop looks like.

use std::time::{Duration, SystemTime};

use anyhow::Context;
use rehop::settings::Treatment;
use rehop::{Failure, Message, telemetry};
use reqwest::Client;
use reqwest::header::CONTENT_TYPE;
use tokio::sync::oneshot;

use super::answer;
use super::policy::{NAMESPACE, ORDERS, REFUNDS, settings};
use super::script::{Body, POISON};
use super::shop::ATTEMPT;

/// Passed in the environment, because the URL holds a password and everybody can read arguments.
pub(crate) const BROKER: &str = "REHOP_DEMO_BROKER";

/// What a process prints before poison kills it, followed by the order's number.
pub(crate) const DYING: &str = "killed by order ";

/// Consumes until standard input is closed, which also happens when the demo's process ends.
pub(crate) async fn run(orders: String) -> anyhow::Result<()> {
    let broker = std::env::var(BROKER).with_context(|| format!("{BROKER} must name the broker"))?;
    let telemetry = telemetry::builder(NAMESPACE).without_subscriber().init()?;
    let client = Client::builder().timeout(Duration::from_secs(5)).no_proxy().build()?;
    let handler = move |order: Message<Body>| {
        let (client, orders) = (client.clone(), orders.clone());
        async move { handle(&client, &orders, order).await }
    };
    rehop::Service::new(&settings(&broker))
        .consumer(ORDERS, handler.clone())
        .consumer(REFUNDS, handler)
        .with_graceful_shutdown(standard_input_closed())
        .await?;
    telemetry.shutdown().await?;
    Ok(())
}

async fn handle(client: &Client, orders: &str, order: Message<Body>) -> Result<(), Failure> {
    if order.body.item == POISON {
        eprintln!("{DYING}{}", order.body.id);
        std::process::abort();
    }
    let mut request = client
        .post(orders)
        .header(CONTENT_TYPE, "application/json")
        .header(ATTEMPT, order.attempt());
    for (name, value) in telemetry::current_headers() {
        request = request.header(name, value);
    }
    let treatments = answer::Treatments::default();
    let response = match request.body(order.raw_body().clone()).send().await {
        Ok(response) => response,
        Err(error) => {
            let text = format!("the endpoint did not answer: {}", error.without_url());
            return treatments.failure(
                "http_connection".to_owned(),
                Treatment::Transient,
                text,
                None,
            );
        }
    };
    let retry_after = answer::retry_after(response.headers(), SystemTime::now());
    treatments.judge(response.status(), retry_after, None)
}

async fn standard_input_closed() {
    let (closed, wait) = oneshot::channel();
    // Reading standard input cannot be interrupted, so a thread of the runtime would keep the
    // process from ending.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = closed.send(());
    });
    let _ = wait.await;
}
