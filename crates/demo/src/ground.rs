//! What the demo plays on, and what it says of that before and after.

use rehop_testing::{Broker, BrokerError};

use super::arguments::Args;
use super::policy;

/// A real broker or a simulated one.
#[derive(Debug)]
pub(crate) enum Ground {
    Broker(Box<Broker>),
    /// For this reason.
    Simulated(String),
}

impl Ground {
    /// A broker of the demo's own or, where there is none, a simulated one.
    ///
    /// # Errors
    ///
    /// When a broker does not start, or the one that was asked for does not exist.
    pub(crate) async fn choose(args: &Args) -> anyhow::Result<Self> {
        if args.simulated {
            return Ok(Self::Simulated("as you asked".to_owned()));
        }
        if !args.json {
            eprintln!("starting RabbitMQ, which takes a few seconds");
        }
        let builder = match &args.tag {
            Some(tag) => Broker::builder().tag(tag),
            None => Broker::builder().own(),
        };
        match builder.start().await {
            Ok(broker) => Ok(Self::Broker(Box::new(broker))),
            // A certain version, and traces for a collector, need a real broker.
            Err(error) if args.tag.is_some() || args.otlp.is_some() => Err(error.into()),
            Err(BrokerError::Nothing { .. }) => Ok(Self::Simulated(
                "because neither Docker nor a rabbitmq-server is here".to_owned(),
            )),
            Err(BrokerError::NoImage { image, .. }) => Ok(Self::Simulated(format!(
                "because Docker has no image {image}, and there is no rabbitmq-server"
            ))),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self, Self::Simulated(_))
    }

    /// What is about to happen, for readers who have never seen rehop.
    pub(crate) fn introduction(&self, orders: u32) -> String {
        let policy = policy::settings(policy::SIMULATED_URL).policy(policy::ORDERS);
        let attempts = policy.map(|policy| policy.max_attempts()).unwrap_or_default();
        let (first, broker, process, posts) = match self {
            Self::Broker(_) => (
                String::new(),
                "starts a broker",
                "a consumer process that posts",
                "to an HTTP service",
            ),
            Self::Simulated(why) => (
                format!(
                    "SIMULATED, {why}: rehop's own code, on a simulated RabbitMQ, in virtual time.\n\n"
                ),
                "simulates a broker",
                "a consumer that hands",
                "to a simulated HTTP service",
            ),
        };
        format!(
            "{first}rehop retries failed RabbitMQ messages, immediately or after a delay. The demo {broker}, publishes {orders}\n\
             orders to it, and runs {process} each order {posts}. The service has an outage and a\n\
             bug, rejects some orders and is busy for others. One order has expired, one cannot be decoded, and one kills the\n\
             consumer process whenever it is handled. Failed orders are retried immediately or wait in the broker for 300 ms,\n\
             800 ms and 2 s, or as long as Retry-After asks, with at most {attempts} attempts. Refunds wait with jitter. An order that\n\
             cannot be handled is parked with the reason. When the bug is repaired, what it had parked is sent back. The demo\n\
             counts every order before that and at the end, by reading the queues and the HTTP service's own log.\n"
        )
    }

    /// What was not shown, and what to do next.
    pub(crate) fn conclusion(&self) -> &'static str {
        match self {
            Self::Broker(_) => {
                "\nWhat to try next\n  \
                 make demo ARGS='--messages 2000'                with more orders\n  \
                 make demo ARGS='--tag 3.10-management'          on another version of RabbitMQ\n  \
                 make demo ARGS='--otlp http://127.0.0.1:4318'   with the traces in your own collector\n  \
                 cargo run -p rehop-cli -- --help                the relay and the topology commands, for your own broker\n  \
                 make demo ARGS=--json                           as JSON\n"
            }
            Self::Simulated(_) => {
                "\nA real broker would add processes that are really killed, a real network, the management API, and throughput.\n\
                 With Docker or a rabbitmq-server, `make demo` plays the same on one.\n\n\
                 What to try next\n  \
                 make demo ARGS='--simulated --messages 2000'    with more orders\n  \
                 make demo ARGS='--simulated --json'             as JSON\n  \
                 cargo run -p rehop-examples --bin testing       a test of a service on a simulated broker\n"
            }
        }
    }
}
