//! From settings to plans: everything resolved, checked and typed.

use std::time::Duration;

use super::{
    BindingSettings, ConsumeSettings, Declare, MaxAge, QueueSettings, QueueType, RetrySettings, Settings, SettingsError,
};
use crate::backoff::Backoff;
use crate::headers::{self, Contract};
use crate::policy::{Ending, RetryPolicy};
use crate::tiers::Tiers;
use crate::topology::{self, MAX_NAME_BYTES, Names, Topology};

/// Validated settings.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    pub(crate) names: Names,
    queues: Vec<QueuePlan>,
}

/// One queue's validated settings.
#[derive(Debug, Clone)]
pub(crate) struct QueuePlan {
    pub(crate) queue: String,
    pub(crate) parked: String,
    pub(crate) declare: Declare,
    pub(crate) bindings: Vec<BindingSettings>,
    pub(crate) policy: RetryPolicy,
    pub(crate) prefetch: u16,
    pub(crate) concurrency: u16,
    pub(crate) handler_timeout: Duration,
    pub(crate) contract: Contract,
}

impl Plan {
    /// The plan of a queue, whether the settings list it or not.
    pub(crate) fn queue(&self, queue: &str) -> Result<QueuePlan, SettingsError> {
        match self.queues.iter().find(|plan| plan.queue == queue) {
            Some(plan) => Ok(plan.clone()),
            None => {
                let settings = QueueSettings { queue: queue.to_owned(), ..QueueSettings::default() };
                queue_plan(&self.settings, &self.names, &settings, "queue")
            }
        }
    }

    pub(crate) fn topology(&self) -> Topology {
        topology::build(&self.names, &self.queues)
    }
}

fn wrong(key: impl Into<String>, problem: impl Into<String>) -> SettingsError {
    SettingsError::invalid(key.into(), problem.into())
}

impl Settings {
    /// Checks everything, and resolves each queue against the defaults.
    pub(crate) fn plan(&self) -> Result<Plan, SettingsError> {
        self.check_names()?;
        self.check_broker()?;
        within("shutdown.grace", self.shutdown.grace, Duration::ZERO, hours(1))?;
        within("trace.max_age", self.trace.max_age, Duration::from_secs(1), hours(24 * 365))?;
        let names = Names::new(&self.namespace);
        queue_plan(self, &names, &unnamed(), "")?;
        let mut queues: Vec<QueuePlan> = Vec::new();
        for (index, settings) in self.queues.iter().enumerate() {
            let key = format!("queues.{index}");
            let plan = queue_plan(self, &names, settings, &key)?;
            if queues.iter().any(|other| other.queue == plan.queue) {
                return Err(wrong(format!("{key}.queue"), format!("queue {:?} is listed twice", plan.queue)));
            }
            queues.push(plan);
        }
        Ok(Plan { settings: self.clone(), names, queues })
    }

    /// What queues that say nothing themselves get, with every default filled in.
    pub(super) fn resolved(&self) -> Result<(RetrySettings, ConsumeSettings), SettingsError> {
        let plan = queue_plan(self, &Names::new(&self.namespace), &unnamed(), "")?;
        let retry = RetrySettings {
            delivery_limit: Some(plan.policy.delivery_limit),
            immediate: Some(plan.policy.immediate),
            delays: Some(Backoff::List(plan.policy.delays)),
            max_age: Some(MaxAge(plan.policy.max_age)),
            on_exhausted: Some(plan.policy.on_exhausted),
            on_expired: Some(plan.policy.on_expired),
            errors: Some(plan.policy.errors),
        };
        let consume = ConsumeSettings {
            prefetch: Some(plan.prefetch),
            concurrency: Some(plan.concurrency),
            handler_timeout: Some(plan.handler_timeout),
        };
        Ok((retry, consume))
    }

