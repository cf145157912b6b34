//! The process's metrics as Prometheus reads them.

use std::sync::LazyLock;

use opentelemetry::global;
use opentelemetry_prometheus::PrometheusExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::{Registry, TextEncoder};

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::new);

/// Reads the metrics of one meter provider for [`text`]. A process has one; a second is an error.
pub(crate) fn reader() -> Result<PrometheusExporter, OTelSdkError> {
    opentelemetry_prometheus::exporter()
        .with_registry(REGISTRY.clone())
        .scope_info_enabled(false)
        .build()
}

/// Makes a meter provider for [`text`] alone the process's own.
pub(crate) fn install(service: &str) -> Result<(), OTelSdkError> {
    let resource = Resource::builder().with_service_name(service.to_owned()).build();
    global::set_meter_provider(
        SdkMeterProvider::builder().with_resource(resource).with_reader(reader()?).build(),
    );
    Ok(())
}

/// The metrics now, in Prometheus' text format.
pub(crate) fn text() -> Result<String, prometheus::Error> {
    TextEncoder::new().encode_to_string(&REGISTRY.gather())
}
