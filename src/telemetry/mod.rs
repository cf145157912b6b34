//! One trace per message, and metrics.
//!
//! The library speaks to OpenTelemetry's API alone, through the global tracer and meter: set them up before
//! [`connect`](crate::connect), by [`init`] or by hand. Without any set-up nothing is recorded, and trace context still travels.
//!
//! # Set-up
//!
//! With the feature `otlp`, three lines in a service:
//!
//! ```no_run
//! # #[cfg(feature = "otlp")]
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let telemetry = rehop::telemetry::init("orders")?;
//! // connect, consume, stop
//! if let Err(error) = telemetry.shutdown().await {
//!     eprintln!("{error}");
//! }
//! # Ok(()) }
//! ```
//!
//! A service with a `tracing` subscriber of its own adds a layer to it:
//!
//! ```no_run
//! # #[cfg(feature = "otlp")]
//! # fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use tracing_subscriber::layer::SubscriberExt;
//! use tracing_subscriber::util::SubscriberInitExt;
//!
//! let telemetry = rehop::telemetry::builder("orders").without_subscriber().init()?;
//! tracing_subscriber::registry()
//!     .with(telemetry.layer())
//!     .with(tracing_subscriber::fmt::layer())
//!     .with(tracing_subscriber::EnvFilter::new("info,lapin=error,opentelemetry=off"))
//!     .init();
//! # Ok(()) }
//! ```
//!
//! | variables | effect |
//! |---|---|
//! | `OTEL_EXPORTER_OTLP_ENDPOINT`, `_HEADERS`, `_TIMEOUT` (ms, default 10000), `_COMPRESSION` (`gzip`) | where the collector is, and how it is spoken to. Default: `http://localhost:4318`, for gRPC 4317 |
//! | `OTEL_EXPORTER_OTLP_PROTOCOL` | `http/protobuf` (default) or `grpc` |
//! | `OTEL_EXPORTER_OTLP_CERTIFICATE`, `_CLIENT_CERTIFICATE`, `_CLIENT_KEY` | PEM files for TLS; `https` endpoints need a feature `tls-ring` or `tls-aws-lc` |
//! | `OTEL_EXPORTER_OTLP_TRACES_*`, `_METRICS_*`, `_LOGS_*` | any of the above for one signal; an endpoint is taken as it is then |
//! | `OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER`, `OTEL_LOGS_EXPORTER` | `otlp` (default) or `none` |
//! | `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` | who this is; `service.instance.id` is made up where it is missing |
//! | `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG` | what is sampled. Default: `parentbased_always_on` |
//! | `OTEL_BSP_*`, `OTEL_BLRP_*`, `OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_SPAN_*_COUNT_LIMIT` | the buffers and their bounds |
//! | `OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE` | default: cumulative |
//! | `OTEL_PROPAGATORS` | for what handlers call through OpenTelemetry's own propagators: `tracecontext`, `baggage`, `none` |
//! | `OTEL_SDK_DISABLED` | `true`: nothing is recorded |
//! | `RUST_LOG` | which spans and events there are. Default: `info,lapin=error`; lapin's warnings print bodies |
//!
//! A collector that is away costs the consumer nothing: the buffers are bounded, what they cannot hold is dropped, and there is
//! one warning, and one line when it is back. Events of the exporters and their clients are never exported themselves.
//!
//! # A chain in a trace
//!
//! Flat: every attempt and every wait is a child of the context that the producer gave.
//!
//! ```text
//! publish orders:order.created           PRODUCER   the producer's own span
//! ├─ process orders      attempt 1       CONSUMER   error.type, rehop.outcome=requeue
//! │   ├─ (the handler's own spans)
//! │   └─ reject orders                   CLIENT
//! ├─ process orders      attempt 2       CONSUMER   rehop.outcome=wait, rehop.delay_ms=10000
//! │   ├─ send shop.wait.10000            CLIENT     link: the producer's span
//! │   └─ ack orders                      CLIENT
//! ├─ wait shop.wait.10000                INTERNAL   from when it was sent until it was received
//! └─ process orders      attempt 3       CONSUMER   link: attempt 2; rehop.outcome=ack
//!     └─ ack orders                      CLIENT
//! ```
//!
//! - Without a producer's context the first attempt is the root, and the first hop writes its context down. A requeue cannot
//!   change headers, so attempts before that hop are traces of their own, with one `rehop.chain_id` if the message has an id.
//! - An attempt links to the one before where that is known: after a wait, not after a requeue.
//! - A chain older than `trace.max_age` goes on in a new trace, which links to the old one's origin and to the last attempt.
//! - A parked message carries its context on.
//! - An attempt that ended with its process or was aborted has no outcome, or no span; the next attempt's number shows the gap.
//!
//! | attribute | on | meaning |
//! |---|---|---|
//! | `rehop.chain_id` | all | the same on every span of a chain |
//! | `rehop.max_attempts` | all | the most attempts that the policy allows |
//! | `rehop.attempt`, `rehop.hop` | process; `hop` on wait too | the number of the attempt from 1, and of the waits before it |
//! | `rehop.outcome` | process | `ack`, `requeue`, `wait`, `park`, `discard` |
//! | `rehop.reason` | process, if parked or discarded | see [`Reason`](crate::Reason) |
//! | `rehop.final` | process, if failed | whether this was the last attempt |
//! | `rehop.delay_ms` | process and wait | how long the wait was to take |
//! | `rehop.lateness_ms` | wait | how much longer it took |
//! | `rehop.clock_skew` | wait | true if it would have ended before it began |
//! | `error.type` | each that failed | the failure's class; `expired`, `channel_closed`, `unpublishable` |
//! | `messaging.*`, `server.*` | all | as the semantic conventions 1.44.0 have it; `messaging.destination.template` is the work queue |
//!
//! Bodies and headers are never recorded. The text of a failure is the status of its attempt, cut at 1,024 bytes.
//!
//! # Metrics
//!
//! | name | unit, kind | attributes | meaning |
//! |---|---|---|---|
//! | `messaging.client.consumed.messages` | counter | queue, system, operation | deliveries received |
//! | `messaging.client.sent.messages` | counter | the wait or parked queue, system, operation, error | copies sent |
//! | `messaging.client.operation.duration` | s, histogram | as sent; for `ack` and `reject` the work queue | sending a copy until it is confirmed, or settling |
//! | `messaging.process.duration` | s, histogram | queue, system, operation, error | one run of a handler |
//! | `rehop.settled` | counter | queue, `rehop.outcome` | what became of deliveries |
//! | `rehop.parked` | counter | queue, `rehop.reason` | messages parked by rehop, not by the broker |
//! | `rehop.wait.lateness` | s, histogram | queue | how much later than due a message came home |
//! | `rehop.chain.duration` | s, histogram | queue, `rehop.outcome` | from the first delivery to the end |
//! | `rehop.chain.attempts` | histogram | queue, `rehop.outcome` | attempts of a chain that ended |
//! | `rehop.publish.retries` | counter | the exchange | copies that had to be sent again |
//! | `rehop.in_flight` | up-down counter | queue | deliveries in this process's hands |
//! | `rehop.stray` | gauge | `rehop.namespace` | depth of the stray queue, every 15 s |
//!
//! Queues and exchanges are in `messaging.destination.template`. `error.type` is absent on success; each queue tells 50 classes
//! apart, and calls the rest `_OTHER`. There are no ids and no routing keys.

pub(crate) mod metrics;
pub(crate) mod names;
#[cfg(feature = "otlp")]
mod otlp;
pub(crate) mod propagation;
pub(crate) mod spans;

#[cfg(feature = "otlp")]
pub use otlp::{Builder, FlushError, InitError, Telemetry, builder, init};
pub use propagation::current_headers;
