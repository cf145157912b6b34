//! Whether everything exists that the settings ask for, with the arguments that they ask for.

use serde_json::Value;

use super::{is_present, queue};
use crate::doctor::check::Check;
use crate::doctor::observed::{
    BindingDetails, Difference, Existence, Observed, differences, exchange_differences, same,
};
use crate::doctor::report::Finding;
use crate::doctor::subject::Subject;
use rehop::settings::Declare;
use rehop::topology::{Binding, ExchangeBinding, ExchangeKind};

const DECLARE: &str =
    "run `rehop topology declare`, which creates what is missing and changes nothing else";
pub(super) const PLAN: &str =
    "nothing can change it in place: `rehop topology plan` prints the steps";
pub(in crate::doctor) const LEAST_PERMISSIONS: &str =
    "grant the permission: see \"Least permissions\" on the topology page";

pub(super) fn check(subject: &Subject, seen: &Observed) -> Vec<Finding> {
    let mut found = Vec::new();
    for exchange in &subject.topology.exchanges {
        let details = seen.management.as_ref().and_then(|it| it.exchanges.get(&exchange.name));
        let different = details.map(|details| exchange_differences(exchange, details));
        let existence = seen.exchanges.get(&exchange.name);
        of_existence(
            &format!("exchange {:?}", exchange.name),
            Check::ExchangeMissing,
            existence,
            different,
            &mut found,
        );
    }
    for name in subject.foreign_exchanges() {
        if seen.exchanges.get(name) == Some(&Existence::Missing) {
            let remedy = "declare it as its publishers do, or correct `bindings` in the settings";
            found.push(Finding::new(
                Check::ExchangeMissing,
                format!("exchange {name:?}"),
                MISSING,
                remedy,
            ));
        }
    }
    for wanted in &subject.topology.queues {
        let details = seen.management.as_ref().and_then(|it| it.queues.get(&wanted.name));
        let different = match wanted.declare {
            Declare::Own => {
                details.map(|details| differences(&wanted.arguments, &details.arguments))
            }
            _ => Some(Vec::new()),
        };
        let existence = seen.queues.get(&wanted.name).map(|queue| &queue.existence);
        of_existence(&queue(&wanted.name), Check::QueueMissing, existence, different, &mut found);
    }
    found.extend(missing_bindings(subject, seen).map(|binding| {
        let object =
            format!("binding of queue {:?} to exchange {:?}", binding.queue, binding.exchange);
        Finding::new(Check::BindingMissing, object, MISSING, DECLARE)
    }));
    found.extend(missing_exchange_bindings(subject, seen).map(|binding| {
        let object = format!(
            "binding of exchange {:?} to exchange {:?}",
            binding.destination, binding.source
        );
        let seen = "it does not exist, so messages whose wait is over are lost";
        Finding::new(Check::BindingMissing, object, seen, DECLARE)
    }));
    found.extend(seen.denied.iter().map(|denied| {
        Finding::new(Check::PermissionMissing, &denied.what, &denied.problem, LEAST_PERMISSIONS)
    }));
    found.extend(seen.report_denied.as_ref().map(|problem| {
        let object = format!("publishing to exchange {:?}", subject.names.report());
        let seen = format!("{problem}; so the fate of replayed messages stays unknown, and a canary never ends well");
        Finding::new(Check::ReportDenied, object, seen, LEAST_PERMISSIONS)
    }));
    found
}

const MISSING: &str = "it does not exist";

/// `different` is what the management API showed. Without it, the broker's own comparison counts,
/// and also where that alone finds something: which arguments the broker compares depends on its
/// version.
fn of_existence(
    object: &str,
    missing: Check,
    existence: Option<&Existence>,
    different: Option<Vec<Difference>>,
    found: &mut Vec<Finding>,
) {
    match existence {
        None => {}
        Some(Existence::Missing) => found.push(Finding::new(missing, object, MISSING, DECLARE)),
        Some(Existence::Unavailable { problem }) => {
            let remedy = "check the cluster's nodes; messages in it are kept";
            found.push(Finding::new(Check::QueueUnavailable, object, problem, remedy));
        }
        Some(Existence::Hidden { problem }) => {
            found.push(Finding::new(Check::PermissionMissing, object, problem, LEAST_PERMISSIONS));
        }
        Some(Existence::Present { difference }) => {
            let all = different
                .filter(|all| !all.is_empty())
                .unwrap_or_else(|| difference.iter().cloned().collect());
            found.extend(all.into_iter().map(|difference| {
                let Difference { argument, wanted, found } = difference;
                let check = match argument.as_str() {
                    "alternate-exchange" => Check::NoAlternateExchange,
                    _ => Check::ArgumentsDiffer,
                };
                Finding::new(
                    check,
                    object,
                    format!("{argument} is {found}, and the settings ask for {wanted}"),
                    PLAN,
                )
            }));
        }
    }
}

/// The bindings that the management API does not show.
pub(in crate::doctor) fn missing_bindings<'a>(
    subject: &'a Subject,
    seen: &'a Observed,
) -> impl Iterator<Item = &'a Binding> {
    subject.topology.bindings.iter().filter(|binding| {
        let Some(bindings) =
            seen.management.as_ref().and_then(|it| it.bindings.get(&binding.queue))
        else {
            return false;
        };
        is_present(seen, &binding.queue)
            && !bindings.iter().any(|found| is_same_binding(binding, found))
    })
}

/// The bindings of exchanges that the management API does not show.
pub(in crate::doctor) fn missing_exchange_bindings<'a>(
    subject: &'a Subject,
    seen: &'a Observed,
) -> impl Iterator<Item = &'a ExchangeBinding> {
    let delayed = ExchangeKind::Delayed.as_str();
    subject.topology.exchange_bindings.iter().filter(move |binding| {
        let Some(management) = &seen.management else { return false };
        // An exchange of another type may lead on in another way.
        let is_delayed =
            management.exchanges.get(&binding.source).is_some_and(|source| source.kind == delayed);
        let sources =
            management.sources.get(&binding.destination).map(Vec::as_slice).unwrap_or_default();
        let is_present =
            matches!(seen.exchanges.get(&binding.destination), Some(Existence::Present { .. }));
        is_delayed && is_present && !sources.iter().any(|found| found.source == binding.source)
    })
}

fn is_same_binding(wanted: &Binding, found: &BindingDetails) -> bool {
    let argument = |(name, value)| {
        found.arguments.get::<String>(name).is_some_and(|found: &Value| same(value, found))
    };
    wanted.exchange == found.source
        && wanted.routing_key == found.routing_key
        && wanted.arguments.len() == found.arguments.len()
        && wanted.arguments.iter().all(argument)
}
