//! `rehop topology declare`.

use rehop::settings::{Declare, TopologyMode};
use rehop::{Settings, Topology};

use crate::output;

pub(super) async fn declare(mut settings: Settings) -> anyhow::Result<()> {
    // `check` is meant for services. This command declares in any case.
    settings.topology = TopologyMode::Declare;
    let topology = Topology::of(&settings)?;
    topology.declare(&settings).await?;
    let (own, existing): (Vec<_>, Vec<_>) =
        topology.queues.iter().partition(|queue| queue.declare != Declare::Existing);
    let mut lines = Vec::new();
    lines.extend(
        topology.exchanges.iter().map(|exchange| format!("exchange {} is declared", exchange.name)),
    );
    lines.extend(own.iter().map(|queue| format!("queue {} is declared", queue.name)));
    lines.extend(
        existing.iter().map(|queue| format!("queue {} exists, and is used as it is", queue.name)),
    );
    lines.push(format!(
        "namespace {} is ready: {} exchanges, {} queues, {} bindings",
        settings.namespace,
        topology.exchanges.len(),
        topology.queues.len(),
        topology.bindings.len(),
    ));
    output::print(&lines.join("\n"))
}
