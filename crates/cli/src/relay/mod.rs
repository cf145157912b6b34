//! `rehop relay`: the library as a service for an HTTP endpoint.

mod answer;
mod client;
mod connections;
mod content;
mod endpoint;
mod explain;
mod missing;
mod request;
mod shortage;
mod target;
mod treatments;

use std::time::Duration;

use rehop::{Consumer, Raw, Settings, monitoring};
use rehop_operator::parked::Mask;

use super::options::{Options, Usage};
use super::{output, signals};
use answer::Treatments;
use client::Times;
use endpoint::Endpoint;
use explain::Explanations;
use request::Headers;
use target::Target;

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct Args {
    /// The queue to consume
    #[arg(long, value_name = "QUEUE")]
    queue: String,
    /// The http or https URL that each message is POSTed to
    ///
    /// User and password in it are sent as basic authentication. Of the URL, only scheme, host and
    /// port are ever logged. Use the variable to keep the rest off the command line, which other
    /// users of the machine can see.
    #[arg(long, value_name = "URL", env = "RELAY_TO", hide_env_values = true)]
    to: String,
    /// How many requests run at a time; at most the prefetch. Default: consume.concurrency, 10
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: Option<u16>,
    /// How many unsettled messages the broker sends at most. Default: consume.prefetch, 100
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    prefetch: Option<u16>,
    /// How long one request may take, such as 30s; up to 12h. Default: consume.handler_timeout if
    /// it is set, else 30s
    #[arg(long, value_name = "DURATION", value_parser = timeout)]
    timeout: Option<Duration>,
    /// Also send the message's own headers with these names, as rehop-header-<name>
    ///
    /// Separated by commas; may be repeated. * is any text, and case does not matter. Headers of
    /// rehop and of the broker are not among them.
    #[arg(long, hide_short_help = true, value_name = "NAMES", value_delimiter = ',')]
    header: Vec<String>,
    /// How many bytes of an answer's body become part of the error, up to 2000
    ///
    /// It is stored with the message, logged, and in spans. Values that mask.json in the settings
    /// names are masked. By default, only title and detail of a problem of RFC 9457 are said.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "BYTES",
        default_value_t = 0,
        value_parser = clap::value_parser!(u16).range(0..=2000)
    )]
    error_body: u16,
    /// How long a connection to the endpoint may be idle and still be used again; up to 1h, and 0s
    /// for never
    ///
    /// Keep it below the time after which the endpoint, or anything on the way to it, drops or
    /// forgets idle connections: several servers do so after 5s.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "DURATION",
        default_value = "4s",
        value_parser = idle_timeout
    )]
    idle_timeout: Duration,
    /// Serve /livez, /readyz and /metrics (Prometheus) over HTTP here, for instance 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<String>,
}

/// Lines have at most 80 columns, because clap would wrap longer ones and break the layout.
const HELP: &str = "\
The endpoint's answer decides what happens to the message:
  2xx                 handled: acked
  409, 423            contention: retried immediately while retry.immediate
                      lasts, then as in the next row, without Retry-After
  408, 425, 429, 5xx  transient: retried immediately while retry.immediate
  no answer in time,  lasts, then after each of retry.delays, then parked. A
  none that is HTTP,  Retry-After, in seconds or as a date, sets the earliest
  or no connection    time of the next attempt. If it exceeds eight times the
                      longest of retry.delays, or 30 days, the message is
                      parked; retry.after=ladder takes any delay up to 30 days
  any other status    permanent: parked now. Redirects are not followed, so
                      this includes 3xx
A failure's class, in the history of a parked message and in metrics, is its
status, such as http_503, or http_timeout, http_connect, http_connection if the
connection ended before the answer, or http_unreadable if the answer is not
HTTP. retry.errors overrides the table for a class: transient, requeue,
permanent, discard or defer. A class with defer and a Retry-After waits without
using up attempts or waits, retry.max_defers (100) times at most; without a
Retry-After it is transient. If the relay has no file descriptor for a
connection, requests wait for one; after --timeout the message is deferred, with
class no_file_descriptor.

The endpoint gets the unchanged body, the message's content_type as
Content-Type, the content codings of HTTP in its content_encoding, such as gzip,
as Content-Encoding, and these headers:
  rehop-queue         the queue
  rehop-exchange      the exchange that the message was published to; empty for
                      the default exchange
  rehop-routing-key   the routing key that it was published with
  rehop-message-id    its message_id, if it has one. It is the same on every
                      attempt, so use it to recognise duplicates
  rehop-correlation-id, rehop-reply-to, rehop-type, rehop-app-id, rehop-user-id
                      these properties of the message, if it has them
  rehop-header-<name> a header of the message that --header names
  rehop-attempt       the number of this attempt, from 1
  rehop-deadline      its deadline, if it has one, in milliseconds since the
                      epoch. After that it is parked as expired and not sent
  rehop-content-encoding
                      a content_encoding that says anything else, such as utf-8
                      or `gzip, utf-8`. A charset is also added to a
                      Content-Type that names none
  traceparent, tracestate, baggage
                      the W3C trace context of this attempt
In the rehop- headers %, spaces, control and non-ASCII characters are written as
%XX: percent-decode them. In <name> so is whatever no HTTP name can have, and
capitals are lost. Lists and tables are JSON. Content-Type and Content-Encoding
are encoded only where an HTTP header could not carry a character. Baggage and
trace state are the producer's, unchanged; if the endpoint answers 431, the
request is sent again without them.

The error of a failed attempt is the status, with title and detail if the body
is application/problem+json. --error-body adds other bodies.

