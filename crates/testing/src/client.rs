use std::fmt;
use std::time::Duration;

use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ExchangeKind,
    message::Delivery,
    options::{
        BasicAckOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions,
        ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions,
        QueueDeleteOptions, QueuePurgeOptions,
    },
    types::ShortString,
};
use serde_json::{Map, Value};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::{Instant, timeout},
};

use super::{
    channel::{self, open_channel},
    client_error::ClientError,
    eventually::eventually,
    fields::{self, short, table, table_of},
    properties::Properties,
    url::without_password,
};

/// The time limit of every call, because a broker without a majority does not answer at all.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a queue may refuse a message before this counts as a refusal.
const REFUSAL_COUNTS_AFTER: Duration = Duration::from_secs(1);

/// A small AMQP client for tests. It publishes with confirms, and gets messages.
///
/// It belongs to the runtime in which it connected. Arguments and headers are JSON. When sent, a
/// whole number becomes a 64-bit integer, any other number a double, a string a long string, and
/// `null` the empty field. `{"$amqp": {"Timestamp": 5}}` has exactly the AMQP type that it names
/// (`Boolean`, `ShortShortInt`, `ShortShortUInt`, `ShortInt`, `ShortUInt`, `LongInt`, `LongUInt`,
/// `LongLongInt`, `Float`, `Double`, `DecimalValue`, `ShortString`, `LongString`, `FieldArray`,
/// `Timestamp`, `FieldTable`, `ByteArray` or, without braces, `Void`; a `LongString` is given as an
/// array of bytes).
///
/// If its connection is lost, the next operation opens another.
pub struct Client {
    url: String,
    connection: Mutex<Connection>,
    publishing: Mutex<Option<Channel>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("url", &without_password(&self.url)).finish_non_exhaustive()
    }
}

/// A message to publish.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is sent until Client::publish"]
pub struct Publish {
    /// The exchange; empty is the default exchange.
    pub exchange: String,
    /// The routing key.
    pub routing_key: String,
    /// The body.
    pub body: Vec<u8>,
    /// The headers; [`Client`] describes how JSON is converted to AMQP.
    pub headers: Map<String, Value>,
    /// The other properties.
    pub properties: Properties,
}

impl Publish {
    /// To an exchange, with a routing key; persistent.
    pub fn to(exchange: impl Into<String>, routing_key: impl Into<String>) -> Self {
        Self {
            exchange: exchange.into(),
            routing_key: routing_key.into(),
            properties: Properties { delivery_mode: Some(2), ..Properties::default() },
            ..Self::default()
        }
    }

    /// Directly to a queue, through the default exchange; persistent.
    pub fn to_queue(queue: impl Into<String>) -> Self {
        Self::to("", queue)
    }

    /// With this body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// With this value as its JSON body, and the matching content type.
    pub fn json(mut self, body: &Value) -> Self {
        self.body = body.to_string().into_bytes();
        self.properties.content_type = Some("application/json".to_owned());
        self
    }

    /// With one more header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// With other properties: `.properties(|it| it.priority = Some(3))`.
    pub fn properties(mut self, change: impl FnOnce(&mut Properties)) -> Self {
        change(&mut self.properties);
        self
    }

    /// With this message id.
    pub fn message_id(self, id: impl Into<String>) -> Self {
        self.properties(|it| it.message_id = Some(id.into()))
    }
}

/// A message taken from a queue.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Received {
    /// The exchange that routed it last.
    pub exchange: String,
    /// Its routing key.
    pub routing_key: String,
    /// Whether it was delivered before.
    pub redelivered: bool,
    /// Its headers in plain JSON, in which bytes and text look alike.
    pub headers: Map<String, Value>,
    /// Its headers with their AMQP types, in the form that [`Client`] accepts:
    /// `{"$amqp": {"LongUInt": 5}}`.
    pub exact_headers: Map<String, Value>,
    /// Its other properties.
    pub properties: Properties,
    /// Its body.
    pub body: Vec<u8>,
}

impl Received {
    /// The body as text, for assertions.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn new(delivery: Delivery) -> Self {
        let headers = delivery.properties.headers().clone().unwrap_or_default();
        Self {
            exchange: delivery.exchange.to_string(),
            routing_key: delivery.routing_key.to_string(),
            redelivered: delivery.redelivered,
            headers: fields::plain(&headers),
            exact_headers: fields::exact(&headers),
            properties: Properties::from_lapin(&delivery.properties),
            body: delivery.data,
        }
    }
}

impl Client {
    /// Connects to a broker.
    ///
    /// # Errors
    /// When the broker does not accept the connection.
    pub async fn connect(amqp_url: &str) -> Result<Self, ClientError> {
        let what = || format!("connect to {}", without_password(amqp_url));
        let connection = Mutex::new(answer(what, connect(amqp_url)).await?);
        Ok(Self { url: amqp_url.to_owned(), connection, publishing: Mutex::new(None) })
    }

