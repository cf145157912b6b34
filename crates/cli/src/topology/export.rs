//! `rehop topology export`: the topology for another tool to declare. All formats are JSON, which
//! each of these tools reads.

use std::collections::BTreeMap;

use anyhow::bail;
use lapin::uri::AMQPUri;
use rehop::settings::{Declare, QueueType};
use rehop::topology::{
    Argument, Arguments, Binding, Exchange, ExchangeBinding, ExchangeKind, Queue, Role,
};
use rehop::{Settings, Topology};
use rehop_operator::doctor::unfit_for_policies;
use serde_json::{Map, Value, json};

use crate::options::Options;
use crate::output;
use crate::queues::Queues;

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct Args {
    #[command(flatten)]
    queues: Queues,
    /// The output format
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Format,
    /// The virtual host. Default: that of broker.url
    #[arg(long, value_name = "NAME")]
    vhost: Option<String>,
    /// The name of the RabbitmqCluster, for --format kubernetes
    #[arg(long, value_name = "NAME", default_value = "rabbitmq")]
    cluster: String,
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum Format {
    /// Definitions, for `rabbitmqctl import_definitions` and the management API
    #[default]
    Definitions,
    /// Policies for work queues that somebody else declares: dead-lettering, and the limit of
    /// quorum queues
    Policies,
    /// Resources of Terraform's provider cyrilgdn/rabbitmq, for a file that ends in .tf.json
    Terraform,
    /// Objects of the messaging topology operator, for `kubectl apply -f`
    Kubernetes,
}

/// Lines have at most 80 columns, because clap would wrap longer ones and break the layout.
const HELP: &str = "\
Queues with declare = \"existing\" are left to their owner; the export has only
their bindings. Whoever imports it should run services with topology = \"check\",
which then need no configure permission.

A policy that would mix with the dead-lettering arguments that a queue has is
refused, if the management API (--management) can be asked.

Terraform needs `rabbitmq = { source = \"cyrilgdn/rabbitmq\" }` among the
required_providers of your configuration. It never replaces a queue to change
an argument: that would delete its messages, so the plan fails.

Deleting an object of the Kubernetes operator, or its namespace, deletes the
exchange or the queue in RabbitMQ, with its messages.

Examples:
  rehop topology export --queue orders > orders.json
  rabbitmqctl import_definitions orders.json

  rehop topology export --queue orders --format policies \
    --management http://127.0.0.1:15672 > policies.json
  rehop topology export --queue orders --format terraform > rehop.tf.json
  rehop topology export --queue orders --format kubernetes | kubectl apply -f -";

pub(super) async fn run(args: &Args, options: &Options) -> anyhow::Result<()> {
    let settings = args.queues.select(options.settings()?)?;
    if matches!(args.format, Format::Policies) {
        check_policies(&settings).await?;
    }
    let topology = Topology::of(&settings)?;
    let vhost = args.vhost.clone().unwrap_or_else(|| vhost(&settings));
    output::print_json(&match args.format {
        Format::Definitions => definitions(&topology, &vhost),
        Format::Policies => policies(settings, &vhost)?,
        Format::Terraform => terraform(&topology, &vhost),
        Format::Kubernetes => {
            if topology.exchanges.iter().any(|exchange| exchange.kind == ExchangeKind::Delayed) {
                bail!(
                    "the operator's exchanges have no type {:?}, which the strategy delayed-exchange needs; use --format definitions",
                    ExchangeKind::Delayed.as_str()
                );
            }
            kubernetes(&topology, &vhost, &args.cluster)
        }
    })
}

/// Makes sure that the policies fit the queues that others declare, as far as the management API
/// can be asked.
async fn check_policies(settings: &Settings) -> anyhow::Result<()> {
    let existing = settings.queues.iter().filter(|queue| queue.declare == Declare::Existing);
    let existing: Vec<_> = existing.map(|queue| format!("{:?}", queue.queue)).collect();
    match unfit_for_policies(settings).await? {
        Some(unfit) if !unfit.is_empty() => bail!(
            "these policies would mix with what the queues have of their own: {}; `rehop doctor` says what to set",
            unfit.join("; ")
        ),
        None if !existing.is_empty() => output::notice(&format!(
            "not seen: whether these queues have a dead-letter exchange of their own, which would get messages with the wrong routing key \
             under these policies: {}; name the management API with --management, or ask `rehop doctor`",
            existing.join(", ")
        )),
        Some(_) | None => {}
    }
    Ok(())
}

fn vhost(settings: &Settings) -> String {
    let url = settings.broker.urls.first().unwrap_or(&settings.broker.url);
    url.expose().parse::<AMQPUri>().map_or_else(|_| "/".to_owned(), |uri| uri.vhost)
}

fn own(topology: &Topology) -> impl Iterator<Item = &Queue> {
    topology.queues.iter().filter(|queue| queue.declare != Declare::Existing)
}

fn definitions(topology: &Topology, vhost: &str) -> Value {
    let exchange = |exchange: &Exchange| {
        json!({
            "name": exchange.name, "vhost": vhost, "type": exchange.kind.as_str(), "durable": true, "auto_delete": false,
            "internal": false, "arguments": exchange.arguments,
        })
    };
    let queue = |queue: &Queue| {
        json!({
            "name": queue.name, "vhost": vhost, "durable": true, "auto_delete": false, "arguments": queue.arguments,
        })
    };
    let binding = |binding: &Binding| {
        json!({
            "source": binding.exchange, "vhost": vhost, "destination": binding.queue, "destination_type": "queue",
            "routing_key": binding.routing_key, "arguments": binding.arguments,
        })
    };
    let exchange_binding = |binding: &ExchangeBinding| {
        json!({
            "source": binding.source, "vhost": vhost, "destination": binding.destination, "destination_type": "exchange",
            "routing_key": "", "arguments": {},
        })
    };
    let bindings = topology.bindings.iter().map(binding);
    json!({
        "exchanges": topology.exchanges.iter().map(exchange).collect::<Vec<_>>(),
        "queues": own(topology).map(queue).collect::<Vec<_>>(),
        "bindings": bindings.chain(topology.exchange_bindings.iter().map(exchange_binding)).collect::<Vec<_>>(),
    })
}

/// What rehop sets as arguments of work queues that it declares, as policies. For an existing queue
/// of unknown type there is one for each type: the broker leaves out the one that does not fit
/// before it compares priorities (3.10, 4.0 and 4.3).
fn policies(mut settings: Settings, vhost: &str) -> anyhow::Result<Value> {
    let mut existing = BTreeMap::new();
    for queue in &mut settings.queues {
        if queue.declare == Declare::Existing {
            existing.insert(queue.queue.clone(), queue.queue_type);
        }
        (queue.declare, queue.queue_type) = (Declare::Own, None);
    }
    let topology = Topology::of(&settings)?;
    let work = topology.queues.iter().filter(|queue| queue.role == Role::Work);
    let policies = work.flat_map(|queue| {
        let types = match existing.get(&queue.name) {
            Some(None) => &[QueueType::Quorum, QueueType::Classic][..],
            Some(Some(QueueType::Classic)) => &[QueueType::Classic],
            _ => &[QueueType::Quorum],
        };
        types.iter().map(|queue_type| policy(queue, *queue_type, vhost))
    });
    Ok(json!({ "policies": policies.collect::<Vec<_>>() }))
}

fn policy(queue: &Queue, queue_type: QueueType, vhost: &str) -> Value {
    let is_classic = queue_type == QueueType::Classic;
    // With these no two policies have the same name, whatever the queues are called.
    let prefix = if is_classic { "rehop.classic" } else { "rehop" };
    let keys = queue.arguments.iter().filter(|(name, _)| match name.as_str() {
        // No policy can set these two, and the broker refuses one that tries (3.10, 4.0 and 4.3).
        "x-queue-type" | "x-single-active-consumer" => false,
        "x-dead-letter-exchange" | "x-dead-letter-routing-key" => true,
        // A classic queue ignores a whole policy if one of its keys is only for quorum queues
        // (`rabbit_classic_queue:capabilities` of 3.10, 4.0 and 4.3).
        _ => !is_classic,
    });
    let definition: Map<_, _> = keys
        .map(|(name, value)| (name.trim_start_matches("x-").to_owned(), json!(value)))
        .collect();
    json!({
        "vhost": vhost,
        "name": format!("{prefix}-{}", queue.name),
        "pattern": format!("^{}$", literal(&queue.name)),
        "apply-to": "queues",
        "priority": i32::from(!is_classic),
        "definition": definition,
    })
}

/// A name as a regular expression that matches nothing else.
fn literal(name: &str) -> String {
    let escape = |c: char| {
        if c.is_alphanumeric() || "-_ ".contains(c) { c.to_string() } else { format!("\\{c}") }
    };
    name.chars().map(escape).collect()
}

fn terraform(topology: &Topology, vhost: &str) -> Value {
    let mut names = Labels::new('_');
    let exchanges = topology.exchanges.iter().map(|exchange| {
        // The provider takes only text here, which is all that these exchanges need.
        let arguments: Map<_, _> =
            exchange.arguments.iter().map(|(name, value)| (name.clone(), plain_value(value))).collect();
        let settings =
            json!({ "type": exchange.kind.as_str(), "durable": true, "auto_delete": false, "arguments": arguments });
        let body = json!({ "name": plain(&exchange.name), "vhost": plain(vhost), "settings": [settings] });
        (names.label(&exchange.name), body)
    });
    let exchanges: Map<_, _> = exchanges.collect();
    let queues = own(topology).map(|queue| {
        let settings = json!({ "durable": true, "auto_delete": false, "arguments_json": text(&queue.arguments) });
        // Every change is a replacement for the provider, which deletes the queue with its
        // messages.
        let lifecycle = json!({ "prevent_destroy": true });
        let body = json!({
            "name": plain(&queue.name), "vhost": plain(vhost), "settings": [settings], "lifecycle": lifecycle,
        });
        (names.label(&format!("queue {}", queue.name)), body)
    });
    let queues: Map<_, _> = queues.collect();
    let bindings = topology.bindings.iter().map(|binding| {
        let body = json!({
            "source": plain(&binding.exchange), "vhost": plain(vhost), "destination": plain(&binding.queue),
            "destination_type": "queue", "routing_key": plain(&binding.routing_key),
            "arguments_json": text(&binding.arguments),
        });
        (names.label(&format!("{} to {}", binding.exchange, binding.queue)), body)
    });
    let mut bindings: Map<_, _> = bindings.collect();
    bindings.extend(topology.exchange_bindings.iter().map(|binding| {
        let body = json!({
            "source": plain(&binding.source), "vhost": plain(vhost), "destination": plain(&binding.destination),
            "destination_type": "exchange", "routing_key": "",
        });
        (names.label(&format!("{} to {}", binding.source, binding.destination)), body)
    }));
    let first: Vec<_> = exchanges
        .keys()
        .map(|label| format!("rabbitmq_exchange.{label}"))
        .chain(queues.keys().map(|label| format!("rabbitmq_queue.{label}")))
        .collect();
    // The names in a binding do not tell Terraform what has to exist first.
    for binding in bindings.values_mut() {
        binding["depends_on"] = json!(first);
    }
    json!({ "resource": { "rabbitmq_exchange": exchanges, "rabbitmq_queue": queues, "rabbitmq_binding": bindings } })
}

/// Terraform reads `${` and `%{` in a string as the start of a template.
fn plain(text: &str) -> String {
    text.replace("${", "$${").replace("%{", "%%{")
}

fn plain_value(argument: &Argument) -> Value {
    match argument {
        Argument::Text(text) => plain(text).into(),
        other => json!(other),
    }
}

fn text(arguments: &Arguments) -> String {
    plain(&json!(arguments).to_string())
}

fn kubernetes(topology: &Topology, vhost: &str, cluster: &str) -> Value {
    let mut names = Labels::new('-');
    let mut item = |kind: &str, name: &str, mut spec: Value| {
        spec["vhost"] = vhost.into();
        spec["rabbitmqClusterReference"] = json!({ "name": cluster });
        let metadata = json!({ "name": names.label(&format!("{} {name}", kind.to_lowercase())) });
        json!({ "apiVersion": "rabbitmq.com/v1beta1", "kind": kind, "metadata": metadata, "spec": spec })
    };
    let mut items = Vec::new();
    for Exchange { name, kind, arguments, .. } in &topology.exchanges {
        let spec = json!({
            "name": name, "type": kind.as_str(), "durable": true, "autoDelete": false, "arguments": arguments,
        });
        items.push(item("Exchange", name, spec));
    }
    for Queue { name, arguments, .. } in own(topology) {
        // The operator has a field of its own for the type, and refuses the argument beside it.
        let arguments: Map<_, _> = arguments
            .iter()
            .filter(|(name, _)| *name != "x-queue-type")
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        let spec = json!({
            "name": name, "type": "quorum", "durable": true, "autoDelete": false, "arguments": arguments,
        });
        items.push(item("Queue", name, spec));
    }
    for Binding { exchange, queue, routing_key, arguments, .. } in &topology.bindings {
        let spec = json!({
            "source": exchange, "destination": queue, "destinationType": "queue", "routingKey": routing_key,
            "arguments": arguments,
        });
        items.push(item("Binding", &format!("{exchange} to {queue}"), spec));
    }
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

/// Makes names of what other tools allow: lower-case letters, digits and one other character.
struct Labels {
    filler: char,
    given: Vec<String>,
}

impl Labels {
    fn new(filler: char) -> Self {
        Self { filler, given: Vec::new() }
    }

    /// A label that was not given before.
    fn label(&mut self, name: &str) -> String {
        let allowed =
            |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { self.filler };
        let readable: String = name.chars().map(allowed).take(200).collect();
        // Terraform's labels begin with a letter, and Kubernetes' names begin and end with a letter
        // or digit.
        let readable = format!("r{}{}", self.filler, readable.trim_matches(self.filler));
        let mut label = readable.clone();
        for number in 2.. {
            if !self.given.contains(&label) {
                break;
            }
            label = format!("{readable}{}{number}", self.filler);
        }
        self.given.push(label.clone());
        label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_special_characters_is_matched_as_it_is() {
        assert_eq!(literal("shop.orders-v2"), "shop\\.orders-v2");
        assert_eq!(literal("a+b(c)$"), "a\\+b\\(c\\)\\$");
    }

    #[test]
    fn labels_are_unique_and_made_of_allowed_characters() {
        let mut labels = Labels::new('-');
        let given = ["Queue a.b", "queue a-b", "queue a b", ".x."].map(|name| labels.label(name));
        assert_eq!(given, ["r-queue-a-b", "r-queue-a-b-2", "r-queue-a-b-3", "r-x"]);
    }

    #[test]
    fn a_template_of_terraforms_stays_text() {
        assert_eq!(plain("a${b}%{c}$d"), "a$${b}%%{c}$d");
    }
}
