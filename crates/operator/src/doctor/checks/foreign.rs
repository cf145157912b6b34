//! Bindings of rehop's exchanges that rehop did not make.

use std::time::Duration;

use serde_json::Value;

use crate::doctor::check::Check;
use crate::doctor::observed::{BindingDetails, Management, Observed};
use crate::doctor::report::Finding;
use crate::doctor::subject::Subject;
use rehop::internals::names::{RETURN_TO, WAIT_FOR, then};
use rehop::topology::ExchangeKind;

pub(super) fn check(subject: &Subject, seen: &Observed) -> Vec<Finding> {
    let Some(management) = &seen.management else { return Vec::new() };
    let bindings = management.destinations.values().flatten();
    bindings.filter_map(|binding| foreign(binding, subject, management)).collect()
}

fn foreign(
    binding: &BindingDetails,
    subject: &Subject,
    management: &Management,
) -> Option<Finding> {
    let BindingDetails { source, destination, destination_type, .. } = binding;
    let taken = taken(binding, subject, management)?;
    let object = format!("binding of {destination_type} {destination:?} to exchange {source:?}");
    let seen = format!(
        "rehop did not make this binding: messages that {} go there too; and while their own queue is missing they go only there, \
         and not to the stray queue",
        taken.as_str()
    );
    let remedy = match taken {
        Taken::Waiting | Taken::Returning => {
            "unbind it; to get every message, bind to the publishers' exchange instead"
        }
        Taken::Parked => {
            "unbind it; if the queue is a former parked queue, replay its messages with `parked` set to its name in the settings"
        }
    };
    Some(Finding::new(Check::ForeignBinding, object, seen, remedy))
}

/// The messages that a binding takes.
#[derive(Clone, Copy)]
enum Taken {
    Waiting,
    Returning,
    Parked,
}

impl Taken {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "wait",
            Self::Returning => "have waited",
            Self::Parked => "are parked",
        }
    }
}

/// Which messages a binding takes that rehop did not make. `None` for a binding in the form that
/// rehop gives it, whether for these settings or for another service of the namespace.
///
/// Operators bind queues to the stray exchange when its queue is in trouble, and to that of
/// receipts while they replay. Services send nothing to the exchange of discarded messages.
fn taken(binding: &BindingDetails, subject: &Subject, management: &Management) -> Option<Taken> {
    let names = &subject.names;
    let (source, destination) = (binding.source.as_str(), binding.destination.as_str());
    let is_queue = binding.destination_type == "queue";
    let ttl =
        |header: &str| required(binding, header).and_then(Value::as_u64).map(Duration::from_millis);
    let (taken, is_rehops) = if let Some(names) = names.of_wait_exchange(source) {
        let is_its = |ttl| {
            let queue = if source == names.wait() { names.tier(ttl) } else { names.rung(ttl) };
            queue == destination
        };
        (Taken::Waiting, is_queue && ttl(WAIT_FOR).is_some_and(is_its))
    } else if let Some((names, rung)) = names.of_after(source) {
        let next = ttl(&then(rung.as_millis()));
        (Taken::Waiting, is_queue && next.is_some_and(|next| names.rung(next) == destination))
    } else if source == names.return_() {
        (
            Taken::Returning,
            is_queue && required(binding, RETURN_TO).is_some_and(|queue| queue == destination),
        )
    } else if source == names.delay() {
        // What stands in for the plugin's exchange may lead home by a queue.
        let is_plugins = management
            .exchanges
            .get(source)
            .is_some_and(|exchange| exchange.kind == ExchangeKind::Delayed.as_str());
        (Taken::Returning, !is_plugins || !is_queue && destination == names.return_())
    } else if source == names.park() {
        // The parked queue of another service's work queue may have any name.
        let config = subject.config(&binding.routing_key);
        (Taken::Parked, config.is_none_or(|config| is_queue && config.parked == destination))
    } else {
        return None;
    };
    (!is_rehops).then_some(taken)
}

/// The value that a message must have in this header for the binding to take it.
fn required<'a>(binding: &'a BindingDetails, header: &str) -> Option<&'a Value> {
    binding.arguments.get("x-match").filter(|kind| *kind == "all")?;
    binding.arguments.get(header)
}
