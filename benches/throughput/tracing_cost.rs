//! What telemetry costs at the success path's full speed: off, on with nothing sampled, on with everything exported.

use std::net::SocketAddr;

use opentelemetry::global;
use opentelemetry::trace::noop::NoopTracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::job::{Bench, Job};
use crate::report::Report;
use crate::{Result, rehop_side};

const OFF: &str = "telemetry off";

pub(crate) async fn compare(bench: &Bench) -> Result<u64> {
    let receiver = receive().await?;
    let mut report = Report::new(format!("{}, with telemetry", Job::Success.title(bench.sizes)), OFF);
    for round in 0..bench.sizes.rounds {
        for (variant, providers) in [
            (OFF, Providers::off()),
            ("on, nothing sampled", Providers::on(Sampler::AlwaysOff, receiver)?),
            ("on, everything exported to a receiver", Providers::on(Sampler::AlwaysOn, receiver)?),
        ] {
            providers.install();
            report.add(variant, rehop_side::run(bench, Job::Success, "rehop", round).await?);
            tokio::task::spawn_blocking(move || providers.shutdown()).await?;
        }
    }
    Ok(report.print())
}

struct Providers {
    /// None: the API's own provider, which does nothing.
    traces: Option<SdkTracerProvider>,
    metrics: SdkMeterProvider,
}

impl Providers {
    fn off() -> Self {
        Self { traces: None, metrics: SdkMeterProvider::builder().build() }
    }

    fn on(sampler: Sampler, receiver: SocketAddr) -> Result<Self> {
        let endpoint = |signal| format!("http://{receiver}/v1/{signal}");
        let spans = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint("traces"))
            .build()?;
        let metrics = opentelemetry_otlp::MetricExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint("metrics"))
            .build()?;
        Ok(Self {
            traces: Some(SdkTracerProvider::builder().with_sampler(sampler).with_batch_exporter(spans).build()),
            metrics: SdkMeterProvider::builder().with_periodic_exporter(metrics).build(),
        })
    }

    fn install(&self) {
        match &self.traces {
            Some(traces) => global::set_tracer_provider(traces.clone()),
            None => global::set_tracer_provider(NoopTracerProvider::new()),
        }
        global::set_meter_provider(self.metrics.clone());
    }

    fn shutdown(&self) {
        let traces = self.traces.as_ref().map_or(Ok(()), SdkTracerProvider::shutdown);
        for result in [traces, self.metrics.shutdown()] {
            if let Err(error) = result {
                eprintln!("telemetry did not shut down in order: {error}");
            }
        }
    }
}

/// Takes whatever is exported and answers that it was received.
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
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
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
