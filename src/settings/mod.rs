//! Settings: plain structs, loaded in layers, and resolved for each queue.

pub(crate) mod address;
mod error;
mod explain;
mod file;
mod load;
mod mask;
mod max_age;
mod max_unsettled;
mod order;
mod policy_builder;
mod queue;
#[allow(missing_docs, reason = "no part of the API, although `internals` shares some of it")]
pub(crate) mod resolve;
mod secret;
mod service_links;
mod strategy;
mod values;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use error::SettingsError;
pub use load::{Entry, Loader};
pub use mask::MaskSettings;
pub use max_age::MaxAge;
pub(crate) use max_unsettled::settle_limit;
pub use order::Order;
pub use policy_builder::PolicyBuilder;
pub use queue::{BindingSettings, Declare, QueueSettings, QueueType};
pub(crate) use resolve::{QueueConfig, Resolved};
pub use secret::Secret;

/// A settings file with every key, what it means, and its default or an example.
/// `rehop config init` writes it.
pub const DOCUMENTED: &str = include_str!("../../config/default.toml");

pub use crate::retry::policy::{Ending, Treatment};
pub use crate::wait::{AskedDelays, Jitter, WaitQueues, WaitStrategy};

use crate::duration;
use crate::retry::backoff::Backoff;

const DEFAULT_URL: &str = "amqp://guest:guest@127.0.0.1:5672/%2f";

/// Everything that can be tuned. `config/default.toml` in the repository documents each key with
/// unit, default and bounds.
///
/// Later layers win:
///
/// 1. the built-in defaults;
/// 2. the built-in profile that `REHOP_PROFILE` names, `development` or `production`;
/// 3. `rehop.toml`;
/// 4. `config/default.toml`, and `config/<profile>.toml`. These may be the service's own files: of
///    one that has a table `[rehop]`, only this table is read, and one that has none of rehop's
///    keys is passed over;
/// 5. the file that `REHOP_CONFIG` names, or its table `[rehop]`;
/// 6. variables such as `REHOP_BROKER__URL`. Those that Kubernetes sets for a Service named `rehop`
///    are passed over;
/// 7. what the program [sets](Loader::set).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Settings {
    /// The prefix of the exchanges and queues that rehop declares for this service, apart from
    /// `<queue>.parked`. The default is the program's name if the settings are
    /// [loaded](Settings::load), else `rehop`. At most 200 bytes.
    #[serde(deserialize_with = "values::text")]
    pub namespace: String,
    /// Whether exchanges, queues and bindings are declared, or only checked. Default `declare`.
    pub topology: TopologyMode,
    /// The header in which producers may give a deadline, in milliseconds since the epoch. Default
    /// `rehop-expires-at`.
    #[serde(deserialize_with = "values::text")]
    pub expiry_header: String,
    /// The broker and how to talk to it.
    pub broker: BrokerSettings,
    /// The retry policy, unless a queue has its own.
    pub retry: RetrySettings,
    /// The ladder of wait queues for any delay.
    pub ladder: LadderSettings,
    /// How queues are consumed, unless a queue has its own settings.
    pub consume: ConsumeSettings,
    /// How to stop.
    pub shutdown: ShutdownSettings,
    /// How chains are traced.
    pub trace: TraceSettings,
    /// What operators do not see of messages, unless they ask for it.
    pub mask: MaskSettings,
    /// The queues. A queue that is consumed but not listed gets the defaults.
    pub queues: Vec<QueueSettings>,
}

/// What to do with the topology at start-up and after each reconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TopologyMode {
    /// Declare everything that rehop owns.
    #[default]
    Declare,
    /// Only check that exchanges and queues exist, for users without the configure permission.
    /// Bindings cannot be checked.
    Check,
}

