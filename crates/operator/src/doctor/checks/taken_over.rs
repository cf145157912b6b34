//! Work queues that somebody else declares: what rehop cannot set, and relies on.

use serde_json::Value;

use super::queue;
use crate::doctor::check::Check;
use crate::doctor::observed::{DeliveryLimit, Observed, QueueDetails};
use crate::doctor::report::Finding;
use crate::doctor::subject::Subject;
use rehop::QueueKind;
use rehop::internals::QueueConfig;
use rehop::settings::Declare;

const POLICY: &str = "set the policy that `rehop topology export --format policies` prints";

/// The advice to set the exported policy, or another one if the queue has dead-lettering of its
/// own: the broker takes each key for itself, an argument before a policy (3.10, 4.0 and 4.3).
pub(super) fn policy(config: &QueueConfig, details: &QueueDetails, park: &str) -> String {
    let Some(own) = own_dead_lettering(config, details, park) else { return POLICY.to_owned() };
    if details.kind != "quorum" {
        return format!(
            "move to a queue without dead-letter arguments: no policy helps, because {own}"
        );
    }
    format!(
        "set a policy with delivery-limit {} alone, and not the exported one, whose other keys do not fit: {own}",
        config.policy.delivery_limit()
    )
}

/// The queue's own arguments that stay whatever a policy says, if they do not fit the exported one,
/// and where its messages would go with both.
pub(in crate::doctor) fn own_dead_lettering(
    config: &QueueConfig,
    details: &QueueDetails,
    park: &str,
) -> Option<String> {
    let argument = |key: &str| details.arguments.get(&format!("x-{key}")).and_then(Value::as_str);
    let exchange = argument("dead-letter-exchange").filter(|exchange| *exchange != park);
    let key = argument("dead-letter-routing-key");
    let queue = &config.queue;
    match (exchange, key) {
        (Some(exchange), None) => Some(format!(
            "the argument x-dead-letter-exchange stays, so what the queue dead-letters would come to exchange {exchange:?} with the \
             routing key {queue:?} in place of the message's own"
        )),
        (Some(exchange), Some(key)) => Some(format!(
            "the arguments stay, so what the queue dead-letters goes to exchange {exchange:?} with the routing key {key:?}, and not to \
             {park:?}"
        )),
        (None, Some(key)) if key != queue => Some(format!(
            "the argument x-dead-letter-routing-key stays, so what the queue dead-letters would come to {park:?} with the routing key \
             {key:?}, and from there to the stray queue"
        )),
        (None, _) => None,
    }
}

pub(super) fn check(subject: &Subject, seen: &Observed) -> Vec<Finding> {
    let Some(management) = &seen.management else { return Vec::new() };
    let park = subject.names.park();
    let mut found = Vec::new();
    for config in &subject.configs {
        let Some(details) = management.queues.get(&config.queue) else { continue };
        found.extend(order(config, details));
        if config.declare == Declare::Own {
            continue;
        }
        if let Some(kind) = unsuitable(details) {
            found.push(Finding::new(
                Check::QueueUnsuitable,
                queue(&config.queue),
                format!("it {kind}"),
                "consume another queue: see \"Kinds of existing queues\" in the migration page",
            ));
            continue;
        }
        if details.kind == "classic" {
            found.push(Finding::new(
                Check::ClassicQueue,
                queue(&config.queue),
                "it is a classic queue: nothing stops a message that crashes its consumer, and dead-lettering may lose messages",
                "move to a quorum queue: see \"A classic queue\" in the migration page",
            ));
        }
        found.extend(of_type(config, details));
        if details.kind == "quorum" {
            found.extend(limit(config, details, management.version(), &park));
        }
        // A policy may set everything of it.
        if details.effective_policy.is_some() {
            found.extend(dead_lettering(config, details, &park));
        }
    }
    found
}

/// The kind of a queue that no service can consume.
fn unsuitable(details: &QueueDetails) -> Option<QueueKind> {
    match details.kind.as_str() {
        "stream" => Some(QueueKind::Stream),
        // An empty type is unknown.
        "" | "classic" | "quorum" => match (details.exclusive, details.auto_delete) {
            (true, _) => Some(QueueKind::Exclusive),
            (_, true) => Some(QueueKind::AutoDelete),
            (false, false) => None,
        },
        other => Some(QueueKind::Other(other.to_owned())),
    }
}

fn of_type(config: &QueueConfig, details: &QueueDetails) -> Option<Finding> {
    let (is, said) = match (details.kind.as_str(), config.counts_deliveries) {
        ("quorum", false) => ("quorum", "classic, the default"),
        ("classic", true) => ("classic", "quorum"),
        _ => return None,
    };
    let seen = format!("it is a {is} queue, and the settings say {said}");
    let remedy = format!("set `queue_type = \"{is}\"` for this queue");
    Some(Finding::new(Check::QueueTypeDiffers, queue(&config.queue), seen, remedy))
}

