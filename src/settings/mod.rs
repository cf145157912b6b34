//! Settings: plain structs, loaded in layers and validated into plans.

mod load;
mod plan;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use load::{Entry, Loader, SettingsError};
pub(crate) use plan::{Plan, QueuePlan};

use crate::backoff::Backoff;
use crate::duration;
use crate::policy::{Ending, Treatment};

const DEFAULT_URL: &str = "amqp://guest:guest@127.0.0.1:5672/%2f";

/// Everything that can be tuned. `config/default.toml` in the repository documents each key with unit, default and bounds.
///
/// Later layers win: built-in defaults, `config/default.toml`, `config/<profile>.toml` for the profile that `REHOP_PROFILE`
/// names, the file that `REHOP_CONFIG` names, variables such as `REHOP_BROKER__URL`, and what the program [sets](Loader::set).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Settings {
    /// Prefix of all exchanges and queues that belong to this service; by default the program's name when
    /// [loaded](Settings::load), else `rehop`. At most 200 bytes.
    #[serde(deserialize_with = "text")]
    pub namespace: String,
    /// Whether exchanges, queues and bindings are declared, or only looked for. Default `declare`.
    pub topology: TopologyMode,
    /// The header in which producers may give a deadline, in milliseconds since the epoch. Default `rehop-expires-at`.
    #[serde(deserialize_with = "text")]
    pub expiry_header: String,
    /// The broker and how to talk to it.
    pub broker: BrokerSettings,
    /// The retry policy of queues that say nothing else.
    pub retry: RetrySettings,
    /// How queues that say nothing else are consumed.
    pub consume: ConsumeSettings,
    /// How to stop.
    pub shutdown: ShutdownSettings,
    /// How chains are traced.
    pub trace: TraceSettings,
    /// The queues. One that is consumed and not listed gets the defaults.
    pub queues: Vec<QueueSettings>,
}

/// What to do about the topology at the start and after each reconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TopologyMode {
    /// Declare what is rehop's own.
    #[default]
    Declare,
    /// Only look whether exchanges and queues exist, for users that may not configure. Bindings cannot be looked at.
    Check,
}

/// The broker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct BrokerSettings {
    /// `amqp://` or `amqps://` user:password@host:port/vhost, percent-encoded. Default `amqp://guest:guest@127.0.0.1:5672/%2f`.
    #[serde(deserialize_with = "secret", serialize_with = "masked_url")]
    pub url: SecretString,
    /// The user, in place of the one in the URL.
    #[serde(deserialize_with = "optional_text", skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// The password, in place of the one in the URL.
    #[serde(deserialize_with = "optional_secret", serialize_with = "masked", skip_serializing_if = "Option::is_none")]
    pub password: Option<SecretString>,
    /// How long to wait for any one answer of the broker before the connection is given up. Default 30s, 1s to 10m.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// How long the start keeps trying while the broker is away; afterwards reconnecting never ends. Default 30s, 0s to 1h.
    #[serde(with = "duration")]
    pub startup_timeout: Duration,
    /// How often a silent connection is probed. Default 15s, 1s to 5m.
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
    /// Authorities to trust beside the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// This client's certificate, for mutual TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    /// The key of `cert_file`, unencrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
}

/// How often and when to try again. What is left out is taken from the next wider layer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RetrySettings {
    /// `x-delivery-limit` of the work queue: how often the broker gives a message back before it parks it. Default 10, 1 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_limit: Option<u32>,
    /// Attempts at once before each wait. Default 1; must be below `delivery_limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub immediate: Option<u32>,
    /// How long each wait lasts. Default 10s, 1m, 10m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delays: Option<Backoff>,
    /// Deadline of messages that bring none, from their first delivery on: a duration, or `"none"`, which is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age: Option<MaxAge>,
    /// What becomes of a message when all attempts have failed: `park`, which is the default, or `discard`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_exhausted: Option<Ending>,
    /// What becomes of a message when it is expired: `park`, which is the default, or `discard`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_expired: Option<Ending>,
    /// How failures of a class are treated when the handler left it open: `transient`, `requeue`, `permanent` or `discard`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<BTreeMap<String, Treatment>>,
}

/// A limit of age, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxAge(pub Option<Duration>);

/// How a queue is consumed. What is left out is taken from the next wider layer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ConsumeSettings {
    /// How many messages the broker sends ahead. Default 100, 1 to 65535.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<u16>,
    /// How many handlers run at a time. Default 10; at most `prefetch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u16>,
    /// How long one attempt may take before it is a transient failure of class `timeout`. Default 1m, 1ms to 1d.
    #[serde(with = "optional_duration", skip_serializing_if = "Option::is_none")]
    pub handler_timeout: Option<Duration>,
}

/// How to stop.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ShutdownSettings {
    /// How long running handlers may go on. What is unfinished then is left to the broker. Default 30s, 0s to 1h.
    #[serde(with = "duration")]
    pub grace: Duration,
}

/// How chains are traced.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TraceSettings {
    /// Chains older than this go on in a new trace that links back. Default 1d, 1s to 365d.
    #[serde(with = "duration")]
    pub max_age: Duration,
}

