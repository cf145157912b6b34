//! Resolves settings for each queue: fills in the defaults, and checks and types the values.

use std::time::Duration;

use super::address::{InvalidUrl, uris};
use super::{
    BindingSettings, ConsumeSettings, Declare, LadderSettings, MaxAge, Order, QueueSettings,
    QueueType, RetrySettings, Settings, SettingsError, WaitQueues,
};
use crate::duration::check_bounds;
use crate::retry::backoff::Backoff;
use crate::retry::policy::{Ending, InvalidPolicy, PolicyValues, RetryPolicy};
use crate::wait::MAX_DELAY;
use crate::wait::ladder::Ladder;
use crate::wire::names::is_reserved;

/// Validated settings.
#[derive(Debug, Clone)]
pub struct Resolved {
    pub settings: Settings,
    pub queues: Vec<QueueConfig>,
}

/// One queue's validated settings.
#[derive(Debug, Clone)]
pub struct QueueConfig {
    pub queue: String,
    pub parked: String,
    pub declare: Declare,
    pub bindings: Vec<BindingSettings>,
    pub policy: RetryPolicy,
    pub prefetch: u16,
    pub concurrency: u16,
    pub handler_timeout: Duration,
    /// Whether the queue counts deliveries, as quorum queues do.
    pub counts_deliveries: bool,
    /// Which messages are handled one after the other.
    pub order: Order,
}

impl QueueConfig {
    /// Whether the queue's messages wait in wait queues of its own, where they wait in any. By
    /// default those of an existing queue do: its owner may limit it, and what it then does not
    /// take would hold up the messages of other queues.
    pub fn has_own_wait_queues(&self) -> bool {
        match self.policy.wait_queues {
            Some(wait_queues) => wait_queues == WaitQueues::Own,
            None => self.declare == Declare::Existing,
        }
    }
}

impl Resolved {
    /// The settings of a queue, whether it is listed or not.
    pub fn queue(&self, queue: &str) -> Result<QueueConfig, SettingsError> {
        match self.queues.iter().find(|config| config.queue == queue) {
            Some(config) => Ok(config.clone()),
            None => {
                let settings =
                    QueueSettings { queue: queue.to_owned(), ..QueueSettings::default() };
                coherent_config(&self.settings, &settings, "")
                    .map_err(|error| error.of_queue(queue))
            }
        }
    }

    /// The settings of a queue, with those set in code on top.
    pub(crate) fn queue_with(
        &self,
        queue: &str,
        consume: &ConsumeSettings,
        retry: Option<&RetryPolicy>,
    ) -> Result<QueueConfig, SettingsError> {
        let mut settings = self.settings.clone();
        let overrides = &mut settings.queue_mut(queue).consume;
        overrides.prefetch = consume.prefetch.or(overrides.prefetch);
        overrides.concurrency = consume.concurrency.or(overrides.concurrency);
        overrides.handler_timeout = consume.handler_timeout.or(overrides.handler_timeout);
        let mut config = settings.resolve()?.queue(queue)?;
        if let Some(policy) = retry {
            let policy = policy.clone().on_ladder(ladder(&self.settings.ladder)?);
            config.policy = policy.map_err(|InvalidPolicy { key, problem }| {
                wrong(format!("retry.{key}"), problem).of_queue(queue)
            })?;
        }
        // The order that is possible depends on the policy.
        if let Some(order) = &consume.order {
            config.order = order.clone();
        }
        config
            .check_strategy(settings.broker.consumer_timeout, &str::to_owned)
            .map_err(|error| error.of_queue(queue))?;
        Ok(config)
    }
}

fn wrong(key: impl Into<String>, problem: impl Into<String>) -> SettingsError {
    SettingsError::invalid(key.into(), problem.into())
}

