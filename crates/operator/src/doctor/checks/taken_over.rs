//! Work queues that somebody else declares: what rehop cannot set, and relies on.

use super::queue;
use crate::doctor::check::Check;
use crate::doctor::observed::{DeliveryLimit, Observed, QueueDetails};
use crate::doctor::report::Finding;
use crate::doctor::subject::Subject;
use rehop::internals::QueueConfig;
use rehop::settings::Declare;

pub(super) const POLICY: &str =
    "set the policy that `rehop topology export --format policies` prints";

pub(super) fn check(subject: &Subject, seen: &Observed) -> Vec<Finding> {
    let Some(management) = &seen.management else { return Vec::new() };
    let mut found = Vec::new();
    for config in &subject.configs {
        let Some(details) = management.queues.get(&config.queue) else { continue };
        found.extend(order(config, details));
        if config.declare == Declare::Own {
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
            found.extend(limit(config, details, management.version()));
        }
        // A policy may set everything of it.
        if details.effective_policy.is_some() {
            found.extend(dead_lettering(config, details, &subject.names.park()));
        }
    }
    found
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
        details.arguments.get("x-single-active-consumer").and_then(serde_json::Value::as_bool)
            == Some(true);
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

fn limit(config: &QueueConfig, details: &QueueDetails, version: Option<&str>) -> Option<Finding> {
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
    let remedy = match effective {
        Some(limit) => format!("set retry.delivery_limit to {limit} for this queue, or {POLICY}"),
        None => POLICY.to_owned(),
    };
    Some(Finding::new(check, queue(&config.queue), seen, remedy))
}

fn dead_lettering(config: &QueueConfig, details: &QueueDetails, park: &str) -> Option<Finding> {
    let object = queue(&config.queue);
    let missing = |seen: String| {
        Some(Finding::new(Check::NoDeadLetterExchange, object.clone(), seen, POLICY))
    };
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
    Some(Finding::new(Check::AtMostOnce, object, seen, POLICY))
}
