//! `rehop relay`: the library as a service for an HTTP endpoint.

mod answer;
mod endpoint;
mod request;

use std::time::Duration;

use rehop::{Raw, Settings};

use super::options::{Options, Usage};
use super::{output, signals};
use endpoint::Endpoint;

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct Args {
    /// The queue to consume
    #[arg(long, value_name = "QUEUE")]
    queue: String,
    /// The http or https URL that each message is POSTed to
    ///
    /// User and password in it are sent as basic authentication. They and the query are never logged; the variable keeps them
    /// off the command line, which other users of the machine can see.
    #[arg(long, value_name = "URL", env = "RELAY_TO", hide_env_values = true)]
    to: String,
    /// How many requests run at a time; at most the prefetch. Default: consume.concurrency, 10
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: Option<u16>,
    /// How many messages the broker sends ahead. Default: consume.prefetch, 100
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    prefetch: Option<u16>,
    /// How long one request may take, such as 30s; up to 12h. Default: consume.handler_timeout where it is set, else 30s
    #[arg(long, value_name = "DURATION", value_parser = timeout)]
    timeout: Option<Duration>,
}

/// Lines of at most 80 columns: clap would wrap longer ones out of shape.
const HELP: &str = "\
What the endpoint answers decides:
  2xx                 handled: the message is acked
  409, 423            contention: the message goes back to the queue for another
                      attempt at once, while retry.immediate lasts, then as next
  408, 425, 429, 5xx  tried again: at once while retry.immediate lasts, then
  no answer in time   after each of retry.delays, then parked. Retry-After, in
  no connection       seconds or as a date, is honoured: no attempt is earlier.
                      One of over 30 days parks the message
  any other status    it will never work: parked now. Redirects are not
                      followed, so 3xx is among these
A failure's class, in the history of a parked message and in metrics, is its
status as in http_503, or http_timeout, http_connect, or http_connection when
the connection ended before the answer.

What the endpoint gets: the body as it is, Content-Type and Content-Encoding as
the message has them, and these headers:
  rehop-queue         the queue
  rehop-exchange      the exchange that the message was published to; empty for
                      the default exchange
  rehop-routing-key   the routing key that it was published with
  rehop-message-id    its message_id, if it has one: the same on every attempt,
                      so duplicates can be recognised by it
  rehop-attempt       the number of this attempt, from 1
  rehop-deadline      its deadline, if it has one, in milliseconds since the
                      epoch; past it a message is parked as expired, not sent
  traceparent, tracestate, baggage
                      the W3C trace context of this attempt
In the rehop- headers %, spaces, control and non-ASCII characters are written as
%XX: percent-decode them. In Content-Type and Content-Encoding only what no HTTP
header can carry is.

A message may come more than once, for instance when an answer is lost.

Requests go straight to the endpoint: HTTP_PROXY and similar variables are not
used. Certificates of https endpoints are checked against the system's
authorities, or those that SSL_CERT_FILE names.

Traces, metrics and logs go to an OpenTelemetry collector when a variable asks
for it: OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318, or any other
OTEL_EXPORTER_OTLP_... or OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER or
OTEL_LOGS_EXPORTER (otlp or none). OTEL_SERVICE_NAME names the service.

SIGINT or SIGTERM: nothing more is taken, running requests have shutdown.grace
(30s) to finish, a one-line summary is printed, and the exit status is 0. A
second signal stops at once, with status 130 (SIGINT) or 143 (SIGTERM).

What the queue needs is declared in the broker, under the namespace `rehop`:
give each service its own with --set namespace=NAME. `rehop topology show` lists
what it is.

Examples:
  rehop relay --queue orders --to http://127.0.0.1:8080/orders

  rehop relay --queue orders --to http://127.0.0.1:8080/orders \\
    --concurrency 50 --timeout 5s \\
    --set retry.delays='[1s, 30s, 10m]' --set namespace=billing

  export RELAY_TO='https://user:password@api.example.com/orders'
  rehop relay --queue orders --profile production";

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_TIMEOUT: Duration = Duration::from_secs(12 * 60 * 60);
/// By how much a handler may outlive its request: the request's own limit says more about what happened.
const MARGIN: Duration = Duration::from_secs(5);

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<()> {
    let mut settings = options.loader()?.load()?;
    let timeout = settle_timeout(&mut settings, &args);
    let consume = &mut settings.queue_mut(&args.queue).consume;
    consume.concurrency = args.concurrency.or(consume.concurrency);
    consume.prefetch = args.prefetch.or(consume.prefetch);
    let policy = settings.policy(&args.queue)?;
    let endpoint = Endpoint::new(&args.to, &args.queue, timeout)?;
    tracing::info!(
        "relaying queue {:?} to {}: at most {} attempts per message by policy, and {} deliveries with crashes; up to {} per \
         request",
        args.queue,
        endpoint.masked(),
        policy.max_attempts(),
        policy.max_deliveries(),
        humantime::format_duration(timeout),
    );
    let stop = signals::watch()?;
    let service = tokio::select! {
        connected = rehop::connect(&settings) => connected?,
        () = stop.cancelled() => return output::print("stopped in order: the broker was not reached yet"),
    };
    let summary =
        service.consumer_with(args.queue, Raw, endpoint).with_graceful_shutdown(stop.cancelled_owned()).await?;
    output::print(&summary.to_string())
}

/// The time limit of a request, which the handler's has to leave room for.
fn settle_timeout(settings: &mut Settings, args: &Args) -> Duration {
    let wide = settings.consume.handler_timeout;
    let consume = &mut settings.queue_mut(&args.queue).consume;
    let timeout = args.timeout.or(consume.handler_timeout).or(wide).unwrap_or(DEFAULT_TIMEOUT).min(MAX_TIMEOUT);
    consume.handler_timeout = Some(timeout + MARGIN);
    timeout
}

fn timeout(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a duration from 1ms to 12h, such as 30s".to_owned();
    let timeout = humantime::parse_duration(text).map_err(|_| wrong())?;
    if (Duration::from_millis(1)..=MAX_TIMEOUT).contains(&timeout) { Ok(timeout) } else { Err(wrong()) }
}