/// A single active consumer is what keeps the order, and costs speed. A queue that rehop declares
/// has one as the settings say, or has other arguments than they ask for.
fn order(config: &QueueConfig, details: &QueueDetails) -> Option<Finding> {
    let has_single =
        details.arguments.get("x-single-active-consumer").and_then(Value::as_bool) == Some(true);
    match (config.order.is_kept(), has_single) {
        (false, true) => Some(Finding::new(
            Check::SingleActiveConsumer,
            queue(&config.queue),
            "x-single-active-consumer is set: of rehop's subscriptions the broker serves only the first, with a prefetch of 1",
            "move to a queue without it, if order does not matter: see the migration page; if it does, set consume.order",
        )),
        (true, false) if config.declare == Declare::Existing => Some(Finding::new(
            Check::OrderNotKept,
            queue(&config.queue),
            "consume.order is set, and the queue has no x-single-active-consumer: every instance of the service takes messages at once",
            "move to a queue that has it; no policy can set it",
        )),
        _ => None,
    }
}

fn limit(
    config: &QueueConfig,
    details: &QueueDetails,
    version: Option<&str>,
    park: &str,
) -> Option<Finding> {
    let wanted = i64::from(config.policy.delivery_limit());
    let set = details.delivery_limit(version);
    // 4.0 and later have a default limit; 3.10 has none.
    let default =
        version.and_then(|version| if version.starts_with("3.") { None } else { Some(20) });
    let effective = match set {
        DeliveryLimit::At(limit) => Some(limit),
        // Nor is the default known without the version.
        DeliveryLimit::Unset => {
            version?;
            default
        }
        DeliveryLimit::Unlimited => None,
        DeliveryLimit::Unknown => return None,
    };
    let said = match (set, effective) {
        (DeliveryLimit::Unset, Some(limit)) => {
            format!(
                "it has no delivery limit of its own, so the broker's default of {limit} applies"
            )
        }
        (_, Some(limit)) => format!("its delivery limit is {limit}"),
        (_, None) => {
            "it has no delivery limit: a message that crashes its consumer comes again forever"
                .to_owned()
        }
    };
    let seen = format!("{said}, and retry.delivery_limit is {wanted}");
    let check = match effective {
        Some(limit) if limit == wanted => return None,
        Some(limit) if limit < wanted => Check::DeliveryLimitLowered,
        _ => Check::DeliveryLimitDiffers,
    };
    let policy = policy(config, details, park);
    let remedy = match effective {
        Some(limit) => format!("set retry.delivery_limit to {limit} for this queue, or {policy}"),
        None => policy,
    };
    Some(Finding::new(check, queue(&config.queue), seen, remedy))
}

fn dead_lettering(config: &QueueConfig, details: &QueueDetails, park: &str) -> Option<Finding> {
    let object = queue(&config.queue);
    let missing = |seen: String| {
        let remedy = policy(config, details, park);
        Some(Finding::new(Check::NoDeadLetterExchange, object.clone(), seen, remedy))
    };
    if let Some(mixed) = mixed(details) {
        let remedy = format!(
            "remove dead-letter-exchange and dead-letter-routing-key from {}: no policy overrides an argument",
            details.policies()
        );
        return Some(Finding::new(Check::NoDeadLetterExchange, object, mixed, remedy));
    }
    let Some(exchange) = details.text("dead-letter-exchange") else {
        return missing(
            "it has no dead-letter exchange: the broker drops messages at the delivery limit"
                .to_owned(),
        );
    };
    let key = details.text("dead-letter-routing-key");
    if exchange == park && key != Some(&config.queue) {
        let key = key.map_or_else(|| "the message's own".to_owned(), |key| format!("{key:?}"));
        return missing(format!(
            "it dead-letters to {park:?} with the routing key {key} in place of {:?}, so to the stray queue",
            config.queue
        ));
    }
    if details.kind != "quorum" || details.dead_letters_at_least_once() {
        return None;
    }
    let strategy = details.text("dead-letter-strategy").unwrap_or("at-most-once");
    let overflow = details.text("overflow").unwrap_or("drop-head");
    let seen = format!(
        "dead-letter-strategy is {strategy} and overflow is {overflow}: the broker may lose messages that it dead-letters"
    );
    Some(Finding::new(Check::AtMostOnce, object, seen, policy(config, details, park)))
}

/// A policy of which only a part is in effect, because an argument takes the place of the other:
/// messages go to an exchange with a routing key that is for another one.
fn mixed(details: &QueueDetails) -> Option<String> {
    let argument = |key: &str| details.arguments.get(&format!("x-{key}")).and_then(Value::as_str);
    let by_policy = |key: &str| details.by_policy(key).and_then(Value::as_str);
    let [exchange, key] = ["dead-letter-exchange", "dead-letter-routing-key"];
    let of_policy = (by_policy(exchange)?, by_policy(key)?);
    let source = details.policies();
    match (argument(exchange), argument(key)) {
        (Some(own), None) if own != of_policy.0 => Some(format!(
            "the argument x-dead-letter-exchange names {own:?}, and {source} the routing key {:?} for {:?}: what the queue dead-letters \
             comes to {own:?} with that key in place of the message's own",
            of_policy.1, of_policy.0
        )),
        (None, Some(own)) if own != of_policy.1 => Some(format!(
            "{source} names the dead-letter exchange {:?} with the routing key {:?}, and the argument x-dead-letter-routing-key is {own:?}: \
             what the queue dead-letters comes to {:?} with the latter",
            of_policy.0, of_policy.1, of_policy.0
        )),
        _ => None,
    }
}
