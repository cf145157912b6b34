//! The demo on a real broker: processes that really die, an HTTP service, and traces that really
//! are exported.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use rehop::telemetry;
use rehop_testing::Broker;
use tokio_util::sync::CancellationToken;

use super::crash::Crashes;
use super::play::Play;
use super::policy;
use super::progress::Progress;
use super::script::{self, EXCHANGE};
use super::shop::Shop;
use super::supervisor::Consumer;
use super::traces::Receiver;
use super::witness::Witness;

pub(crate) async fn play(
    messages: u32,
    broker: &Broker,
    receiver: &Arc<Receiver>,
    shown: bool,
) -> anyhow::Result<Witness> {
    let (orders, crashes) = (script::orders(messages), Crashes::default());
    let shop = Shop::new(&orders);
    let otlp = serve(receiver.router()).await?;
    let consumer = Consumer {
        broker: broker.amqp_url().to_owned(),
        orders: format!("{}/orders", serve(shop.router()).await?),
        otlp: otlp.clone(),
        crashes: crashes.clone(),
    };
    let spans = telemetry::builder(EXCHANGE).endpoint(otlp).without_subscriber().init()?;
    let settings = policy::settings(broker.amqp_url());
    let play = Play::new(orders, settings, broker.client().await?, shop, crashes)?;
    let stop = CancellationToken::new();
    let witness =
        play.run(consumer.keep_running(&stop), stop.clone(), Progress::new(shown)).await?;
    spans.shutdown().await.context("the demo's own spans were not exported")?;
    Ok(Witness { spans: receiver.spans()?, ..witness })
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
