//! What declaring would do, and the steps for what it cannot do. Pure.

use serde::Serialize;

use super::checks::{LEAST_PERMISSIONS, missing_bindings, missing_exchange_bindings};
use super::observed::{Difference, Existence, Observed, differences, exchange_differences};
use super::subject::Subject;
use rehop::settings::Declare;
use rehop::topology::{Queue, Role};

/// What declaring would do to each exchange, queue and binding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// In the order in which they would be declared.
    pub parts: Vec<Planned>,
    /// What could not be looked at, and why.
    pub unseen: Vec<String>,
}

impl Plan {
    /// Whether declaring would change nothing of what [`Self::parts`] lists, and each part could be
    /// looked at. A binding that could not be looked at is in [`Self::unseen`] alone.
    pub fn is_in_place(&self) -> bool {
        self.parts.iter().all(|part| part.action == Action::Keep)
    }
}

/// What declaring would do to one exchange, queue or binding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Planned {
    /// What it is, such as `queue "orders"`.
    pub object: String,
    /// What would happen.
    pub action: Action,
    /// Why.
    pub because: String,
    /// What to do, one step each, where declaring would fail.
    pub steps: Vec<String>,
}

/// What declaring does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Action {
    /// It is there as the settings ask for.
    Keep,
    /// It would be created.
    Create,
    /// The broker would refuse: it exists with other arguments, or the user may not declare it.
    Refuse,
    /// It belongs to somebody else and does not exist.
    Missing,
    /// It could not be looked at.
    Unknown,
}

impl Action {
    /// The action in one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Create => "create",
            Self::Refuse => "refuse",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
        }
    }
}

pub(super) fn plan(subject: &Subject, seen: &Observed) -> Plan {
    let mut parts = Vec::new();
    for exchange in &subject.topology.exchanges {
        let details = seen
            .management
            .as_ref()
            .and_then(|management| management.exchanges.get(&exchange.name));
        let shown = details.map(|details| exchange_differences(exchange, details));
        let steps = |_: &[Difference]| exchange_steps(&exchange.name, subject);
        let existence = seen.exchanges.get(&exchange.name);
        parts.push(refused_if_denied(
            part(format!("exchange {:?}", exchange.name), existence, shown, steps),
            seen,
        ));
    }
    for name in subject.foreign_exchanges() {
        if seen.exchanges.get(name) == Some(&Existence::Missing) {
            parts.push(missing(format!("exchange {name:?}"), "its publishers declare it"));
        }
    }
    for queue in &subject.topology.queues {
        let object = format!("queue {:?}", queue.name);
        let existence = seen.queues.get(&queue.name).map(|queue| &queue.existence);
        if queue.declare == Declare::Existing {
            parts.push(match existence {
                Some(Existence::Missing) => missing(object, "its owner declares it"),
                _ => part(object, existence, Some(Vec::new()), |_| Vec::new()),
            });
            continue;
        }
        let details =
            seen.management.as_ref().and_then(|management| management.queues.get(&queue.name));
        let shown = details.map(|details| differences(&queue.arguments, &details.arguments));
        let planned =
            part(object, existence, shown, |differences| queue_steps(queue, differences, subject));
        parts.push(refused_if_denied(planned, seen));
    }
    parts.extend(missing_bindings(subject, seen).map(|binding| Planned {
        object: format!("binding of queue {:?} to exchange {:?}", binding.queue, binding.exchange),
        action: Action::Create,
        because: "it does not exist".to_owned(),
        steps: Vec::new(),
    }));
    parts.extend(missing_exchange_bindings(subject, seen).map(|binding| Planned {
        object: format!(
            "binding of exchange {:?} to exchange {:?}",
            binding.destination, binding.source
        ),
        action: Action::Create,
        because: "it does not exist".to_owned(),
        steps: Vec::new(),
    }));
    Plan { parts, unseen: seen.unseen.iter().chain(&seen.management_problem).cloned().collect() }
}

fn missing(object: String, because: &str) -> Planned {
    let steps = vec![format!("declare it: {because}")];
    Planned {
        object,
        action: Action::Missing,
        because: "it does not exist, and rehop does not declare it".to_owned(),
        steps,
    }
}