    fn check_names(&self) -> Result<(), SettingsError> {
        if self.namespace.is_empty() || self.namespace.len() > 200 {
            return Err(wrong("namespace", "a namespace has 1 to 200 bytes"));
        }
        if self.namespace.starts_with("amq.") {
            return Err(wrong("namespace", "names that begin with \"amq.\" are the broker's own"));
        }
        let header = self.expiry_header.as_str();
        if header.is_empty() || header.len() > MAX_NAME_BYTES {
            return Err(wrong("expiry_header", "a header's name has 1 to 255 bytes"));
        }
        let reserved = !headers::travels(header) && header != headers::EXPIRES_AT;
        if reserved || [headers::RETURN_TO, headers::WAIT_FOR, "traceparent", "tracestate", "baggage"].contains(&header)
        {
            return Err(wrong("expiry_header", "that header has another meaning already"));
        }
        Ok(())
    }

    fn check_broker(&self) -> Result<(), SettingsError> {
        crate::connection::uri(&self.broker).map_err(|problem| wrong("broker.url", problem))?;
        within("broker.timeout", self.broker.timeout, Duration::from_secs(1), hours(1) / 6)?;
        within("broker.startup_timeout", self.broker.startup_timeout, Duration::ZERO, hours(1))?;
        within("broker.heartbeat", self.broker.heartbeat, Duration::from_secs(1), hours(1) / 12)?;
        match (&self.broker.tls.cert_file, &self.broker.tls.key_file) {
            (Some(_), None) => Err(wrong("broker.tls.key_file", "a certificate needs its key: set `key_file` too")),
            (None, Some(_)) => Err(wrong("broker.tls.cert_file", "a key needs its certificate: set `cert_file` too")),
            _ => Ok(()),
        }
    }
}

/// Stands for any queue that the settings do not list.
fn unnamed() -> QueueSettings {
    QueueSettings { queue: "any".to_owned(), ..QueueSettings::default() }
}

fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 60 * 60)
}

const DAY: u64 = 24 * 60 * 60;

fn within(key: &str, value: Duration, least: Duration, most: Duration) -> Result<(), SettingsError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    // humantime's years and months are averages, in which no bound is a round number.
    let text = |duration: Duration| match duration.as_secs() {
        secs if secs >= DAY && duration == Duration::from_secs(secs / DAY * DAY) => format!("{}d", secs / DAY),
        _ => humantime::format_duration(duration).to_string(),
    };
    Err(wrong(key, format!("{} is out of bounds: {} to {}", text(value), text(least), text(most))))
}

/// One queue's plan. `key` is where its settings stand; empty for the defaults themselves.
fn queue_plan(
    settings: &Settings,
    names: &Names,
    queue: &QueueSettings,
    key: &str,
) -> Result<QueuePlan, SettingsError> {
    let at = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
    if queue.queue.is_empty() || queue.queue.len() > MAX_NAME_BYTES {
        return Err(wrong(at("queue"), "a queue's name has 1 to 255 bytes"));
    }
    let parked = queue.parked.clone().unwrap_or_else(|| format!("{}.parked", queue.queue));
    if parked.is_empty() || parked.len() > MAX_NAME_BYTES {
        return Err(wrong(
            at("parked"),
            "the parked queue's name has 1 to 255 bytes; name a shorter one with `parked`",
        ));
    }
    if parked == queue.queue {
        return Err(wrong(at("parked"), "a queue cannot be its own parked queue"));
    }
    if queue.declare == Declare::Own && queue.queue_type == Some(QueueType::Classic) {
        return Err(wrong(
            at("queue_type"),
            "rehop declares quorum queues; a classic one needs `declare = \"existing\"`",
        ));
    }
    for (index, binding) in queue.bindings.iter().enumerate() {
        if binding.exchange.is_empty() || binding.exchange.len() > MAX_NAME_BYTES {
            let problem = "an exchange's name has 1 to 255 bytes; every queue is bound to the default exchange already";
            return Err(wrong(at(&format!("bindings.{index}.exchange")), problem));
        }
        if binding.routing_key.len() > MAX_NAME_BYTES {
            return Err(wrong(at(&format!("bindings.{index}.routing_key")), "a routing key has at most 255 bytes"));
        }
    }
    let policy = policy(&settings.retry, &queue.retry, queue.declare, &at)?;
    let (prefetch, concurrency, handler_timeout) = consume(&settings.consume, &queue.consume, &at)?;
    let contract = Contract {
        queue: queue.queue.clone(),
        return_exchange: names.return_(),
        expiry_header: settings.expiry_header.clone(),
        max_age: policy.max_age,
        counts_deliveries: queue.declare == Declare::Own || queue.queue_type == Some(QueueType::Quorum),
    };
    Ok(QueuePlan {
        queue: queue.queue.clone(),
        parked,
        declare: queue.declare,
        bindings: queue.bindings.clone(),
        policy,
        prefetch,
        concurrency,
        handler_timeout,
        contract,
    })
}

