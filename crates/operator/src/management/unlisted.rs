//! The work queues of a namespace that the settings do not list.

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::Value;

use crate::management::Api;
use rehop::Settings;
use rehop::internals::Names;

/// At most so many are added, since anyone may bind anything.
const MOST: usize = 500;
/// How many questions are asked at a time.
const AT_A_TIME: usize = 8;

/// Adds to the settings each work queue whose parked queue is bound in their namespace. Only the
/// management API shows bindings.
///
/// Returns which other queues are bound there and are left out, in words: those that rehop has not
/// declared may belong to somebody who does not expect that their messages are looked at, and a
/// parked queue with another name than `<queue>.parked` needs its setting.
///
/// # Errors
///
/// When they cannot be found, with a text for people that names no credentials. The settings are
/// then as before.
pub async fn add_unlisted_queues(settings: &mut Settings) -> Result<Vec<String>, String> {
    const WHAT: &str = "parked queues of work queues that the settings do not list";
    let Some(api) = Api::of(settings) else {
        return Err(format!(
            "{WHAT}: the management API is not known; name it with --management URL or broker.management_url"
        ));
    };
    let api = api.map_err(|problem| format!("{WHAT}: {problem}"))?;
    let names = Names::new(&settings.namespace);
    let path = ["exchanges", &api.vhost, &names.park(), "bindings", "source"];
    let bindings = api.get::<Vec<Binding>>(&path).await.map_err(|refusal| refusal.of(WHAT))?;
    let (unlisted, more) = unlisted(settings, bindings.unwrap_or_default());
    let asked = stream::iter(unlisted).map(async |binding| {
        let details = api.get::<Details>(&["queues", &api.vhost, &binding.destination]).await;
        (binding, details)
    });
    let found: Vec<_> = asked.buffered(AT_A_TIME).collect().await;
    let (mut left_out, defaults) = (Vec::new(), settings.resolve());
    for (binding, details) in found {
        let because = match details {
            Ok(None) => continue,
            Ok(Some(details)) => left_out_because(&binding, &details, &names),
            Err(refusal) => Some(refusal.of(&format!("queue {:?}", binding.destination))),
        };
        // Defaults need not fit together as long as each listed queue changes them.
        let misfit = || defaults.as_ref().ok()?.queue(&binding.routing_key).err();
        let because = because.or_else(|| {
            misfit().map(|error| {
                format!("queue {:?}: its settings are not known: {error}", binding.destination)
            })
        });
        match because {
            Some(because) => left_out.push(because),
            None => {
                settings.queue_mut(&binding.routing_key);
            }
        }
    }
    if more > 0 {
        left_out.push(format!("{more} more queues that are bound to {:?}", names.park()));
    }
    Ok(left_out)
}

/// A binding of the exchange that parks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Binding {
    /// The parked queue.
    destination: String,
    destination_type: String,
    /// The work queue.
    routing_key: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Details {
    #[serde(rename = "type")]
    kind: String,
    /// An empty list if there are none.
    arguments: Value,
}

/// The bindings for work queues that are not listed, one for each bound queue, and how many there
/// are beyond the first.
fn unlisted(settings: &Settings, bindings: Vec<Binding>) -> (Vec<Binding>, usize) {
    let is_unlisted = |binding: &Binding| {
        let is_listed = settings.queues.iter().any(|listed| listed.queue == binding.routing_key);
        binding.destination_type == "queue" && !binding.routing_key.is_empty() && !is_listed
    };
    let mut bound = BTreeMap::<String, Binding>::new();
    for binding in bindings.into_iter().filter(is_unlisted) {
        // Of several bindings of a queue, that of the work queue which parks there by default
        // counts.
        if is_default(&binding) || !bound.contains_key(&binding.destination) {
            bound.insert(binding.destination.clone(), binding);
        }
    }
    let more = bound.len().saturating_sub(MOST);
    (bound.into_values().take(MOST).collect(), more)
}

fn is_default(Binding { destination, routing_key, .. }: &Binding) -> bool {
    *destination == format!("{routing_key}.parked")
}

/// Why a bound queue is not looked at. `None` if it is the parked queue that rehop declares by
/// default for the work queue.
fn left_out_because(binding: &Binding, details: &Details, names: &Names) -> Option<String> {
    let Binding { destination, routing_key, .. } = binding;
    let dead_letter_exchange =
        details.arguments.get("x-dead-letter-exchange").and_then(Value::as_str);
    if details.kind != "quorum" || dead_letter_exchange != Some(&names.stray()) {
        return Some(format!(
            "queue {destination:?}: it is bound to {:?}, and not declared by rehop",
            names.park()
        ));
    }
    (!is_default(binding)).then(|| {
        format!("queue {destination:?}: list {routing_key:?} under [[queues]] with parked = {destination:?} to see it")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn binding(routing_key: &str, destination: &str, destination_type: &str) -> Binding {
        let [routing_key, destination, destination_type] =
            [routing_key, destination, destination_type].map(str::to_owned);
        Binding { destination, destination_type, routing_key }
    }

    #[test]
    fn only_queues_that_are_bound_for_unlisted_work_queues_are_asked_about() {
        let mut settings = Settings::default();
        settings.queue_mut("orders");
        let wanted = binding("invoices", "invoices.parked", "queue");
        let bindings = vec![
            binding("orders", "elsewhere", "queue"),
            wanted.clone(),
            binding("audit", "audit", "exchange"),
            binding("", "nameless", "queue"),
        ];
        assert_eq!(unlisted(&settings, bindings), (vec![wanted], 0));
        let both = [
            binding("orders-eu", "invoices.parked", "queue"),
            binding("invoices", "invoices.parked", "queue"),
        ];
        for bindings in [both.to_vec(), both.iter().rev().cloned().collect()] {
            assert_eq!(unlisted(&settings, bindings), (vec![both[1].clone()], 0));
        }
        let many = (0..MOST + 7)
            .map(|number| binding(&number.to_string(), &format!("{number}.parked"), "queue"));
        let (some, more) = unlisted(&settings, many.collect());
        assert_eq!((some.len(), more), (MOST, 7));
    }

    #[test]
    fn a_queue_that_rehop_has_not_declared_by_default_is_left_out_and_it_is_said_why() {
        let names = Names::new("ns");
        let details = |kind: &str, exchange: &str| Details {
            kind: kind.to_owned(),
            arguments: json!({ "x-dead-letter-exchange": exchange }),
        };
        let because = |destination: &str, details: &Details| {
            left_out_because(&binding("bills", destination, "queue"), details, &names)
        };
        assert_eq!(because("bills.parked", &details("quorum", "ns.stray")), None);
        let renamed = because("bills.dead", &details("quorum", "ns.stray")).unwrap();
        assert!(renamed.contains("parked = \"bills.dead\""), "{renamed}");
        let none = Details { kind: "quorum".to_owned(), arguments: json!([]) };
        for foreign in [
            details("classic", "ns.stray"),
            details("stream", ""),
            details("quorum", "theirs"),
            none,
        ] {
            let because = because("bills.parked", &foreign).unwrap();
            assert!(because.contains("not declared by rehop"), "{because}");
        }
    }

    #[tokio::test]
    async fn without_the_management_api_the_error_names_the_option_for_it() {
        let mut settings = Settings::default();
        let unseen = add_unlisted_queues(&mut settings).await.unwrap_err();
        assert!(unseen.contains("--management URL") && settings.queues.is_empty(), "{unseen}");
    }
}
