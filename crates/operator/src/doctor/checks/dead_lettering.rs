//! Whether what the queues dead-letter has somewhere to go.

use super::parts::PLAN;
use super::queue;
use super::taken_over::policy;
use crate::doctor::check::Check;
use crate::doctor::dead_letters::{WayBack, ways};
use crate::doctor::observed::{Management, Object, Observed, QueueDetails};
use crate::doctor::report::Finding;
use crate::doctor::routing::Share;
use crate::doctor::subject::Subject;
use rehop::settings::Declare;
use rehop::topology::{Queue, Role};

pub(super) fn check(subject: &Subject, seen: &Observed) -> Vec<Finding> {
    let Some(management) = &seen.management else { return Vec::new() };
    let found = subject.topology.queues.iter().filter_map(|wanted| {
        let details = management.queues.get(&wanted.name)?;
        missing(wanted, details, subject, management)
            .or_else(|| leads_wrong(wanted, details, subject, management))
    });
    found.collect()
}

/// An exchange of rehop's own that is missing is a finding by itself.
fn missing(
    wanted: &Queue,
    details: &QueueDetails,
    subject: &Subject,
    management: &Management,
) -> Option<Finding> {
    let exchange = details.dead_letter_exchange()?;
    if management.exchanges.contains_key(exchange) || subject.is_own_exchange(exchange) {
        return None;
    }
    let source = source(details);
    let harm = harm(details);
    let policy = || policy_for(wanted, details, subject);
    let seen = format!("{source} names exchange {exchange:?}, which does not exist: {harm}");
    let declare = || format!("declare exchange {exchange:?} and bind a queue to it");
    let remedy = match (wanted.declare, is_by_argument(details)) {
        (Declare::Own, true) => PLAN.to_owned(),
        (Declare::Own, false) => format!("exclude the queue from {source}"),
        (_, true) => format!("{}; an argument cannot be changed in place", declare()),
        (_, false) => format!("{}, or {}", declare(), policy()),
    };
    Some(Finding::new(Check::DeadLetterExchangeMissing, queue(&wanted.name), seen, remedy))
}

/// What becomes of messages that come to no queue.
fn harm(details: &QueueDetails) -> &'static str {
    if details.dead_letters_at_least_once() {
        "the broker holds what it dead-letters where no consumer can get it"
    } else {
        "the broker loses what it dead-letters, without a word"
    }
}

/// Finds a way back to the queue, or no way to any. Only in existing queues: those that rehop
/// declares dead-letter to their parked queue.
fn leads_wrong(
    wanted: &Queue,
    details: &QueueDetails,
    subject: &Subject,
    management: &Management,
) -> Option<Finding> {
    if wanted.role != Role::Work || wanted.declare != Declare::Existing {
        return None;
    }
    let ways = ways(&wanted.name, management, &subject.names)?;
    let is_own =
        |object: &Object| matches!(object, Object::Exchange(name) if subject.is_own_exchange(name));
    let is_absent = |object: &Object| management.absent.contains(object) && !is_own(object);
    match ways.back {
        Some(way) => Some(cycle(wanted, details, &way, subject)),
        None if !ways.arrive && ways.unknown.iter().all(is_absent) => {
            Some(unroutable(wanted, details, subject))
        }
        None => None,
    }
}

/// A message at the delivery limit that would come back to its queue is in a dead-letter cycle. The
/// broker drops it, or holds it in the queue from which it should go on (3.10, 4.0 and 4.3). A
/// rejected message is not in one, and comes round forever.
fn cycle(wanted: &Queue, details: &QueueDetails, way: &WayBack, subject: &Subject) -> Finding {
    let by: String = way.through.iter().skip(1).map(|object| format!(", by {object}")).collect();
    let depends = match way.share {
        Share::All => "",
        Share::Part | Share::Nothing => ", depending on a message's routing key and headers",
    };
    let harm = if details.kind == "classic" {
        "a message of which the broker accepts no copy comes again forever"
    } else {
        "the broker recognises the cycle, and drops messages at the delivery limit or holds them where no consumer can get them, unless \
         another queue gets them too"
    };
    let source = source(details);
    let seen = format!(
        "{source} names {}, which leads back to this queue{by}{depends}: {harm}",
        target(details)
    );
    let remedy = if is_by_argument(details) {
        format!(
            "move to a queue that dead-letters to {:?} with the routing key {:?}; no policy overrides the argument",
            subject.names.park(),
            wanted.name
        )
    } else {
        format!("{}, in place of {source}", policy_for(wanted, details, subject))
    };
    Finding::new(Check::DeadLetterCycle, queue(&wanted.name), seen, remedy)
}

/// The exchange is there, and takes none of these messages to a queue.
fn unroutable(wanted: &Queue, details: &QueueDetails, subject: &Subject) -> Finding {
    let (source, target) = (source(details), target(details));
    let seen = format!(
        "{source} names {target}, from which no message reaches a queue: {}",
        harm(details)
    );
    let bind = match details.dead_letter_exchange() {
        Some(exchange) => format!("bind a queue to exchange {exchange:?} that takes them"),
        None => "declare the queue that the routing key names".to_owned(),
    };
    let remedy = match is_by_argument(details) {
        true => bind,
        false => format!("{bind}, or {}", policy_for(wanted, details, subject)),
    };
    Finding::new(Check::DeadLettersUnroutable, queue(&wanted.name), seen, remedy)
}

/// The advice to set a policy that fits the queue.
fn policy_for(wanted: &Queue, details: &QueueDetails, subject: &Subject) -> String {
    let config = subject.config(&wanted.name);
    config.map_or_else(String::new, |config| policy(config, details, &subject.names.park()))
}

/// Where the queue dead-letters to.
fn target(details: &QueueDetails) -> String {
    let exchange = Object::Exchange(details.dead_letter_exchange().unwrap_or_default().to_owned());
    let key =
        details.text("dead-letter-routing-key").map(|key| format!(" with the routing key {key:?}"));
    format!("{exchange}{}", key.unwrap_or_default())
}

/// The argument overrides a policy (3.10, 4.0 and 4.3).
fn is_by_argument(details: &QueueDetails) -> bool {
    details.arguments.contains_key("x-dead-letter-exchange")
}

/// What names the dead-letter exchange.
fn source(details: &QueueDetails) -> String {
    if is_by_argument(details) {
        "the argument x-dead-letter-exchange".to_owned()
    } else {
        details.policies()
    }
}