    /// Declares a durable queue.
    ///
    /// # Errors
    /// When the broker refuses, for example because it exists with other arguments.
    pub async fn declare_queue(&self, queue: &str, arguments: Value) -> Result<(), ClientError> {
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let (name, arguments) = (short(queue)?, table(&arguments)?);
        self.once(
            || format!("declare queue {queue}"),
            async |channel| channel.queue_declare(name, options, arguments).await.map(drop),
        )
        .await
    }

    /// Declares a durable exchange of this type: `direct`, `fanout`, `topic`, `headers` or a
    /// plugin's.
    ///
    /// # Errors
    /// When the broker refuses.
    pub async fn declare_exchange(
        &self,
        exchange: &str,
        kind: &str,
        arguments: Value,
    ) -> Result<(), ClientError> {
        let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let (name, arguments, kind) =
            (short(exchange)?, table(&arguments)?, ExchangeKind::Custom(kind.to_owned()));
        self.once(
            || format!("declare exchange {exchange}"),
            async |channel| channel.exchange_declare(name, kind, options, arguments).await,
        )
        .await
    }

    /// Binds a queue to an exchange.
    ///
    /// # Errors
    /// When the broker refuses, for example because one of them is missing.
    pub async fn bind(
        &self,
        queue: &str,
        exchange: &str,
        routing_key: &str,
        arguments: Value,
    ) -> Result<(), ClientError> {
        let (from, to, key, arguments) =
            (short(exchange)?, short(queue)?, short(routing_key)?, table(&arguments)?);
        self.once(
            || format!("bind queue {queue} to exchange {exchange}"),
            async |channel| {
                channel.queue_bind(to, from, key, QueueBindOptions::default(), arguments).await
            },
        )
        .await
    }

    /// Removes a binding.
    ///
    /// # Errors
    /// When the broker refuses.
    pub async fn unbind(
        &self,
        queue: &str,
        exchange: &str,
        routing_key: &str,
        arguments: Value,
    ) -> Result<(), ClientError> {
        let (from, to, key, arguments) =
            (short(exchange)?, short(queue)?, short(routing_key)?, table(&arguments)?);
        self.once(
            || format!("unbind queue {queue} from exchange {exchange}"),
            async |channel| channel.queue_unbind(to, from, key, arguments).await,
        )
        .await
    }

    /// Publishes one message and waits for the broker's confirm. Concurrent calls wait for each
    /// other. A new quorum queue refuses messages until it has a leader (3.10), so only a refusal
    /// that lasts for a second and ten tries counts.
    ///
    /// # Errors
    /// When the broker refuses the message, or it is unroutable.
    pub async fn publish(&self, message: Publish) -> Result<(), ClientError> {
        let properties = message.properties.to_lapin()?.with_headers(table_of(&message.headers)?);
        let (exchange, key) = (&message.exchange, &message.routing_key);
        let until = Instant::now() + REFUSAL_COUNTS_AFTER;
        for tries in 1.. {
            match self.publish_raw(exchange, key, &message.body, properties.clone(), true).await {
                // On a busy machine a single try may take that long.
                Err(ClientError::Refused { .. }) if tries < 10 || Instant::now() < until => {
                    tokio::time::sleep(REFUSAL_COUNTS_AFTER / 20).await;
                }
                published => return published,
            }
        }
        unreachable!("there are as many tries as it takes")
    }

    /// Publishes many messages, with up to 500 unconfirmed at a time. Unroutable messages go
    /// unnoticed.
    ///
    /// # Errors
    /// When the broker refuses one; those before it may be in their queues.
    pub async fn publish_many(
        &self,
        messages: impl IntoIterator<Item = Publish>,
    ) -> Result<usize, ClientError> {
        let publishing = self.publishing_channel().await?;
        let channel = &publishing.channel;
        let mut messages = messages.into_iter();
        let mut published = 0;
        loop {
            let mut unconfirmed = Vec::new();
            for message in messages.by_ref().take(500) {
                let properties =
                    message.properties.to_lapin()?.with_headers(table_of(&message.headers)?);
                let (exchange, key) = (short(&message.exchange)?, short(&message.routing_key)?);
                let sent = channel.basic_publish(
                    exchange,
                    key,
                    BasicPublishOptions::default(),
                    &message.body,
                    properties,
                );
                unconfirmed.push((
                    answer(|| "publish".to_owned(), sent).await?,
                    message.exchange,
                    message.routing_key,
                ));
            }
            if unconfirmed.is_empty() {
                publishing.keep();
                return Ok(published);
            }
            for (confirm, exchange, routing_key) in unconfirmed {
                outcome(answer(|| "publish".to_owned(), confirm).await?, &exchange, &routing_key)?;
                published += 1;
            }
        }
    }