/// One queue.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct QueueSettings {
    /// Its name, at most 255 bytes.
    #[serde(deserialize_with = "text")]
    pub queue: String,
    /// Whether rehop declares it, or takes it as somebody else declared it. Default `own`.
    pub declare: Declare,
    /// Whether an `existing` queue is `quorum` or `classic`, which is the default: a classic queue does not count deliveries,
    /// so that no redelivered message is tried at once. Queues of our own are quorum queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_type: Option<QueueType>,
    /// Where parked messages go. Default `<queue>.parked`.
    #[serde(deserialize_with = "optional_text", skip_serializing_if = "Option::is_none")]
    pub parked: Option<String>,
    /// Bindings of the queue to the publishers' exchanges, which must exist.
    pub bindings: Vec<BindingSettings>,
    /// Its retry policy.
    pub retry: RetrySettings,
    /// How it is consumed.
    pub consume: ConsumeSettings,
}

/// Who declares a work queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Declare {
    /// rehop does, with its arguments.
    #[default]
    Own,
    /// Somebody else does. It is taken as it is: its delivery limit and where that leads cannot be checked.
    Existing,
}

/// The type of a queue that somebody else declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum QueueType {
    /// Counts deliveries.
    Quorum,
    /// Does not.
    Classic,
}

/// A binding to a publisher's exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BindingSettings {
    /// The exchange.
    #[serde(deserialize_with = "text")]
    pub exchange: String,
    /// The routing key or pattern. Default empty.
    #[serde(default, deserialize_with = "text")]
    pub routing_key: String,
}

impl BindingSettings {
    /// A binding to this exchange, with this routing key or pattern.
    pub fn new(exchange: impl Into<String>, routing_key: impl Into<String>) -> Self {
        Self { exchange: exchange.into(), routing_key: routing_key.into() }
    }
}

impl Settings {
    /// The settings of this process: all layers, from `config/` in the working directory.
    ///
    /// # Errors
    ///
    /// When a file that was named is missing or a value is wrong; the error names the key and where it was set.
    pub fn load() -> Result<Self, SettingsError> {
        Loader::new().load()
    }

    /// The settings of one queue, to be changed in place; added if it is not there yet.
    ///
    /// ```
    /// let mut settings = rehop::Settings::default();
    /// settings.queue_mut("orders").retry.immediate = Some(0);
    /// assert_eq!(settings.queues.len(), 1);
    /// ```
    pub fn queue_mut(&mut self, queue: &str) -> &mut QueueSettings {
        let index = self.queues.iter().position(|settings| settings.queue == queue).unwrap_or_else(|| {
            self.queues.push(QueueSettings { queue: queue.to_owned(), ..QueueSettings::default() });
            self.queues.len() - 1
        });
        &mut self.queues[index]
    }

    /// The retry policy that a queue gets.
    ///
    /// # Errors
    ///
    /// When the settings contradict themselves.
    pub fn policy(&self, queue: &str) -> Result<crate::RetryPolicy, SettingsError> {
        Ok(self.plan()?.queue(queue)?.policy)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: "rehop".to_owned(),
            topology: TopologyMode::default(),
            expiry_header: crate::headers::EXPIRES_AT.to_owned(),
            broker: BrokerSettings::default(),
            retry: RetrySettings::default(),
            consume: ConsumeSettings::default(),
            shutdown: ShutdownSettings::default(),
            trace: TraceSettings::default(),
            queues: Vec::new(),
        }
    }
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self {
            url: SecretString::from(DEFAULT_URL),
            username: None,
            password: None,
            timeout: Duration::from_secs(30),
            startup_timeout: Duration::from_secs(30),
            heartbeat: Duration::from_secs(15),
            tls: TlsSettings::default(),
        }
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

impl Serialize for MaxAge {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(max_age) => duration::serialize(&max_age, serializer),
            None => serializer.serialize_str("none"),
        }
    }
}

impl<'de> Deserialize<'de> for MaxAge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = text(deserializer)?;
        if text == "none" {
            return Ok(Self(None));
        }
        let wrong = || serde::de::Error::custom("expected a duration such as \"1d\", or \"none\"");
        humantime::parse_duration(&text).map(|max_age| Self(Some(max_age))).map_err(|_| wrong())
    }
}

/// A list of queues in a variable is parsed before it comes here, and a name of digits arrives as a number. A fraction is refused:
/// it may have been written in another way than it would be printed.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct Visitor;

    impl serde::de::Visitor<'_> for Visitor {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text")
        }

        fn visit_str<E>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }

        fn visit_bool<E>(self, value: bool) -> Result<String, E> {
            Ok(value.to_string())
        }

        fn visit_i64<E>(self, number: i64) -> Result<String, E> {
            Ok(number.to_string())
        }

        fn visit_u64<E>(self, number: u64) -> Result<String, E> {
            Ok(number.to_string())
        }
    }

    deserializer.deserialize_any(Visitor)
}

fn optional_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    text(deserializer).map(Some)
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    text(deserializer).map(SecretString::from)
}

fn optional_secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    secret(deserializer).map(Some)
}

const MASK: &str = "***";

fn masked<S: Serializer>(_: &Option<SecretString>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(MASK)
}

fn masked_url<S: Serializer>(url: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&mask_url(url.expose_secret()))
}

/// A URL without its password; without anything if it is none.
fn mask_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return MASK.to_owned() };
    // A password may hold any character that its owner forgot to encode, so the last `@` counts.
    let Some((user_info, host)) = rest.rsplit_once('@') else { return url.to_owned() };
    match user_info.split_once(':') {
        Some((user, _)) => format!("{scheme}://{user}:{MASK}@{host}"),
        None => url.to_owned(),
    }
}

mod optional_duration {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    use crate::duration;

    pub(super) fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => duration::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        duration::deserialize(deserializer).map(Some)
    }
}
