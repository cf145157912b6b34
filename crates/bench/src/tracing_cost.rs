//! What telemetry costs at full speed on the success path: off, on with nothing sampled, on with
//! everything exported.

use std::net::SocketAddr;

use opentelemetry::global;
use opentelemetry::trace::noop::NoopTracerProvider;
use opentelemetry_otlp::{MetricExporter, Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::job::Job;
use crate::lab::Lab;
use crate::report::Report;
use crate::side::Side;
use crate::{Result, run, turns};

const OFF: &str = "telemetry off";
const UNSAMPLED: &str = "tracing on, nothing sampled";
const EXPORTED: &str = "tracing on, everything exported to a receiver";
const WITH_METRICS: &str = "the same, and metrics";
const VARIANTS: [&str; 4] = [OFF, UNSAMPLED, EXPORTED, WITH_METRICS];

pub(crate) async fn compare(lab: &Lab) -> Result<usize> {
    choose_cryptography();
    let receiver = receive().await?;
    let rounds = lab.effort.tracing_rounds;
    let title = format!("{}, with telemetry ({rounds} rounds)", Job::Success.title(lab.effort));
    let mut report = Report::new(title, VARIANTS.into_iter());
    for round in turns::rounds(rounds) {
        for turn in turns::order(round, VARIANTS.len()) {
            lab.progress.say(&format!("tracing, {round}: {}", VARIANTS[turn]));
            let providers = Providers::of(VARIANTS[turn], receiver)?;
            providers.install();
            report.add(turn, round, run::run(lab, Job::Success, Side::Rehop).await?);
            tokio::task::spawn_blocking(move || providers.shutdown()).await?;
        }
    }
    lab.progress.clear();
    Ok(report.print())
}

/// The exporter's HTTP client is built with TLS and needs a crypto provider.
fn choose_cryptography() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// `None` stands for the API's own provider, which does nothing.
struct Providers {
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
}

impl Providers {
    fn of(variant: &str, receiver: SocketAddr) -> Result<Self> {
        match variant {
            OFF => Ok(Self { traces: None, metrics: None }),
            UNSAMPLED => Self::tracing(Sampler::AlwaysOff, receiver),
            EXPORTED => Self::tracing(Sampler::AlwaysOn, receiver),
            _ => Self::tracing(Sampler::AlwaysOn, receiver)?.with_metrics(receiver),
        }
    }

    fn tracing(sampler: Sampler, receiver: SocketAddr) -> Result<Self> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("http://{receiver}/v1/traces"))
            .build()?;
        // The default of 2,048 would drop most spans at this speed, and dropped spans cost nothing.
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(400_000)
            .with_max_export_batch_size(4096)
            .build();
        let processor = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
        let traces = SdkTracerProvider::builder()
            .with_sampler(sampler)
            .with_span_processor(processor)
            .build();
        Ok(Self { traces: Some(traces), metrics: None })
    }

    fn with_metrics(self, receiver: SocketAddr) -> Result<Self> {
        let exporter = MetricExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("http://{receiver}/v1/metrics"))
            .build()?;
        Ok(Self {
            metrics: Some(SdkMeterProvider::builder().with_periodic_exporter(exporter).build()),
            ..self
        })
    }

    fn install(&self) {
        match &self.traces {
            Some(traces) => global::set_tracer_provider(traces.clone()),
            None => global::set_tracer_provider(NoopTracerProvider::new()),
        }
        global::set_meter_provider(
            self.metrics.clone().unwrap_or_else(|| SdkMeterProvider::builder().build()),
        );
    }

    fn shutdown(&self) {
        let traces = self.traces.as_ref().map_or(Ok(()), SdkTracerProvider::shutdown);
        let metrics = self.metrics.as_ref().map_or(Ok(()), SdkMeterProvider::shutdown);
        for result in [traces, metrics] {
            if let Err(error) = result {
                eprintln!("telemetry did not shut down cleanly: {error}");
            }
        }
    }
}

/// Accepts whatever is exported.
async fn receive() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                // The exporter reports what goes wrong here.
                let _ = answer(stream).await;
            });
        }
    });
    Ok(address)
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        let text = String::from_utf8_lossy(&buffer[..head]).to_lowercase();
        let length =
            text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let end = head + length.unwrap_or(0);
        while buffer.len() < end {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        buffer.drain(..end);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")
            .await?;
    }
}