    /// Publishes with lapin's own properties, for what JSON cannot express.
    pub(crate) async fn publish_raw(
        &self,
        exchange: &str,
        routing_key: &str,
        body: &[u8],
        properties: BasicProperties,
        mandatory: bool,
    ) -> Result<(), ClientError> {
        let publishing = self.publishing_channel().await?;
        let options = BasicPublishOptions { mandatory, ..BasicPublishOptions::default() };
        let (to, key) = (short(exchange)?, short(routing_key)?);
        let what = || format!("publish to exchange '{exchange}' with routing key '{routing_key}'");
        let confirm =
            answer(what, publishing.channel.basic_publish(to, key, options, body, properties))
                .await?;
        let confirmation = answer(what, confirm).await?;
        publishing.keep();
        outcome(confirmation, exchange, routing_key)
    }

    /// Takes the message at the head of the queue, if there is one.
    ///
    /// # Errors
    /// When the queue does not exist.
    pub async fn get(&self, queue: &str) -> Result<Option<Received>, ClientError> {
        let name = short(queue)?;
        self.once(|| format!("get from queue {queue}"), async |channel| take(channel, name).await)
            .await
    }

    /// Takes all messages that are in the queue now.
    ///
    /// # Errors
    /// When the queue does not exist.
    pub async fn get_all(&self, queue: &str) -> Result<Vec<Received>, ClientError> {
        let mut received = Vec::new();
        self.get_up_to(queue, usize::MAX, &mut received).await?;
        Ok(received)
    }

    /// Takes exactly `count` messages from the queue, waiting for them up to the time limit.
    /// Further messages stay in it.
    ///
    /// # Errors
    /// When fewer come in time; the error says how many. These are removed anyway.
    pub async fn drain(
        &self,
        queue: &str,
        count: usize,
        within: Duration,
    ) -> Result<Vec<Received>, ClientError> {
        let mut received = Vec::with_capacity(count.min(10_000));
        let what = format!("{count} messages in queue {queue}");
        let started = Instant::now();
        eventually(within, &what, async || {
            let before = received.len();
            self.get_up_to(queue, count, &mut received).await.map_err(|error| error.to_string())?;
            if received.len() == count {
                return Ok(true);
            }
            let waited = started.elapsed();
            Err(format!(
                "{} messages, {} of them new, after {waited:?}",
                received.len(),
                received.len() - before
            ))
        })
        .await?;
        Ok(received)
    }

    /// How many messages are ready in the queue. Those that a consumer holds do not count.
    ///
    /// # Errors
    /// When the queue does not exist, or its leader does not answer.
    pub async fn depth(&self, queue: &str) -> Result<u32, ClientError> {
        Ok(self.counts(queue).await?.0)
    }

    /// How many consumers the queue has. A service has none while it asks for single messages.
    ///
    /// # Errors
    /// When the queue does not exist, or its leader does not answer.
    pub async fn consumers(&self, queue: &str) -> Result<u32, ClientError> {
        Ok(self.counts(queue).await?.1)
    }

    async fn counts(&self, queue: &str) -> Result<(u32, u32), ClientError> {
        let name = short(queue)?;
        let what = || format!("look at queue {queue}");
        let counts = self.once(what, async |channel| channel::counts(channel, &name).await).await?;
        counts.ok_or_else(|| ClientError::Broker {
            what: what(),
            reason: "its leader does not answer".to_owned(),
        })
    }

    /// Deletes the queue with everything in it. It is not an error if the queue does not exist.
    ///
    /// # Errors
    /// When the broker refuses.
    pub async fn delete_queue(&self, queue: &str) -> Result<(), ClientError> {
        let name = short(queue)?;
        self.once(
            || format!("delete queue {queue}"),
            async |channel| {
                channel.queue_delete(name, QueueDeleteOptions::default()).await.map(drop)
            },
        )
        .await
    }

    /// Deletes the exchange. It is not an error if the exchange does not exist.
    ///
    /// # Errors
    /// When the broker refuses.
    pub async fn delete_exchange(&self, exchange: &str) -> Result<(), ClientError> {
        let name = short(exchange)?;
        self.once(
            || format!("delete exchange {exchange}"),
            async |channel| channel.exchange_delete(name, ExchangeDeleteOptions::default()).await,
        )
        .await
    }