/// The broker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct BrokerSettings {
    /// `amqp://` or `amqps://` user:password@host:port/vhost, percent-encoded. Default
    /// `amqp://guest:guest@127.0.0.1:5672/%2f`. Of the query, here and in `urls`, rehop uses
    /// `frame_max` (bytes, at most 1 MiB), `channel_max` and `auth_mechanism`; `broker.heartbeat`
    /// and `broker.timeout` take the place of `heartbeat` and `connection_timeout`.
    #[serde(deserialize_with = "values::secret", serialize_with = "values::masked_url")]
    pub url: Secret,
    /// The addresses of several nodes of one cluster, in place of `url`. They are tried in turn,
    /// starting with the one that worked last; each has at most 10 seconds. Default: none.
    #[serde(
        serialize_with = "values::masked_urls",
        deserialize_with = "values::secrets",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub urls: Vec<Secret>,
    /// The user, in place of the one in the URL.
    #[serde(deserialize_with = "values::optional_text", skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// The password, in place of the one in the URL.
    #[serde(
        deserialize_with = "values::optional_secret",
        serialize_with = "values::masked",
        skip_serializing_if = "Option::is_none"
    )]
    pub password: Option<Secret>,
    /// A file that holds the password, in place of the one in the URL. A line end after it is
    /// ignored. It is read at each connect, so that a rotated secret is used from the next
    /// connection on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// The management API, such as `http://host:15672` or `https://user:password@host`, for the
    /// tool's commands that look at the broker, for the rates on the page of `rehop ui`, for the
    /// warnings of `rehop parked`, and for queues that the settings do not list in both. User and
    /// password are those of the AMQP connection unless the URL has its own. Services do not use
    /// it. Default: none.
    #[serde(
        deserialize_with = "values::optional_secret",
        serialize_with = "values::optional_masked_url",
        skip_serializing_if = "Option::is_none"
    )]
    pub management_url: Option<Secret>,
    /// How long to wait for each answer from the broker before giving up the connection. Default
    /// 30s, 1s to 10m.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// How long to keep trying at start-up while the broker is unreachable, or a limit of it is
    /// reached. After start-up, rehop reconnects without a limit. Default 30s, 0s to 1h.
    #[serde(with = "duration")]
    pub startup_timeout: Duration,
    /// How long a delivery may stay unsettled before the broker takes it back; before RabbitMQ 4.3
    /// it then counts this against everything that the channel holds. rehop asks 4.3 for this time
    /// (`x-consumer-timeout`), and gets it for quorum queues, existing ones if their `queue_type`
    /// is set. On earlier versions, set it to the broker's `consumer_timeout`, which AMQP cannot
    /// query. Deliveries that have waited too long for a free handler, at most half of it, are
    /// handed back, except those of an ordered queue. Default 30m, like RabbitMQ's, 10s to 30d.
    #[serde(with = "duration")]
    pub consumer_timeout: Duration,
    /// The heartbeat interval. Default 15s, 1s to 5m.
    #[serde(with = "duration")]
    pub heartbeat: Duration,
    /// Certificates for `amqps`.
    pub tls: TlsSettings,
}

/// Certificates for `amqps`, all in PEM.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TlsSettings {
    /// Certificate authorities to trust in addition to the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// This client's certificate, for mutual TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    /// The key of `cert_file`, unencrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
}

/// How often and when to retry. What is left out is taken from the service's settings, then from
/// the defaults.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RetrySettings {
    /// The work queue's `x-delivery-limit`: how often the broker redelivers a message before it
    /// parks it. It counts crashes and immediate attempts, and starts again after each wait, except
    /// with the strategies `native` and `in-process`. Default 10, 1 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_limit: Option<u32>,
    /// Immediate attempts before each wait. Default 1; must be below `delivery_limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub immediate: Option<u32>,
    /// How long each wait lasts. Default 10s, 1m, 10m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delays: Option<Backoff>,
    /// How messages wait: `tiers`, the default, `ladder`, `native`, `in-process` or
    /// `delayed-exchange`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<WaitStrategy>,
    /// Where asked delays wait that the strategy cannot give exactly: `own`, the default, or
    /// `ladder`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<AskedDelays>,
    /// Whether the queue's messages wait in wait queues of its `own`, or in those that the
    /// namespace's queues share: `shared`. Default `own` for an `existing` queue, else `shared`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_queues: Option<WaitQueues>,
    /// How much of the delays is random: `none`, the default, `full`, `equal` or `decorrelated`.
    /// Any but `none` needs a strategy that is not tied to fixed delays: `ladder`, `in-process` or
    /// `delayed-exchange`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
    /// How often handlers may [defer](crate::Failure::defer) a message; then it is parked. Default
    /// 100, 0 to 10000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_defers: Option<u32>,
    /// The deadline of messages that bring none: a duration of 1ms to 3650d, or `"none"`, the
    /// default. It is counted from the delivery before the first wait; with `in-process`, from the
    /// first delivery since a crash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age: Option<MaxAge>,
    /// What happens to a message when all attempts have failed: `park`, the default, or `discard`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_exhausted: Option<Ending>,
    /// What happens to a message when it has expired: `park`, the default, or `discard`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_expired: Option<Ending>,
    /// How failures of a class are treated unless the handler has classified them: `transient`,
    /// `requeue`, `permanent`, `discard` or `defer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<BTreeMap<String, Treatment>>,
}