impl Settings {
    /// Checks everything, and resolves each queue against the defaults.
    #[doc(hidden)]
    pub fn resolve(&self) -> Result<Resolved, SettingsError> {
        self.check_names()?;
        self.check_broker()?;
        ladder(&self.ladder)?;
        within("shutdown.grace", self.shutdown.grace, Duration::from_millis(100), hours(1))?;
        within("trace.max_age", self.trace.max_age, Duration::from_secs(1), hours(24 * 365))?;
        match self.queues.is_empty() {
            // The program will name its queues, and these defaults will be in effect for them.
            true => coherent_config(self, &unnamed(), "")?,
            false => queue_config(self, &unnamed(), "")?,
        };
        let mut queues: Vec<QueueConfig> = Vec::new();
        for (index, settings) in self.queues.iter().enumerate() {
            let key = format!("queues.{index}");
            let config = coherent_config(self, settings, &key)
                .map_err(|error| error.of_queue(&settings.queue))?;
            if queues.iter().any(|other| other.queue == config.queue) {
                return Err(wrong(
                    format!("{key}.queue"),
                    format!("queue {:?} is listed twice", config.queue),
                ));
            }
            queues.push(config);
        }
        Ok(Resolved { settings: self.clone(), queues })
    }

    /// The settings of queues that have none of their own, with every default filled in.
    pub(super) fn resolved(&self) -> Result<(RetrySettings, ConsumeSettings), SettingsError> {
        let config = queue_config(self, &unnamed(), "")?;
        let retry = RetrySettings {
            delivery_limit: Some(config.policy.delivery_limit),
            immediate: Some(config.policy.immediate),
            strategy: Some(config.policy.strategy()),
            delays: Some(Backoff::List(config.policy.delays)),
            after: Some(config.policy.after),
            wait_queues: config.policy.wait_queues,
            jitter: Some(config.policy.jitter),
            max_defers: Some(config.policy.max_defers),
            max_age: Some(MaxAge(config.policy.max_age)),
            on_exhausted: Some(config.policy.on_exhausted),
            on_expired: Some(config.policy.on_expired),
            errors: Some(config.policy.errors),
        };
        let consume = ConsumeSettings {
            prefetch: Some(config.prefetch),
            concurrency: Some(config.concurrency),
            handler_timeout: Some(config.handler_timeout),
            order: Some(config.order),
        };
        Ok((retry, consume))
    }

    fn check_names(&self) -> Result<(), SettingsError> {
        if self.namespace.is_empty() || self.namespace.len() > 200 {
            return Err(wrong("namespace", "a namespace must be 1 to 200 bytes long"));
        }
        if self.namespace.starts_with("amq.") {
            return Err(wrong(
                "namespace",
                "names that begin with \"amq.\" are reserved for the broker",
            ));
        }
        let header = self.expiry_header.as_str();
        if !is_name(header) {
            return Err(wrong("expiry_header", "a header's name must be 1 to 255 bytes long"));
        }
        if is_reserved(header) {
            return Err(wrong("expiry_header", "this header already has another meaning"));
        }
        Ok(())
    }

    fn check_broker(&self) -> Result<(), SettingsError> {
        uris(&self.broker).map_err(|InvalidUrl { key, problem }| wrong(key, problem))?;
        if self.broker.password.is_some() && self.broker.password_file.is_some() {
            return Err(wrong(
                "broker.password_file",
                "set `password` or `password_file`, not both",
            ));
        }
        if self.broker.management_url.as_ref().is_some_and(|url| !is_http(url.expose())) {
            let problem = "expected a URL such as http://127.0.0.1:15672 or https://user:password@host, percent-encoded";
            return Err(wrong("broker.management_url", problem));
        }
        within("broker.timeout", self.broker.timeout, Duration::from_secs(1), hours(1) / 6)?;
        within("broker.startup_timeout", self.broker.startup_timeout, Duration::ZERO, hours(1))?;
        within(
            "broker.consumer_timeout",
            self.broker.consumer_timeout,
            Duration::from_secs(10),
            hours(24 * 30),
        )?;
        within("broker.heartbeat", self.broker.heartbeat, Duration::from_secs(1), hours(1) / 12)?;
        match (&self.broker.tls.cert_file, &self.broker.tls.key_file) {
            (Some(_), None) => {
                Err(wrong("broker.tls.key_file", "a certificate needs its key: set `key_file` too"))
            }
            (None, Some(_)) => Err(wrong(
                "broker.tls.cert_file",
                "a key needs its certificate: set `cert_file` too",
            )),
            _ => Ok(()),
        }
    }
}

/// Whether this is a URL of HTTP with a host.
fn is_http(url: &str) -> bool {
    let rest = ["http://", "https://"].iter().find_map(|scheme| url.strip_prefix(scheme));
    let authority = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    authority
        .and_then(|authority| authority.rsplit('@').next())
        .is_some_and(|host| !host.is_empty() && !host.starts_with(':'))
}

