//! Whether what the queues dead-letter has somewhere to go.

use super::parts::PLAN;
use super::queue;
use super::taken_over::POLICY;
use crate::doctor::check::Check;
use crate::doctor::observed::{Management, Observed};
use crate::doctor::report::Finding;
use crate::doctor::subject::Subject;
use crate::settings::Declare;
use crate::topology::Queue;

pub(super) fn check(subject: &Subject, seen: &Observed) -> Vec<Finding> {
    let Some(management) = &seen.management else { return Vec::new() };
    subject.topology.queues.iter().filter_map(|wanted| exchange(wanted, subject, management)).collect()
}

/// An exchange of rehop's own that is missing is a finding by itself.
fn exchange(wanted: &Queue, subject: &Subject, management: &Management) -> Option<Finding> {
    let details = management.queues.get(&wanted.name)?;
    let exchange = details.dead_letter_exchange()?;
    if management.exchanges.contains_key(exchange) || subject.is_own_exchange(exchange) {
        return None;
    }
    // The argument overrides a policy (3.10, 4.0 and 4.3).
    let is_argument = details.arguments.contains_key("x-dead-letter-exchange");
    let source = if is_argument { "the argument x-dead-letter-exchange".to_owned() } else { details.policies() };
    let harm = if details.dead_letters_at_least_once() {
        "the broker holds what it dead-letters where no consumer can get it"
    } else {
        "the broker loses what it dead-letters, without a word"
    };
    let seen = format!("{source} names exchange {exchange:?}, which does not exist: {harm}");
    let declare = || format!("declare exchange {exchange:?} and bind a queue to it");
    let remedy = match (wanted.declare, is_argument) {
        (Declare::Own, true) => PLAN.to_owned(),
        (Declare::Own, false) => format!("exclude the queue from {source}"),
        (Declare::Existing, true) => format!("{}; an argument cannot be changed in place", declare()),
        (Declare::Existing, false) => format!("{}, or {POLICY}", declare()),
    };
    Some(Finding::new(Check::DeadLetterExchangeMissing, queue(&wanted.name), seen, remedy))
}