/// `shown` is what the management API showed. Without it, the broker's own comparison counts, and
/// also where that alone finds something.
fn part(
    object: String,
    existence: Option<&Existence>,
    shown: Option<Vec<Difference>>,
    steps: impl FnOnce(&[Difference]) -> Vec<String>,
) -> Planned {
    let planned = |action, because: &str, steps| Planned {
        object,
        action,
        because: because.to_owned(),
        steps,
    };
    match existence {
        None => planned(Action::Unknown, "it was not looked at", Vec::new()),
        Some(Existence::Missing) => planned(Action::Create, "it does not exist", Vec::new()),
        Some(Existence::Hidden { problem }) => planned(Action::Unknown, problem, Vec::new()),
        Some(Existence::Unavailable { problem }) => planned(Action::Unknown, problem, Vec::new()),
        Some(Existence::Present { difference }) => {
            let shown = shown.filter(|shown| !shown.is_empty());
            let different = shown.unwrap_or_else(|| difference.iter().cloned().collect());
            if different.is_empty() {
                return planned(Action::Keep, "it exists, as the settings ask for", Vec::new());
            }
            let each = different
                .iter()
                .map(|it| format!("{} is {} and should be {}", it.argument, it.found, it.wanted));
            planned(Action::Refuse, &each.collect::<Vec<_>>().join("; "), steps(&different))
        }
    }
}

/// Without the permission, the broker refuses to declare even what is already in place, and
/// compares nothing.
fn refused_if_denied(planned: Planned, seen: &Observed) -> Planned {
    match seen.denied_to_declare(&planned.object) {
        Some(problem) if planned.action == Action::Keep => {
            let steps = vec![LEAST_PERMISSIONS.to_owned()];
            Planned { action: Action::Refuse, because: problem.to_owned(), steps, ..planned }
        }
        _ => planned,
    }
}

const DECLARE: &str = "rehop topology declare";

fn exchange_steps(name: &str, subject: &Subject) -> Vec<String> {
    let names = &subject.names;
    if subject.is_operators(name) {
        return vec![format!(
            "delete exchange {name}; the next `rehop parked discard` declares it again"
        )];
    }
    if name == names.delay() {
        return vec![empty_delay_step(name), format!("delete exchange {name}, then {DECLARE}")];
    }
    let waits_in_exchange =
        subject.topology.exchanges.iter().any(|exchange| exchange.name == names.delay());
    let meanwhile = if name == names.stray() {
        "until the next step, unroutable messages are returned to rehop, which keeps the originals and tries again"
    } else if name == names.return_() || name.starts_with(&names.after_prefix()) {
        "until the next step, messages whose wait is over stay in their wait queue, for three minutes at a time"
    } else {
        "until the next step, rehop keeps the originals of copies that it cannot publish, and tries again"
    };
    let mut steps = Vec::new();
    if name == names.return_() && waits_in_exchange {
        // Its binding goes with it, and what then falls due has nowhere to go.
        steps.push(empty_delay_step(&names.delay()));
    }
    steps.push(format!("delete exchange {name}; {meanwhile}"));
    steps.push(format!("immediately afterwards: {DECLARE}"));
    steps
}

fn empty_delay_step(delay: &str) -> String {
    format!(
        "run the service with another retry.strategy until exchange {delay} holds nothing (messages_delayed in the management API): \
         what still waits in it would be lost"
    )
}