/// Represents any queue that the settings do not list.
fn unnamed() -> QueueSettings {
    QueueSettings { queue: "any".to_owned(), ..QueueSettings::default() }
}

fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 60 * 60)
}

/// The longest name that AMQP can carry.
const MAX_NAME_BYTES: usize = 255;

fn within(
    key: &str,
    value: Duration,
    least: Duration,
    most: Duration,
) -> Result<(), SettingsError> {
    check_bounds(value, least, most).map_err(|problem| wrong(key, problem))
}

/// Whether AMQP can carry a name that is not empty.
fn is_name(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
}

/// The path of a key below this one.
fn below(key: &str, name: &str) -> String {
    if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") }
}

/// Resolves one queue, and checks that what is in effect for it fits together. `key` is the path of
/// its settings; empty for the defaults themselves.
fn coherent_config(
    settings: &Settings,
    queue: &QueueSettings,
    key: &str,
) -> Result<QueueConfig, SettingsError> {
    let config = queue_config(settings, queue, key)?;
    let (at, ack_timeout) = (|name: &str| below(key, name), settings.broker.consumer_timeout);
    config.check_handler_timeout(ack_timeout, &at)?;
    config.check_strategy(ack_timeout, &at)?;
    Ok(config)
}

/// Resolves one queue, and checks each of its settings.
fn queue_config(
    settings: &Settings,
    queue: &QueueSettings,
    key: &str,
) -> Result<QueueConfig, SettingsError> {
    let at = |name: &str| below(key, name);
    if !is_name(&queue.queue) {
        return Err(wrong(at("queue"), "a queue's name must be 1 to 255 bytes long"));
    }
    let parked = queue.parked.clone().unwrap_or_else(|| format!("{}.parked", queue.queue));
    if !is_name(&parked) {
        return Err(wrong(
            at("parked"),
            "the parked queue's name must be 1 to 255 bytes long; set a shorter one with `parked`",
        ));
    }
    if parked == queue.queue {
        return Err(wrong(at("parked"), "a queue cannot be its own parked queue"));
    }
    if queue.declare == Declare::Own && queue.queue_type == Some(QueueType::Classic) {
        return Err(wrong(
            at("queue_type"),
            "rehop declares only quorum queues; a classic queue needs `declare = \"existing\"`",
        ));
    }
    for (index, binding) in queue.bindings.iter().enumerate() {
        if !is_name(&binding.exchange) {
            let problem = "an exchange's name must be 1 to 255 bytes long; every queue is already bound to the default exchange";
            return Err(wrong(at(&format!("bindings.{index}.exchange")), problem));
        }
        if binding.routing_key.len() > MAX_NAME_BYTES {
            return Err(wrong(
                at(&format!("bindings.{index}.routing_key")),
                "a routing key may have at most 255 bytes",
            ));
        }
    }
    let policy =
        policy(&settings.retry, &queue.retry, ladder(&settings.ladder)?, queue.declare, &at)?;
    let (prefetch, concurrency, handler_timeout) = consume(&settings.consume, &queue.consume, &at)?;
    let order =
        queue.consume.order.clone().or_else(|| settings.consume.order.clone()).unwrap_or_default();
    Ok(QueueConfig {
        queue: queue.queue.clone(),
        parked,
        declare: queue.declare,
        bindings: queue.bindings.clone(),
        policy,
        prefetch,
        concurrency,
        handler_timeout,
        counts_deliveries: queue.declare == Declare::Own
            || queue.queue_type == Some(QueueType::Quorum),
        order,
    })
}

impl RetryPolicy {
    /// The policy that these settings describe. What they leave out has its default. Its ladder is
    /// the default one, until a [`Consumer`](crate::Consumer) has the policy: then it is the
    /// namespace's.
    ///
    /// ```
    /// use rehop::settings::RetrySettings;
    /// use rehop::{Backoff, RetryPolicy};
    /// use std::time::Duration;
    ///
    /// let mut settings = RetrySettings::default();
    /// settings.immediate = Some(0);
    /// settings.delays = Some(Backoff::Fixed { delay: Duration::from_secs(30), waits: 4 });
    /// assert_eq!(RetryPolicy::new(&settings)?.max_attempts(), 5);
    /// # Ok::<(), rehop::SettingsError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When a value is out of bounds, or two contradict each other; the error names the key.
    pub fn new(settings: &RetrySettings) -> Result<Self, SettingsError> {
        let ladder = ladder(&LadderSettings::default())?;
        policy(&RetrySettings::default(), settings, ladder, Declare::Own, &str::to_owned)
    }
}

