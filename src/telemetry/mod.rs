//! One trace per message, and metrics.
//!
//! The library uses only OpenTelemetry's API, through the global tracer and meter. Set them up
//! before a [`Service`](crate::Service) starts, with [`init`] or yourself. Without this nothing is
//! recorded, but trace context is still passed on.
//!
//! # Set-up
//!
//! With the feature `otlp` a service needs a few lines:
//!
//! ```no_run
//! # #[cfg(feature = "otlp")]
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let telemetry = rehop::telemetry::init("orders")?;
//!  // run the service
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
//!     .with(tracing_subscriber::EnvFilter::new("info,lapin=off,opentelemetry=off"))
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
//! | `OTEL_BSP_*`, `OTEL_BLRP_*`, `OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_SPAN_*_COUNT_LIMIT` | buffer sizes and limits. Spans are exported after `OTEL_BSP_SCHEDULE_DELAY`, by default 1000 ms and not the SDK's 5000: what a killed process has not exported is lost, also of other messages |
//! | `OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE` | default: cumulative |
//! | `OTEL_PROPAGATORS` | the propagators that handlers get from OpenTelemetry: `tracecontext`, `baggage`, `none` |
//! | `OTEL_SDK_DISABLED` | `true`: nothing is recorded |
//! | `RUST_LOG` | which spans and events of the crate `tracing` are recorded. Default: `info,lapin=off`, because rehop reports lapin's errors, and lapin's warnings print bodies |
//!
//! A collector that is unreachable does not slow the consumer down. The buffers are bounded, and
//! what does not fit is dropped. There is one warning, and one line when the collector is back.
//! Events from the exporters and their clients are never exported.
//!
//! # A chain in a trace
//!
//! The first attempt is a child of the producer's context. A wait has no parent, and the attempts
//! after it are below it. Nor has a further attempt before the first wait. So the depth stays the
//! same however long the chain is, and no clock of another host is compared with theirs. What has
//! no parent links to the producer's span, so that Jaeger shows it below that, and names the trace
//! after its first span.
//!
//! ```text
//! publish orders:order.created           PRODUCER   the producer's own span
//! └─ process orders #1                   CONSUMER   error.type, rehop.outcome=requeue
//!     └─ (the handler's own spans)
//! process orders #2                      CONSUMER   rehop.outcome=wait, rehop.until=...; link: the producer's span
//! └─ waits 10s                           CLIENT     the copy is sent; link: the producer's span
//! wait 10s, then orders                  INTERNAL   from when its copy was confirmed until it was received; link: the producer's span
//! └─ process orders #3                   CONSUMER   link: attempt 2; rehop.outcome=park, rehop.end=parked
//!     └─ park orders: exhausted          CLIENT     the copy is sent; link: the producer's span
//! parked until the replay: orders        INTERNAL   until an operator sent it back; link: the span of the run
//! process orders #1 after the replay     CONSUMER   link: the rest in the parked queue; killed its process, so it is missing
//! died? orders #1                        CLIENT     rehop.unanswered=1
//! └─ process orders: handled             CONSUMER   attempt 2; rehop.outcome=ack, rehop.end=handled
//! ```
//!
//! | span | kind | stands for |
//! |---|---|---|
//! | `process <queue> #<n>` | consumer | an attempt that failed or has not finished; from the tenth on `#10+` |
//! | `process <queue>: handled`, `: discarded`, `: discarded, <reason>` | consumer | the attempt that ended the chain so |
//! | `process <queue>: expired`, `: the wait goes on` | consumer | a delivery whose handler was not called |
//! | `waits <delay>` | client | the message begins to wait: its copy, until the confirm, or with `native` its nack. With `in-process` nothing is sent: see the attempt's event `waits` |
//! | `wait <delay>, then <queue>` | internal | a wait that is over |
//! | `park <queue>: <reason>` | client | the copy to the parked queue, until the confirm, or a reject that does the same |
//! | `ack`, `reject`, `nack <queue>` | client | a settlement that failed. Others have no span: the attempt's outcome tells |
//! | `died? <queue> #<n>` | client | the next delivery of a message that may have killed its process in attempt n; ends with `, parked unless answered` if the broker delivers it for the last time |
//! | `parked until the replay: <queue>` | internal | the time a message spent in the parked queue before an operator sent it back. Also `stray` or `discarded`, by where it was; and `until the edit`, `the discard` or `the restore`. Each run names 50 queues; the rest is `_OTHER` |
//! | `replay`, `edit`, `discard`, `restore <the queue they rested in>` | internal | an operator's run |
//!
//! A delay is named if the policy has no more than eight and this is one of them; otherwise the
//! name says `less than a second`, `seconds`, `minutes`, `hours` or `days`.
//!
//! - Without a producer's context the trace is computed from the queue and the message's
//!   `message_id` and `timestamp`, so that all attempts are in it, whichever process makes them. A
//!   message without an id has a trace for each attempt until the first hop stores its context: a
//!   requeue cannot change headers.
//! - An attempt links to the previous one if that is known: after a wait, but not after a requeue.
//!   An attempt after a requeue is below the wait before it in the process that recorded the wait;
//!   in another one it has no parent.
//! - A delivery that may have killed its process (it came back, and no handler of this process gave
//!   it back) begins with a span `died?`. It is exported before the
//!   handler starts, for which the message waits 500 ms at most, unless another one is being
//!   exported. Its status is an error, so that tail sampling keeps the chain.
//! - Spans without a parent need an id generator that puts them into the chain's trace. [`init`]
//!   has it, and a provider of your own gets [`ChainIds`]. Without it, a wait, and an attempt in a
//!   process that has not recorded the wait before it, are children of the producer's span, which
//!   Jaeger may doubt and move if the producer is on another host; and a message without a context
//!   has a trace for each attempt until its first wait. [`flush_with`] exports the spans of such a
//!   provider before a death; without it they are exported as usual.
//! - A chain older than `trace.max_age` continues in a new trace, which links to the old one's
//!   origin and to the last attempt.
//! - [`Publisher`](crate::Publisher) writes the producer's span; other producers bring their own.
//! - A parked message keeps its context, also if an operator replays, edits, discards or restores
//!   it. The time that it rested is a span of its trace, which says who moved it, and why. It links
//!   to the run, such as `replay <parked queue>`: a trace with one span, with the selection and how
//!   many messages were sent, handled and parked again. If the chain is older than `trace.max_age`
//!   by then, its next attempt is in a new trace, with a link to it. A discard and a restore leave
//!   the message's headers as they are, so what follows has no link to their spans.
//! - An attempt that was aborted, or whose process died, has no outcome or no span. The next
//!   attempt's number shows the gap: it counts each delivery to a process that died, even if its
//!   handler had not started.
//! - No span ends before it begins, or as it begins, whatever the clocks say: a wait that would is
//!   marked with `rehop.clock_skew`, and has a length of 1 µs.
//!
//! | attribute | on | meaning |
//! |---|---|---|
//! | `rehop.chain_id` | all but publish and an operator's run | the same on every span of a chain; of one without a trace context and a `message_id` only from its first copy on, and different on each attempt before |
//! | `rehop.end` | process and died?, if they end the chain; `until the ...` | how it ended: `handled`, `parked` (by rehop or the broker) or `discarded` (by its consumer); on the rest of a message, as what it rested, `parked`, `stray` or `discarded`, but after a discard `discarded`. On the last delivery that the broker makes, `parked`: it is, unless this delivery is answered |
//! | `rehop.was_parked` | as `rehop.end`, except on the rest of a discarded message | whether the message came to the parked queue; a search for `false` finds all that ended in another way |
//! | `rehop.max_attempts` | all of a consumer | the most attempts that the policy allows |
//! | `rehop.attempt`, `rehop.hop` | process, died?; `hop` on wait too | the number of the attempt from 1, with deliveries that ended in a crash, and of the waits before it |
//! | `rehop.unanswered` | died? | how many deliveries since the last wait this process has not answered: their process died or lost its connection, or another process gave them back |
//! | `rehop.delivery_limit`, `rehop.last_delivery` | died? | how often the broker delivers the message again; true if it parks the message unless this delivery is answered |
//! | `rehop.outcome` | process | `ack`, `requeue`, `wait`, `park`, `discard` |
//! | `rehop.reason` | process, if parked or discarded; `until the ...` | see [`Reason`](crate::Reason); on the rest of a message also the broker's own, such as `delivery_limit` |
//! | `rehop.final` | process, if failed | whether this was the last attempt |
//! | `rehop.defer` | process | true if the handler deferred the message; it is no failure then |
//! | `rehop.legs` | wait, on the ladder | how many wait queues the message went through |
//! | `rehop.delay_ms` | process and wait | the planned duration of the wait |
//! | `rehop.until` | process and its event `waits`, waits | when the wait is over, as planned |
//! | `rehop.lateness_ms` | wait | how much longer it took |
//! | `rehop.clock_skew` | wait | true if it would have ended before it began |
//! | `rehop.replay_run` | `until the ...`, an operator's run | names the operation, as the log and the header `rehop-replay-run` do |
//! | `rehop.operation`, `rehop.parked_queue` | the same | what the operator does, and where the messages rested |
//! | `rehop.operator`, `rehop.why` | the same | who does it, by default the user of the process, and why; at most 1,024 bytes each |
//! | `rehop.selection` | an operator's run | which messages were meant, without what they contain |
//! | `rehop.matched`, `.sent`, `.stayed` | an operator's run; an edit without `stayed` | how many messages were selected, were sent or moved, and could not be |
//! | `rehop.handled`, `.parked_again`, `.unknown` | replay | what is known to have become of those that were sent |
//! | `rehop.stopped` | replay, discard and restore, if stopped | why it ended before everything was moved |
//! | `error.type` | each that failed | the failure's class, truncated to 128 bytes, as in metrics; `expired`, `channel_closed`, `timeout`, `unpublishable`, `stopped`, `unconfirmed`, `unanswered`, `cancelled`; `failed` on an operator's run |
//! | `messaging.message.id` | all about one message that has one | |
//! | other `messaging.*`, `server.*` | all; `server.*` of a service or publisher with one address | as the semantic conventions 1.44.0 have it; `messaging.destination.template` is the work queue |
//!
//! A message that waits in its queue (`retry.strategy = "native"`) has no `wait` span and no
//! lateness, because no copy carries when it began to wait; its attempt ends with the outcome
//! `wait`.
//!
//! A handler runs inside a span of the crate `tracing` as well, `handle`, with the fields `queue`,
//! `chain` and `attempt`: a service's own log lines show them. Its target is `rehop::handler`, and
//! its level is `ERROR`, so a filter by level keeps it. A filter that names only other targets
//! needs `rehop::handler=error`. [`init`] does not export it, because the attempt's span is there
//! already; a layer of your own does, unless it filters the target out.
//!
//! Bodies and headers are never recorded. What an operator writes is, so it should not quote a
//! body. The text of a failure is the status of its attempt, truncated to 1,024 bytes.
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
//! Queues and exchanges are in `messaging.destination.template`. `error.type` is absent on success.
//! Each queue distinguishes 50 classes, and each `Publisher` 50 destinations; the rest is reported
//! as `_OTHER`. There are no ids, and no routing keys but the names of queues.

pub(crate) mod chain;
#[cfg(all(test, feature = "otlp"))]
mod clocks;
pub(crate) mod flush;
pub(crate) mod handler_span;
pub(crate) mod ids;
#[cfg(all(test, feature = "otlp"))]
mod jaeger;
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
#[cfg(all(test, feature = "otlp"))]
mod rows;
#[cfg(all(test, feature = "otlp"))]
mod scenes;
pub(crate) mod spans;
#[cfg(all(test, feature = "otlp"))]
mod tests;
mod titles;
#[allow(missing_docs, reason = "no part of the API, although `internals` shares it")]
pub(crate) mod unrecorded;
pub(crate) mod values;

pub use flush::flush_with;
#[cfg(feature = "otlp")]
pub use otlp::{Builder, ChainIds, FlushError, InitError, Telemetry, builder, init, resource};
pub use propagation::current_headers;