fn policy(
    wide: &RetrySettings,
    own: &RetrySettings,
    declare: Declare,
    at: &dyn Fn(&str) -> String,
) -> Result<RetryPolicy, SettingsError> {
    let key = |name: &str| at(&format!("retry.{name}"));
    let delivery_limit = own.delivery_limit.or(wide.delivery_limit).unwrap_or(10);
    let immediate = own.immediate.or(wide.immediate).unwrap_or(1);
    if !(1..=1000).contains(&delivery_limit) {
        return Err(wrong(key("delivery_limit"), format!("{delivery_limit} is out of bounds: 1 to 1000")));
    }
    if immediate >= delivery_limit && declare == Declare::Own {
        return Err(wrong(
            key("immediate"),
            format!(
                "immediate is {immediate} and delivery_limit is {delivery_limit}: the broker would park a message before its \
                 attempts are used up, and it would never wait; raise delivery_limit above immediate"
            ),
        ));
    }
    let standard = || Backoff::List([10, 60, 600].map(Duration::from_secs).to_vec());
    let backoff = own.delays.clone().or_else(|| wide.delays.clone()).unwrap_or_else(standard);
    backoff.check().map_err(|problem| wrong(key("delays"), problem))?;
    let MaxAge(max_age) = own.max_age.or(wide.max_age).unwrap_or(MaxAge(None));
    if let Some(max_age) = max_age {
        within(&key("max_age"), max_age, Duration::from_millis(1), hours(24 * 365 * 10))?;
    }
    let mut errors = wide.errors.clone().unwrap_or_default();
    errors.extend(own.errors.clone().unwrap_or_default());
    let delays = backoff.delays();
    Ok(RetryPolicy {
        delivery_limit,
        immediate,
        tiers: Tiers::new(delays.iter().copied()),
        delays,
        max_age,
        on_exhausted: own.on_exhausted.or(wide.on_exhausted).unwrap_or(Ending::Park),
        on_expired: own.on_expired.or(wide.on_expired).unwrap_or(Ending::Park),
        errors,
    })
}

fn consume(
    wide: &ConsumeSettings,
    own: &ConsumeSettings,
    at: &dyn Fn(&str) -> String,
) -> Result<(u16, u16, Duration), SettingsError> {
    let key = |name: &str| at(&format!("consume.{name}"));
    let prefetch = own.prefetch.or(wide.prefetch).unwrap_or(100);
    if prefetch == 0 {
        return Err(wrong(
            key("prefetch"),
            "prefetch must be at least 1: without a limit a crash charges the whole queue",
        ));
    }
    let said = own.concurrency.or(wide.concurrency);
    let concurrency = said.unwrap_or(10.min(prefetch));
    if concurrency == 0 || concurrency > prefetch {
        let problem = format!("concurrency is {concurrency}, and must be 1 to prefetch, which is {prefetch}");
        return Err(wrong(key("concurrency"), problem));
    }
    let handler_timeout = own.handler_timeout.or(wide.handler_timeout).unwrap_or(Duration::from_secs(60));
    within(&key("handler_timeout"), handler_timeout, Duration::from_millis(1), hours(24))?;
    Ok((prefetch, concurrency, handler_timeout))
}