fn policy(
    defaults: &RetrySettings,
    overrides: &RetrySettings,
    ladder: Ladder,
    declare: Declare,
    at: &dyn Fn(&str) -> String,
) -> Result<RetryPolicy, SettingsError> {
    let mut errors = defaults.errors.clone().unwrap_or_default();
    errors.extend(overrides.errors.clone().unwrap_or_default());
    let standard = || Backoff::List([10, 60, 600].map(Duration::from_secs).to_vec());
    let MaxAge(max_age) = overrides.max_age.or(defaults.max_age).unwrap_or(MaxAge(None));
    let values = PolicyValues {
        delivery_limit: overrides.delivery_limit.or(defaults.delivery_limit).unwrap_or(10),
        limit_is_enforced: declare == Declare::Own,
        immediate: overrides.immediate.or(defaults.immediate).unwrap_or(1),
        delays: overrides
            .delays
            .clone()
            .or_else(|| defaults.delays.clone())
            .unwrap_or_else(standard),
        strategy: overrides.strategy.or(defaults.strategy).unwrap_or_default(),
        ladder,
        after: overrides.after.or(defaults.after).unwrap_or_default(),
        wait_queues: overrides.wait_queues.or(defaults.wait_queues),
        jitter: overrides.jitter.or(defaults.jitter).unwrap_or_default(),
        max_defers: overrides.max_defers.or(defaults.max_defers).unwrap_or(100),
        max_age,
        on_exhausted: overrides.on_exhausted.or(defaults.on_exhausted).unwrap_or(Ending::Park),
        on_expired: overrides.on_expired.or(defaults.on_expired).unwrap_or(Ending::Park),
        errors,
    };
    RetryPolicy::checked(values)
        .map_err(|InvalidPolicy { key, problem }| wrong(at(&format!("retry.{key}")), problem))
}

/// The ladder that these settings describe.
fn ladder(
    LadderSettings { rung, precision, max }: &LadderSettings,
) -> Result<Ladder, SettingsError> {
    within("ladder.rung", *rung, Duration::from_millis(1), hours(24))?;
    if !(1..=8).contains(precision) {
        return Err(wrong("ladder.precision", format!("{precision} is out of bounds: 1 to 8")));
    }
    within("ladder.max", *max, *rung, MAX_DELAY)?;
    let ladder = Ladder::new(*rung, *precision, *max);
    if ladder.is_too_high() {
        return Err(wrong(
            "ladder.max",
            "rounded up to the precision, it is longer than the 49 days that a queue's TTL can be: lower it, or raise \
             ladder.precision",
        ));
    }
    Ok(ladder)
}

fn consume(
    defaults: &ConsumeSettings,
    overrides: &ConsumeSettings,
    at: &dyn Fn(&str) -> String,
) -> Result<(u16, u16, Duration), SettingsError> {
    let key = |name: &str| at(&format!("consume.{name}"));
    let prefetch = overrides.prefetch.or(defaults.prefetch).unwrap_or(100);
    if prefetch == 0 {
        return Err(wrong(
            key("prefetch"),
            "prefetch must be at least 1: without a limit, a crash would count against every message in the queue",
        ));
    }
    let said = overrides.concurrency.or(defaults.concurrency);
    let concurrency = said.unwrap_or(10.min(prefetch));
    if concurrency == 0 || concurrency > prefetch {
        let problem =
            format!("concurrency is {concurrency}, but must be 1 to prefetch, which is {prefetch}");
        return Err(wrong(key("concurrency"), problem));
    }
    let handler_timeout =
        overrides.handler_timeout.or(defaults.handler_timeout).unwrap_or(Duration::from_secs(60));
    within(&key("handler_timeout"), handler_timeout, Duration::from_millis(1), hours(24))?;
    Ok((prefetch, concurrency, handler_timeout))
}