    /// Deletes the ready messages of the queue and returns how many there were.
    ///
    /// # Errors
    /// When the queue does not exist.
    pub async fn purge(&self, queue: &str) -> Result<u32, ClientError> {
        let name = short(queue)?;
        self.once(
            || format!("purge queue {queue}"),
            async |channel| channel.queue_purge(name, QueuePurgeOptions::default()).await,
        )
        .await
    }

    /// Closes the connection cleanly.
    ///
    /// # Errors
    /// When the connection is already lost.
    pub async fn close(self) -> Result<(), ClientError> {
        answer(
            || "close the connection".to_owned(),
            self.connection.into_inner().close(200, "done".into()),
        )
        .await
    }

    async fn get_up_to(
        &self,
        queue: &str,
        count: usize,
        received: &mut Vec<Received>,
    ) -> Result<(), ClientError> {
        let name = short(queue)?;
        let what = || format!("get from queue {queue}");
        let channel = answer(what, self.channel()).await?;
        while received.len() < count {
            let Some(message) = answer(what, take(&channel, name.clone())).await? else { break };
            received.push(message);
        }
        answer(what, channel.close(200, "done".into())).await
    }

    /// Runs an operation on a channel of its own, because an error closes the channel on which it
    /// happens.
    async fn once<T>(
        &self,
        what: impl Fn() -> String,
        act: impl AsyncFnOnce(&Channel) -> lapin::Result<T>,
    ) -> Result<T, ClientError> {
        answer(what, async {
            let channel = self.channel().await?;
            let value = act(&channel).await?;
            channel.close(200, "done".into()).await?;
            Ok(value)
        })
        .await
    }

    /// A new channel, on a new connection if the last one is gone: the broker closes it over some
    /// errors, as over a queue that is used while it is declared or deleted (541).
    async fn channel(&self) -> lapin::Result<Channel> {
        let mut connection = self.connection.lock().await;
        if !connection.status().connected() {
            *connection = connect(&self.url).await?;
        }
        open_channel(&connection).await
    }

    /// The channel with confirms, or a new one if an error has closed it.
    async fn publishing_channel(&self) -> Result<Publishing<'_>, ClientError> {
        let what = || "publish after others".to_owned();
        let mut kept = answer(what, async { Ok(self.publishing.lock().await) }).await?;
        let channel = match kept.take().filter(|channel| channel.status().connected()) {
            Some(channel) => channel,
            None => {
                answer(|| "open a channel".to_owned(), async {
                    let channel = self.channel().await?;
                    channel.confirm_select(ConfirmSelectOptions::default()).await?;
                    Ok(channel)
                })
                .await?
            }
        };
        Ok(Publishing { kept, channel })
    }
}

/// A channel with confirms. Nobody else publishes on it before all confirms have come: lapin (4.12)
/// gives a returned message to the next confirm, whoever waits for it.
struct Publishing<'a> {
    kept: MutexGuard<'a, Option<Channel>>,
    channel: Channel,
}

impl Publishing<'_> {
    /// All confirms have come. Otherwise the channel is closed when this is dropped.
    fn keep(mut self) {
        *self.kept = Some(self.channel);
    }
}

/// Takes a message. It is acked after it has arrived, so that one whose get is given up stays in
/// the queue.
async fn take(channel: &Channel, queue: ShortString) -> lapin::Result<Option<Received>> {
    let Some(message) = channel.basic_get(queue, BasicGetOptions { no_ack: false }).await? else {
        return Ok(None);
    };
    message.ack(BasicAckOptions::default()).await?;
    Ok(Some(Received::new(message.delivery)))
}

async fn connect(amqp_url: &str) -> lapin::Result<Connection> {
    let properties = ConnectionProperties::default().with_connection_name("rehop testing".into());
    Connection::connect(amqp_url, properties).await
}

async fn answer<T>(
    what: impl Fn() -> String,
    asked: impl IntoFuture<Output = lapin::Result<T>>,
) -> Result<T, ClientError> {
    match timeout(ANSWER, asked.into_future()).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(ClientError::Broker { what: what(), reason: error.to_string() }),
        Err(_) => Err(ClientError::NoAnswer { what: what(), limit: ANSWER }),
    }
}

fn outcome(
    confirmation: Confirmation,
    exchange: &str,
    routing_key: &str,
) -> Result<(), ClientError> {
    let (exchange, routing_key) = (exchange.to_owned(), routing_key.to_owned());
    match confirmation {
        Confirmation::Ack(None) => Ok(()),
        Confirmation::Ack(Some(_)) => Err(ClientError::Unroutable { exchange, routing_key }),
        Confirmation::Nack(_) => Err(ClientError::Refused { exchange, routing_key }),
        Confirmation::NotRequested => Err(ClientError::Broker {
            what: "publish".to_owned(),
            reason: "confirms are not switched on".to_owned(),
        }),
    }
}