fn queue_steps(queue: &Queue, differences: &[Difference], subject: &Subject) -> Vec<String> {
    let name = &queue.name;
    match queue.role {
        Role::Work => work_steps(name, differences, subject),
        Role::Wait => vec![
            format!(
                "unbind queue {name} from exchange {}, so that no new message waits in it",
                sources(name, subject).join(", ")
            ),
            format!(
                "wait until it is empty: its messages return by themselves (rabbitmqctl list_queues name messages | grep {name})"
            ),
            format!("delete queue {name}"),
            format!(
                "{DECLARE}; a copy that was published for it meanwhile is in {}, and one that came from a higher rung has gone home \
                 early and waits for the rest",
                subject.names.stray()
            ),
        ],
        Role::Parked => {
            let work = subject
                .configs
                .iter()
                .find(|config| config.parked == *name)
                .map_or("", |config| &config.queue);
            vec![
                format!("if it is empty: delete queue {name}, then {DECLARE}. Otherwise:"),
                format!(
                    "name another parked queue in the settings of {work}: parked = \"{name}.2\""
                ),
                format!("{DECLARE}, and restart the service"),
                format!(
                    "unbind queue {name} from exchange {} (routing key {work})",
                    subject.names.park()
                ),
                format!(
                    "move what it holds: rehop parked replay --queue {work}, with the old name as `parked`"
                ),
                format!("delete queue {name} once it is empty"),
            ]
        }
        Role::Discarded => vec![format!(
            "once nobody needs what it holds: delete queue {name}; the next `rehop parked discard` declares it again"
        )],
        _ => vec![
            format!("if it is empty: delete queue {name}, then {DECLARE}. Otherwise:"),
            format!(
                "declare queue {name}.2 and bind it to exchange {name}, so that the exchange always has a queue"
            ),
            format!("move the messages of {name} there with a shovel"),
            format!("delete queue {name}, then {DECLARE}"),
        ],
    }
}

/// The exchanges that a wait queue is bound to.
fn sources<'a>(queue: &str, subject: &'a Subject) -> Vec<&'a str> {
    let bindings = subject.topology.bindings.iter().filter(|binding| binding.queue == queue);
    bindings.map(|binding| binding.exchange.as_str()).collect()
}

fn work_steps(name: &str, differences: &[Difference], subject: &Subject) -> Vec<String> {
    // The broker's own message puts strings in single quotes.
    let is_park = |found: &str| found.trim_matches(['"', '\'']).ends_with(".park");
    let foreign =
        differences.iter().any(|it| it.argument == "x-dead-letter-exchange" && is_park(&it.found));
    let mut steps = Vec::new();
    if foreign {
        steps.push(
            "it belongs to another namespace: use that one (--namespace), or another queue. To take it over:"
                .to_owned(),
        );
    }
    if let [Difference { argument, found, .. }] = differences
        && argument == "x-delivery-limit"
        && found.trim_matches('\'').parse::<u32>().is_ok()
    {
        steps.push(format!(
            "to keep the queue: set retry.delivery_limit to {} for it. Otherwise:",
            found.trim_matches('\'')
        ));
    }
    let config = subject.config(name);
    let sources = config.map_or(0, |config| config.bindings.len());
    let bindings = if sources == 0 { "the same bindings" } else { "the same `bindings`" };
    // A service declares again what its settings name.
    let unbind = if sources == 0 {
        "unbind queue"
    } else {
        "take `bindings` of the old queue out of the settings, then unbind queue"
    };
    let namespace = subject.names.namespace();
    steps.extend([
        to_keep(differences),
        format!("name a second queue in the settings, such as {name}.v2, with {bindings}, then {DECLARE}: both get every message"),
        format!("{unbind} {name} from its publishers' exchanges; what came between is in both, so handlers deduplicate by message_id"),
        format!(
            "run the service with both queues until {name} is empty and nothing waits in {namespace}.wait.*, {namespace}.ladder.* or \
             {namespace}.delay, as far as they exist"
        ),
        format!("run the service with {name}.v2 alone, and delete queue {name}"),
    ]);
    steps
}

/// How the queue can stay. With arguments for another strategy or order, it must not be taken as it
/// is: messages would not wait, or not stay in order.
fn to_keep(differences: &[Difference]) -> String {
    let differs = |prefix: &str| differences.iter().any(|it| it.argument.starts_with(prefix));
    let keys: Vec<_> = [
        ("x-delayed-retry-", "retry.strategy and retry.delays"),
        ("x-single-active-consumer", "consume.order"),
    ]
    .into_iter()
    .filter_map(|(prefix, keys)| differs(prefix).then_some(keys))
    .collect();
    if keys.is_empty() {
        return "to keep its arguments: set declare = \"existing\" for it, and `rehop doctor` says what it lacks. Otherwise:"
            .to_owned();
    }
    format!(
        "to keep the queue: set the {} that it was declared for. Otherwise:",
        keys.join(" and the ")
    )
}

#[cfg(test)]
mod tests;
