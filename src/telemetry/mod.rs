//! One trace per message, and metrics.
//!
//! The library uses only OpenTelemetry's API, through the global tracer and meter. Set them up before
//! [`connect`](crate::connect), with [`init`] or yourself. Without this nothing is recorded, but trace context is still passed on.
//!
//! # Set-up
//!
//! With the feature `otlp` a service needs a few lines:
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
//! A service that has its own `tracing` subscriber adds a layer to it:
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
//! | `OTEL_EXPORTER_OTLP_ENDPOINT`, `_HEADERS`, `_TIMEOUT` (ms, default 10000), `_COMPRESSION` (`gzip`) | the collector's address, and how to talk to it. Default: `http://localhost:4318`, for gRPC 4317 |
//! | `OTEL_EXPORTER_OTLP_PROTOCOL` | `http/protobuf` (default) or `grpc` |
//! | `OTEL_EXPORTER_OTLP_CERTIFICATE`, `_CLIENT_CERTIFICATE`, `_CLIENT_KEY` | PEM files for TLS; `https` endpoints need a feature `tls-ring` or `tls-aws-lc` |
//! | `OTEL_EXPORTER_OTLP_TRACES_*`, `_METRICS_*`, `_LOGS_*` | any of the above for one signal; such an endpoint is used as it is |
//! | `OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER`, `OTEL_LOGS_EXPORTER` | `otlp` (default) or `none` |
//! | `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` | the service's identity. Set without them: `service.instance.id`, `host.name`, `process.pid`, and `service.version` if the [builder](Builder::service_version) has it. A service with a provider of its own takes them from [`resource`] |
//! | `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG` | what is sampled. Default: `parentbased_always_on` |
//! | `OTEL_BSP_*`, `OTEL_BLRP_*`, `OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_SPAN_*_COUNT_LIMIT` | buffer sizes and limits |
//! | `OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE` | default: cumulative |
//! | `OTEL_PROPAGATORS` | the propagators that handlers get from OpenTelemetry: `tracecontext`, `baggage`, `none` |
//! | `OTEL_SDK_DISABLED` | `true`: nothing is recorded |
//! | `RUST_LOG` | which spans and events are recorded. Default: `info,lapin=error`; lapin's warnings print bodies |
//!
//! A collector that is unreachable does not slow the consumer down. The buffers are bounded, and what does not fit is dropped.
//! There is one warning, and one line when the collector is back. Events from the exporters and their clients are never exported.
//!
//! # A chain in a trace
//!
//! The trace is flat: every attempt and every wait is a child of the producer's context.
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
//! - Without a producer's context the first attempt is the root, and the first hop stores its context. A requeue cannot change
//!   headers, so attempts before that hop have traces of their own, with the same `rehop.chain_id` if the message has an id.
//! - An attempt links to the previous one if that is known: after a wait, but not after a requeue.
//! - A chain older than `trace.max_age` continues in a new trace, which links to the old one's origin and to the last attempt.
//! - [`Publisher`](crate::Publisher) writes the producer's span; other producers bring their own.
//! - A parked message keeps its context, also if an operator replays or edits it. The operator's span, `replay <queue>` or `edit <queue>`
//!   (PRODUCER, from sending until the confirm), is in a trace of its own and links to the message's.
//! - An attempt that was aborted, or whose process died, has no outcome or no span. The next attempt's number shows the gap.
//!
//! | attribute | on | meaning |
//! |---|---|---|
//! | `rehop.chain_id` | all | the same on every span of a chain |
//! | `rehop.max_attempts` | all of a service | the most attempts that the policy allows |
//! | `rehop.attempt`, `rehop.hop` | process; `hop` on wait too | the number of the attempt from 1, and of the waits before it |
//! | `rehop.outcome` | process | `ack`, `requeue`, `wait`, `park`, `discard` |
//! | `rehop.reason` | process, if parked or discarded | see [`Reason`](crate::Reason) |
//! | `rehop.final` | process, if failed | whether this was the last attempt |
//! | `rehop.defer` | process | true if the handler deferred the message; it is no failure then |
//! | `rehop.legs` | wait, on the ladder | how many wait queues the message went through |
//! | `rehop.delay_ms` | process and wait | the planned duration of the wait |
//! | `rehop.lateness_ms` | wait | how much longer it took |
//! | `rehop.clock_skew` | wait | true if it would have ended before it began |
//! | `rehop.replay_run` | replay, edit | names the operation, as the log and the header `rehop-replay-run` do |
//! | `error.type` | each that failed | the failure's class; `expired`, `channel_closed`, `timeout`, `unpublishable`, `unconfirmed` |
//! | `messaging.*`, `server.*` | all; `server.*` of a service | as the semantic conventions 1.44.0 have it; `messaging.destination.template` is the work queue |
//!
//! A message that waits in its queue (`retry.strategy = "native"`) has no `wait` span and no lateness, because no copy carries when it began to
//! wait; its attempt ends with the outcome `wait`, and its settlement is a `nack`. One that waits in the process has a span `wait <queue>`.
//!
//! Bodies and headers are never recorded. The text of a failure is the status of its attempt, truncated to 1,024 bytes.
//!
//! # Metrics
//!
//! | name | unit, kind | attributes | meaning |
//! |---|---|---|---|
//! | `messaging.client.consumed.messages` | counter | queue, system, operation | deliveries received |
//! | `messaging.client.sent.messages` | counter | the wait or parked queue, or the exchange `<ns>.ladder` or `<ns>.delay`, system, operation, error | copies sent; for the operation `publish`, calls of [`Publisher::publish`](crate::Publisher::publish), by exchange, or by queue if it is the default exchange |
//! | `messaging.client.operation.duration` | s, histogram | as sent; for `ack`, `reject` and `nack` the work queue | sending a copy or publishing, until the confirm, or settling |
//! | `messaging.process.duration` | s, histogram | queue, system, operation, error | one run of a handler |
//! | `rehop.settled` | counter | queue, `rehop.outcome`; `rehop.defer` if the handler deferred it | what happened to deliveries |
//! | `rehop.parked` | counter | queue, `rehop.reason` | messages that rehop parked, or rejected so that the broker parks them without a copy; not those that the broker parks at the delivery limit |
//! | `rehop.parked.moved` | counter | `rehop.operation`; `rehop.parked_queue`: where they rested, or for `import` and `restore` where they came to rest; the work queue, if they are its parked messages | messages at rest that operators moved, with the tool, the page or `rehop_operator::parked`, counted when the copy is confirmed: `replay`, `discard`, `restore`, `edit` or `import` |
//! | `rehop.replayed` | counter | queue, `rehop.outcome` | replayed messages whose chain ended, counted by their consumer: `ack` is success |
//! | `rehop.wait.lateness` | s, histogram | queue | how much later than due a message returned |
//! | `rehop.chain.duration` | s, histogram | queue, `rehop.outcome` | to the end, from the delivery before the first wait; with `in-process`, from the first delivery since a crash; with `native`, from the last delivery |
//! | `rehop.chain.attempts` | histogram | queue, `rehop.outcome` | attempts of a finished chain |
//! | `rehop.publish.retries` | counter | the exchange | copies that had to be sent again |
//! | `rehop.in_flight` | up-down counter | queue | deliveries that this process holds |
//! | `rehop.consuming` | gauge | queue | 1 while this process consumes the queue, else 0 |
//! | `rehop.parked.depth` | gauge | queue, `rehop.parked_queue` | depth of the parked queue, every 15 s |
//! | `rehop.stray` | gauge | `rehop.namespace` | depth of the stray queue, every 15 s |
//!
//! Queues and exchanges are in `messaging.destination.template`. `error.type` is absent on success. Each queue distinguishes 50
//! classes, and each `Publisher` 50 destinations; the rest is reported as `_OTHER`. There are no ids, and no routing keys but
//! the names of queues.

pub(crate) mod chain;
pub(crate) mod flush;
pub(crate) mod ids;
pub(crate) mod metrics;
#[allow(missing_docs, reason = "no part of the API, although `internals` shares it")]
pub(crate) mod names;
#[cfg(feature = "otlp")]
mod otlp;
pub(crate) mod producer;
#[cfg(feature = "monitoring")]
pub(crate) mod prometheus;
pub(crate) mod propagation;
mod recorded;
pub(crate) mod rested;
pub(crate) mod spans;
pub(crate) mod values;

pub use flush::flush_with;
#[cfg(feature = "otlp")]
pub use otlp::{Builder, ChainIds, FlushError, InitError, Telemetry, builder, init, resource};
pub use propagation::current_headers;