A message may come more than once, for instance if an answer is lost. A
connection that was used before may have died since. If it fails before a byte
of an answer, the request is sent once more on a new connection, within the same
attempt and --timeout, and idle connections that may be dead as well are closed.
So is a request that was not processed: the endpoint says so (over HTTP/2, with
REFUSED_STREAM or GOAWAY), or its connection ended before it was sent. In one
attempt, each of the two reasons leads to this at most once.

Requests go directly to the endpoint: HTTP_PROXY and similar variables are not
used. Certificates of https endpoints are checked against the system's
certificate authorities, or against those in the file SSL_CERT_FILE.

Traces, metrics and logs go to an OpenTelemetry collector if a variable asks for
it: OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318, or any other
OTEL_EXPORTER_OTLP_... or OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER or
OTEL_LOGS_EXPORTER (otlp or none). OTEL_SERVICE_NAME names the service.

With --listen, /livez answers 200 while the process runs, /readyz answers 200
while the queue is consumed and copies can be published, else 503 with the
reasons, and /metrics has the metrics. There is neither TLS nor a login.

On SIGINT, SIGTERM, SIGQUIT or SIGHUP the relay takes no more messages, lets
running requests finish, prints a one-line summary and exits with 0, all within
shutdown.grace (30s), of which the last 2s are for closing. A second signal
stops it immediately, with status 130 (SIGINT), 131 (SIGQUIT) or 143 (SIGTERM).
SIGHUP never does: terminals that close send it several times. Under nohup it
changes nothing.

The log never holds up the relay: lines that nobody reads from standard error
are lost, and the log says how many.

The relay declares what the queue needs in the namespace of --namespace, or of
the settings; the default is `rehop`. Give each service its own. `rehop topology
show` lists what would be declared.

Examples:
  rehop relay --namespace billing --queue orders \\
    --to http://127.0.0.1:8080/orders

  rehop relay --namespace billing --queue orders \\
    --to http://127.0.0.1:8080/orders --concurrency 50 --timeout 5s \\
    --set retry.delays='[1s, 30s, 10m]' \\
    --set retry.errors='{http_404=transient}'

  export RELAY_TO='https://user:password@api.example.com/orders'
  rehop relay --queue orders --profile production";

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_TIMEOUT: Duration = Duration::from_secs(12 * 60 * 60);
/// How much longer than the request the handler may take, so that the request's own timeout, which
/// says more, comes first.
const MARGIN: Duration = Duration::from_secs(5);

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<()> {
    let mut settings = options.settings()?;
    let timeout = settle_timeout(&mut settings, &args);
    let consume = &mut settings.queue_mut(&args.queue).consume;
    consume.concurrency = args.concurrency.or(consume.concurrency);
    consume.prefetch = args.prefetch.or(consume.prefetch);
    let policy = settings.policy(&args.queue)?;
    let treatments = Treatments::of(&settings, &args.queue);
    for class in treatments.mistyped() {
        tracing::warn!(
            "retry.errors has the class {class:?}, which the relay never reports; --help lists its classes"
        );
    }
    let times = Times { timeout, idle: args.idle_timeout };
    let explanations =
        Explanations { mask: Mask::new(&settings.mask)?, other: args.error_body.into() };
    let headers = Headers {
        queue: args.queue.clone(),
        producers: args.header.iter().map(|name| name.trim().to_lowercase()).collect(),
    };
    let target = Target::parse(&args.to)?;
    let endpoint = Endpoint::new(target, headers, times, (treatments, explanations))?;
    tracing::info!(
        "relaying queue {:?} to {}: at most {} attempts per message by policy, and {} deliveries with crashes; up to {} per \
         request",
        args.queue,
        endpoint.target.shown,
        policy.max_attempts(),
        policy.max_deliveries(),
        humantime::format_duration(timeout),
    );
    let monitoring = match &args.listen {
        Some(address) => Some(monitoring::listen(address).await?),
        None => None,
    };
    let stop = signals::watch()?;
    let service = rehop::Service::new(&settings)
        .with_consumer(Consumer::new(args.queue, endpoint).decode(Raw))
        .with_graceful_shutdown(stop.cancelled_owned());
    if let Some(monitoring) = &monitoring {
        tracing::info!("serving /livez, /readyz and /metrics on http://{}", monitoring.address());
        monitoring.watch(service.status());
    }
    let summary = service.await?;
    output::print_at_end(summary.to_string());
    Ok(())
}

/// Sets the handler's time limit to leave room for the request's, and returns the latter.
fn settle_timeout(settings: &mut Settings, args: &Args) -> Duration {
    let wide = settings.consume.handler_timeout;
    let consume = &mut settings.queue_mut(&args.queue).consume;
    let timeout = args
        .timeout
        .or(consume.handler_timeout)
        .or(wide)
        .unwrap_or(DEFAULT_TIMEOUT)
        .min(MAX_TIMEOUT);
    consume.handler_timeout = Some(timeout + MARGIN);
    timeout
}

fn timeout(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a duration from 1ms to 12h, such as 30s".to_owned();
    let timeout = humantime::parse_duration(text).map_err(|_| wrong())?;
    if (Duration::from_millis(1)..=MAX_TIMEOUT).contains(&timeout) {
        Ok(timeout)
    } else {
        Err(wrong())
    }
}

fn idle_timeout(text: &str) -> Result<Duration, String> {
    const MAX: Duration = Duration::from_secs(60 * 60);
    humantime::parse_duration(text)
        .ok()
        .filter(|idle| *idle <= MAX)
        .ok_or_else(|| "expected a duration up to 1h, such as 4s, or 0s".to_owned())
}