/// The ladder: wait queues whose TTLs double, for any delay. It belongs to the namespace, and is
/// declared if a queue of it has `retry.strategy = "ladder"` or `retry.after = "ladder"`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LadderSettings {
    /// The shortest TTL, and what delays are rounded up to. Default 1s, 1ms to 1d.
    #[serde(with = "duration")]
    pub rung: Duration,
    /// How many significant bits of a delay are kept. It is also the most legs of a wait. A wait is
    /// at most 100, 50, 25, 12.5 % longer than the delay with 1, 2, 3, 4 bits, and so on. Default
    /// 4, 1 to 8.
    pub precision: u8,
    /// The longest delay. Default 30d, `rung` to 30d.
    #[serde(with = "duration")]
    pub max: Duration,
}

/// How a queue is consumed. What is left out is taken from the service's settings, then from the
/// defaults.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ConsumeSettings {
    /// How many unsettled messages the broker sends at most. Default 100, 1 to 65535. An ordered
    /// queue may be sent fewer, see [`Settings::max_unsettled`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<u16>,
    /// How many handlers run at a time. Default 10; at most `prefetch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u16>,
    /// How long one attempt may take. Beyond this it fails with the class `timeout`, which is
    /// transient unless `retry.errors` says otherwise. Default 1m, 1ms to 1d.
    #[serde(with = "values::optional_duration", skip_serializing_if = "Option::is_none")]
    pub handler_timeout: Option<Duration>,
    /// Which messages are handled one after the other, in the order of the queue: `none`, the
    /// default, `queue`, `routing-key` or `{ header = "name" }`. Needs
    /// `retry.strategy = "in-process"`. With `queue`, one message is taken at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
}

/// How to stop.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ShutdownSettings {
    /// How long a shutdown may take in all. Running handlers have four fifths of it, and at least
    /// until two seconds before its end; the rest is for settling and closing. The broker keeps
    /// what is unfinished by then. Default 30s, 100ms to 1h.
    #[serde(with = "duration")]
    pub grace: Duration,
}

/// How chains are traced.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TraceSettings {
    /// Chains older than this continue in a new trace that links back to the old one. Default 1d,
    /// 1s to 365d.
    #[serde(with = "duration")]
    pub max_age: Duration,
}

impl Settings {
    /// Settings made in code: this namespace, this broker URL, and defaults for the rest. No files
    /// or environment variables are read. They are checked when the service starts.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rehop::settings::QueueSettings;
    /// use rehop::{RetryPolicy, Settings};
    ///
    /// let settings = Settings::new("billing", "amqp://guest:guest@127.0.0.1:5672/%2f")
    ///     .with_queue(
    ///         QueueSettings::new("orders")
    ///             .bind("shop", "order.*")
    ///             .retry(RetryPolicy::builder().delays([5, 60].map(Duration::from_secs)))
    ///             .concurrency(20),
    ///     )
    ///     .with_queue(QueueSettings::new("mails").handler_timeout(Duration::from_secs(5)));
    /// assert_eq!(settings.policy("orders")?.max_attempts(), 6);
    /// # Ok::<(), rehop::SettingsError>(())
    /// ```
    pub fn new(namespace: impl Into<String>, url: impl Into<Secret>) -> Self {
        let broker = BrokerSettings { url: url.into(), ..BrokerSettings::default() };
        Self { namespace: namespace.into(), broker, ..Self::default() }
    }

    /// Adds a queue. Replaces one of the same name.
    #[must_use = "it returns the settings"]
    pub fn with_queue(mut self, queue: QueueSettings) -> Self {
        let name = queue.queue.clone();
        *self.queue_mut(&name) = queue;
        self
    }

    /// The settings of this process: all layers, with the files of the working directory.
    ///
    /// # Errors
    ///
    /// When a file that was named is missing or a value is wrong; the error names the key and where
    /// it was set.
    pub fn load() -> Result<Self, SettingsError> {
        Loader::new().load()
    }

