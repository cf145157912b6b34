//! Whether what the queues dead-letter has somewhere to go.

use super::parts::PLAN;
use super::queue;
use super::taken_over::POLICY;
use crate::doctor::check::Check;
use crate::doctor::observed::{Management, Observed, QueueDetails};
use crate::doctor::report::Finding;
use crate::doctor::subject::Subject;
use crate::settings::Declare;
use crate::topology::{Names, Queue, Role};

pub(super) fn check(subject: &Subject, seen: &Observed) -> Vec<Finding> {
    let Some(management) = &seen.management else { return Vec::new() };
    let found = subject.topology.queues.iter().filter_map(|wanted| {
        let details = management.queues.get(&wanted.name)?;
        missing(wanted, details, subject, management).or_else(|| cycle(wanted, details, &subject.names))
    });
    found.collect()
}

/// An exchange of rehop's own that is missing is a finding by itself.
fn missing(wanted: &Queue, details: &QueueDetails, subject: &Subject, management: &Management) -> Option<Finding> {
    let exchange = details.dead_letter_exchange()?;
    if management.exchanges.contains_key(exchange) || subject.is_own_exchange(exchange) {
        return None;
    }
    let source = source(details);
    let harm = if details.dead_letters_at_least_once() {
        "the broker holds what it dead-letters where no consumer can get it"
    } else {
        "the broker loses what it dead-letters, without a word"
    };
    let seen = format!("{source} names exchange {exchange:?}, which does not exist: {harm}");
    let declare = || format!("declare exchange {exchange:?} and bind a queue to it");
    let remedy = match (wanted.declare, is_by_argument(details)) {
        (Declare::Own, true) => PLAN.to_owned(),
        (Declare::Own, false) => format!("exclude the queue from {source}"),
        (Declare::Existing, true) => format!("{}; an argument cannot be changed in place", declare()),
        (Declare::Existing, false) => format!("{}, or {POLICY}", declare()),
    };
    Some(Finding::new(Check::DeadLetterExchangeMissing, queue(&wanted.name), seen, remedy))
}

/// A message at the delivery limit that would come back to its queue is in a dead-letter cycle. The broker drops it, or holds it in the
/// queue from which it should go on (3.10, 4.0 and 4.3). The queues that rehop declares have an argument that leads elsewhere.
fn cycle(wanted: &Queue, details: &QueueDetails, names: &Names) -> Option<Finding> {
    if wanted.role != Role::Work || wanted.declare != Declare::Existing {
        return None;
    }
    let exchange = details.text("dead-letter-exchange")?;
    let by = match (exchange, details.text("dead-letter-routing-key")) {
        ("", Some(key)) if key == wanted.name || is_wait_queue(key, names) => {
            format!("the default exchange with the routing key {key:?}")
        }
        _ if leads_home(exchange, names) => format!("exchange {exchange:?}"),
        _ => return None,
    };
    let source = source(details);
    let seen = format!(
        "{source} names {by}, which leads back to this queue: the broker recognises the cycle, and drops messages at the delivery \
         limit or holds them where no consumer can get them"
    );
    let remedy = if is_by_argument(details) {
        format!(
            "move to a queue that dead-letters to {:?} with the routing key {:?}; no policy overrides the argument",
            names.park(),
            wanted.name
        )
    } else {
        format!("{POLICY}, in place of {source}")
    };
    Some(Finding::new(Check::DeadLetterCycle, queue(&wanted.name), seen, remedy))
}

/// Whether copies come home by this exchange, or by one that follows it. Parked and stray messages stay where they are.
fn leads_home(exchange: &str, names: &Names) -> bool {
    let own = [names.wait(), names.ladder(), names.delay(), names.return_()];
    own.iter().any(|own| own == exchange) || exchange.starts_with(&names.after_prefix())
}

fn is_wait_queue(queue: &str, names: &Names) -> bool {
    queue.starts_with(&names.tier_prefix()) || queue.starts_with(&names.rung_prefix())
}

/// The argument overrides a policy (3.10, 4.0 and 4.3).
fn is_by_argument(details: &QueueDetails) -> bool {
    details.arguments.contains_key("x-dead-letter-exchange")
}

/// What names the dead-letter exchange.
fn source(details: &QueueDetails) -> String {
    if is_by_argument(details) { "the argument x-dead-letter-exchange".to_owned() } else { details.policies() }
}
