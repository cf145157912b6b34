//! The work queues of a namespace that the settings do not list.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::management::Api;
use crate::parked::operator::Parked;
use crate::parked::place::Place;
use rehop::Settings;
use rehop::internals::Names;

/// Adds to the settings each work queue whose parked queue is bound in their namespace. Only the management API shows bindings.
///
/// # Errors
///
/// When they cannot be found, with a text for people that names no credentials. The settings are then as before.
pub async fn add_unlisted_queues(settings: &mut Settings) -> Result<(), String> {
    const WHAT: &str = "parked queues of work queues that the settings do not list";
    let Some(api) = Api::of(settings) else {
        return Err(format!(
            "{WHAT}: the management API is not known; name it with --management URL or broker.management_url"
        ));
    };
    let api = api.map_err(|problem| format!("{WHAT}: {problem}"))?;
    let exchange = Names::new(&settings.namespace).park();
    let path = ["exchanges", &api.vhost, &exchange, "bindings", "source"];
    let bindings = api.get::<Vec<Binding>>(&path).await.map_err(|refusal| refusal.of(WHAT))?;
    add(settings, bindings.unwrap_or_default());
    Ok(())
}

/// A binding of the exchange that parks.
#[derive(Debug, Clone, Deserialize)]
struct Binding {
    /// The parked queue.
    destination: String,
    destination_type: String,
    /// The work queue.
    routing_key: String,
}

/// Adds the work queues that are not listed. A name that no work queue can have is left out, since anyone may bind anything.
fn add(settings: &mut Settings, bindings: Vec<Binding>) {
    let bound = bindings.into_iter().filter(|binding| binding.destination_type == "queue");
    let bound: BTreeMap<_, _> = bound.map(|binding| (binding.routing_key, binding.destination)).collect();
    for (queue, parked) in bound {
        if settings.queues.iter().any(|listed| listed.queue == queue) {
            continue;
        }
        let mut with = settings.clone();
        with.queue_mut(&queue).parked = Some(parked).filter(|parked| *parked != format!("{queue}.parked"));
        if Parked::open(&with, Place::queue(&queue)).is_ok() {
            *settings = with;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(routing_key: &str, destination: &str, destination_type: &str) -> Binding {
        let [routing_key, destination, destination_type] =
            [routing_key, destination, destination_type].map(str::to_owned);
        Binding { destination, destination_type, routing_key }
    }

    #[test]
    fn queues_that_are_bound_and_not_listed_are_added_with_their_parked_queues() {
        let mut settings = Settings::default();
        settings.queue_mut("orders").parked = Some("orders.dead".to_owned());
        add(
            &mut settings,
            vec![
                binding("orders", "elsewhere", "queue"),
                binding("invoices", "invoices.parked", "queue"),
                binding("bills", "bills.dead", "queue"),
                binding("audit", "audit", "exchange"),
                binding("", "nameless", "queue"),
            ],
        );
        let found: Vec<_> = settings.queues.iter().map(|it| (it.queue.as_str(), it.parked.as_deref())).collect();
        assert_eq!(found, [("orders", Some("orders.dead")), ("bills", Some("bills.dead")), ("invoices", None)]);
    }

    #[tokio::test]
    async fn without_the_management_api_the_error_names_the_option_for_it() {
        let mut settings = Settings::default();
        let unseen = add_unlisted_queues(&mut settings).await.unwrap_err();
        assert!(unseen.contains("--management URL") && settings.queues.is_empty(), "{unseen}");
    }
}