    /// The settings in a figment of the service's own, above rehop's built-in defaults. No other
    /// file or variable is read. If the figment also has other settings, rehop's are focused first.
    ///
    /// ```
    /// use rehop::figment::Figment;
    /// use rehop::figment::providers::{Env, Format, Toml};
    ///
    /// let own = Figment::new()
    ///     .merge(Toml::string(
    ///         r#"
    ///         database = "postgres://billing"
    ///
    ///         [rehop]
    ///         namespace = "billing"
    ///         queues = [{ queue = "orders" }]
    ///         "#,
    ///     ))
    ///     .merge(Env::prefixed("BILLING_").split("__")); // such as BILLING_REHOP__BROKER__URL
    /// let settings = rehop::Settings::from_figment(&own.focus("rehop"))?;
    /// assert_eq!(settings.namespace, "billing");
    /// # Ok::<(), rehop::SettingsError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When a value is wrong or a key is unknown; the error names the key and the provider that it
    /// is from. So does the error of a number where a text belongs: figment's `Env` reads the
    /// password `0123` as 123, unless the variable has it between double quotes.
    pub fn from_figment(figment: &figment::Figment) -> Result<Self, SettingsError> {
        load::settings_in(figment)
    }

    /// The settings of one queue, to change in place. They are added if the queue is not listed
    /// yet.
    ///
    /// ```
    /// let mut settings = rehop::Settings::default();
    /// settings.queue_mut("orders").retry.immediate = Some(0);
    /// assert_eq!(settings.queues.len(), 1);
    /// ```
    pub fn queue_mut(&mut self, queue: &str) -> &mut QueueSettings {
        let index =
            self.queues.iter().position(|settings| settings.queue == queue).unwrap_or_else(|| {
                self.queues.push(QueueSettings::new(queue));
                self.queues.len() - 1
            });
        &mut self.queues[index]
    }

    /// The retry policy of this queue.
    ///
    /// # Errors
    ///
    /// When the settings contradict themselves.
    pub fn policy(&self, queue: &str) -> Result<crate::RetryPolicy, SettingsError> {
        Ok(self.resolve()?.queue(queue)?.policy)
    }

    /// How long a message of this queue that always fails takes at most until it is parked, if each
    /// attempt lasts for `consume.handler_timeout`: see
    /// [`RetryPolicy::longest_chain`](crate::RetryPolicy::longest_chain).
    ///
    /// ```
    /// # fn main() -> Result<(), rehop::settings::SettingsError> {
    /// use std::time::Duration;
    ///
    /// let settings = rehop::Settings::default();
    ///  // Waits of 10 s, 1 min and 10 min, and eight attempts of a minute each.
    /// assert_eq!(settings.longest_chain("orders")?, Duration::from_secs(670 + 480));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// When the settings contradict themselves.
    pub fn longest_chain(&self, queue: &str) -> Result<Duration, SettingsError> {
        let config = self.resolve()?.queue(queue)?;
        Ok(config.policy.longest_chain(config.handler_timeout))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: "rehop".to_owned(),
            topology: TopologyMode::default(),
            expiry_header: crate::wire::names::EXPIRES_AT.to_owned(),
            broker: BrokerSettings::default(),
            retry: RetrySettings::default(),
            ladder: LadderSettings::default(),
            consume: ConsumeSettings::default(),
            shutdown: ShutdownSettings::default(),
            trace: TraceSettings::default(),
            mask: MaskSettings::default(),
            queues: Vec::new(),
        }
    }
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self {
            url: Secret::from(DEFAULT_URL),
            urls: Vec::new(),
            username: None,
            password: None,
            password_file: None,
            management_url: None,
            timeout: Duration::from_secs(30),
            startup_timeout: Duration::from_secs(30),
            consumer_timeout: Duration::from_secs(30 * 60),
            heartbeat: Duration::from_secs(15),
            tls: TlsSettings::default(),
        }
    }
}

impl Default for LadderSettings {
    fn default() -> Self {
        Self { rung: Duration::from_secs(1), precision: 4, max: crate::wait::MAX_DELAY }
    }
}

impl Default for ShutdownSettings {
    fn default() -> Self {
        Self { grace: Duration::from_secs(30) }
    }
}

impl Default for TraceSettings {
    fn default() -> Self {
        Self { max_age: Duration::from_secs(24 * 60 * 60) }
    }
}
