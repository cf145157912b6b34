//! How the demo itself reaches the broker, beside the service and the operator. Each kind of broker
//! has its own.

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use rehop_testing::{Publish, Received};
use serde_json::json;

use super::account::Found;
use super::script::{Fate, id_of};

/// What the broker answers.
pub(crate) type ClientFuture<'a, T> = BoxFuture<'a, anyhow::Result<T>>;

/// What a publisher and somebody who counts need. Queues and exchanges are durable.
pub(crate) trait Client: Send + Sync {
    /// Declares a topic exchange that passes on what it cannot route.
    fn declare_exchange<'a>(
        &'a self,
        exchange: &'a str,
        alternate: &'a str,
    ) -> ClientFuture<'a, ()>;

    /// Binds a queue to an exchange.
    fn bind<'a>(
        &'a self,
        queue: &'a str,
        exchange: &'a str,
        pattern: &'a str,
    ) -> ClientFuture<'a, ()>;

    /// Publishes a message, and waits until the broker has confirmed it.
    fn publish(&self, message: Publish) -> ClientFuture<'_, ()>;

    /// How many messages are ready in a queue.
    fn depth<'a>(&'a self, queue: &'a str) -> ClientFuture<'a, usize>;

    /// Takes everything out of a queue.
    fn take_all<'a>(&'a self, queue: &'a str) -> ClientFuture<'a, Vec<Taken>>;
}

/// What was taken out of a queue.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) message_id: Option<String>,
    /// Why it is parked, if it is: rehop writes its reason into a header of its own. A message that
    /// the broker parked has only the broker's `x-death`.
    pub(crate) reason: Option<String>,
}

impl Taken {
    /// The order that it was, and this fate.
    pub(crate) fn with(&self, fate: Fate) -> Found {
        (self.message_id.as_deref().and_then(id_of), fate)
    }

    /// The order that it was, from a parked queue.
    pub(crate) fn parked(&self) -> Found {
        self.with(Fate::parked(self.reason.as_deref()))
    }
}

impl Client for rehop_testing::Client {
    fn declare_exchange<'a>(
        &'a self,
        exchange: &'a str,
        alternate: &'a str,
    ) -> ClientFuture<'a, ()> {
        let arguments = json!({ "alternate-exchange": alternate });
        self.declare_exchange(exchange, "topic", arguments).err_into().boxed()
    }

    fn bind<'a>(
        &'a self,
        queue: &'a str,
        exchange: &'a str,
        pattern: &'a str,
    ) -> ClientFuture<'a, ()> {
        self.bind(queue, exchange, pattern, json!({})).err_into().boxed()
    }

    fn publish(&self, message: Publish) -> ClientFuture<'_, ()> {
        self.publish(message).err_into().boxed()
    }

    fn depth<'a>(&'a self, queue: &'a str) -> ClientFuture<'a, usize> {
        self.depth(queue).map_ok(|depth| depth as usize).err_into().boxed()
    }

    fn take_all<'a>(&'a self, queue: &'a str) -> ClientFuture<'a, Vec<Taken>> {
        self.get_all(queue).map_ok(|all| all.into_iter().map(taken).collect()).err_into().boxed()
    }
}

fn taken(message: Received) -> Taken {
    let headers = &message.headers;
    let death = || headers.get("x-death")?.get(0)?.get("reason")?.as_str();
    let reason = headers
        .get("rehop-reason")
        .and_then(serde_json::Value::as_str)
        .or_else(death)
        .map(str::to_owned);
    Taken { message_id: message.properties.message_id, reason }
}
