//! `rehop topology`: what a configuration needs in the broker.

use clap::Subcommand;
use comfy_table::Table;
use rehop::{Arguments, Declare, Settings, Topology, TopologyMode};

use super::options::{Options, Usage};
use super::output;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the exchanges, queues and bindings; nothing is asked of the broker
    ///
    /// Also printed for each queue: how often a message is attempted at most when it keeps failing, and how often it is
    /// delivered at most when it also crashes its consumer.
    #[command(after_long_help = "\
Examples:
  rehop topology show --queue orders
  rehop topology show --dot | dot -Tsvg > topology.svg
  rehop topology show --json | jq '.queues[].name'")]
    Show {
        #[command(flatten)]
        queues: Queues,
        /// Print JSON
        #[arg(long, conflicts_with = "dot")]
        json: bool,
        /// Print a picture in Graphviz's language
        #[arg(long)]
        dot: bool,
    },
    /// Declare them on the broker
    ///
    /// Services then need no permission to configure: run them with topology = "check". What exists already as it is needed is
    /// left as it is, and what exists with other arguments is an error that names the difference. Queues with declare =
    /// "existing" are only looked for.
    #[command(after_long_help = "\
Examples:
  rehop topology declare --queue orders
  rehop relay --set topology=check --queue orders --to http://127.0.0.1:8080/orders")]
    Declare {
        #[command(flatten)]
        queues: Queues,
    },
}

#[derive(Debug, clap::Args)]
struct Queues {
    /// A work queue, in the settings or not; may be repeated. Default: all queues of the settings
    #[arg(long = "queue", value_name = "QUEUE")]
    names: Vec<String>,
}

impl Queues {
    /// The settings, with exactly the queues that were asked for.
    fn select(&self, mut settings: Settings) -> anyhow::Result<Settings> {
        if self.names.is_empty() && settings.queues.is_empty() {
            let problem = "there is no queue in the settings: name one with --queue, or list them under [[queues]]";
            return Err(Usage(problem.to_owned()).into());
        }
        if !self.names.is_empty() {
            settings.queues.retain(|queue| self.names.contains(&queue.queue));
            for name in &self.names {
                settings.queue_mut(name);
            }
        }
        Ok(settings)
    }
}

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<()> {
    let settings = options.loader()?.load()?;
    match args.command {
        Command::Show { queues, json, dot } => {
            let plan = Plan::of(&queues.select(settings)?)?;
            match (json, dot) {
                (true, _) => output::print_json(&plan),
                (_, true) => output::print(plan.topology.to_dot().trim_end()),
                _ => output::print(&plan.to_text()),
            }
        }
        Command::Declare { queues } => declare(queues.select(settings)?).await,
    }
}

async fn declare(mut settings: Settings) -> anyhow::Result<()> {
    // `check` is for services; whoever gives this command wants it declared.
    settings.topology = TopologyMode::Declare;
    let topology = Topology::of(&settings)?;
    topology.declare(&settings).await?;
    let (own, existing): (Vec<_>, Vec<_>) =
        topology.queues.iter().partition(|queue| queue.declare != Declare::Existing);
    let mut lines = Vec::new();
    lines.extend(topology.exchanges.iter().map(|exchange| format!("exchange {} is declared", exchange.name)));
    lines.extend(own.iter().map(|queue| format!("queue {} is declared", queue.name)));
    lines.extend(existing.iter().map(|queue| format!("queue {} exists, and was taken as it is", queue.name)));
    lines.push(format!(
        "namespace {} is ready: {} exchanges, {} queues, {} bindings",
        settings.namespace,
        topology.exchanges.len(),
        topology.queues.len(),
        topology.bindings.len(),
    ));
    output::print(&lines.join("\n"))
}

/// The topology, and what the policies allow.
#[derive(serde::Serialize)]
struct Plan {
    namespace: String,
    #[serde(flatten)]
    topology: Topology,
    limits: Vec<Limits>,
}

/// The most that can happen to one message of a queue.
#[derive(serde::Serialize)]
struct Limits {
    queue: String,
    /// When its handler fails each time.
    max_attempts: u64,
    /// When its consumer crashes as well, as often as the broker lets it.
    max_deliveries: u64,
}

impl Plan {
    fn of(settings: &Settings) -> anyhow::Result<Self> {
        let limits = settings.queues.iter().map(|queue| {
            let policy = settings.policy(&queue.queue)?;
            Ok(Limits {
                queue: queue.queue.clone(),
                max_attempts: policy.max_attempts(),
                max_deliveries: policy.max_deliveries(),
            })
        });
        Ok(Self {
            namespace: settings.namespace.clone(),
            topology: Topology::of(settings)?,
            limits: limits.collect::<anyhow::Result<_>>()?,
        })
    }

    fn to_text(&self) -> String {
        let mut exchanges = output::table(["EXCHANGE", "TYPE", "ARGUMENTS"]);
        for exchange in &self.topology.exchanges {
            exchanges.add_row([&exchange.name, exchange.kind.as_str(), &lines(&exchange.arguments)]);
        }
        let mut queues = output::table(["QUEUE", "ROLE", "DECLARED BY", "ARGUMENTS"]);
        for queue in &self.topology.queues {
            let owner = if queue.declare == Declare::Existing { "somebody else" } else { "rehop" };
            queues.add_row([&queue.name, queue.role.as_str(), owner, &lines(&queue.arguments)]);
        }
        let mut bindings = output::table(["BINDING OF QUEUE", "TO EXCHANGE", "ROUTING KEY", "ARGUMENTS"]);
        for binding in &self.topology.bindings {
            let arguments = lines(&binding.arguments);
            bindings.add_row([&binding.queue, &binding.exchange, &binding.routing_key, &arguments]);
        }
        let mut limits = output::table(["LIMITS OF QUEUE", "ATTEMPTS AT MOST", "DELIVERIES AT MOST, WITH CRASHES"]);
        for limit in &self.limits {
            limits.add_row([limit.queue.clone(), limit.max_attempts.to_string(), limit.max_deliveries.to_string()]);
        }
        [exchanges, queues, bindings, limits].iter().map(Table::trim_fmt).collect::<Vec<_>>().join("\n\n")
    }
}

fn lines(arguments: &Arguments) -> String {
    arguments.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join("\n")
}
