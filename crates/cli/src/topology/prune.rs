//! `rehop topology prune`: wait queues, and exchanges of the ladder, that nothing uses any more.

use std::process::ExitCode;
use std::time::Duration;

use rehop_operator::doctor::{self, Unused, Verdict};

use crate::options::Options;
use crate::queues::Queues;
use crate::{exit, output, signals};

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct Args {
    #[command(flatten)]
    queues: Queues,
    /// Only the wait queue of this delay, such as 500ms, with its exchange; may be repeated.
    /// Default: all that are not used
    #[arg(long = "delay", value_name = "DURATION", value_parser = humantime::parse_duration)]
    delays: Vec<Duration>,
    /// Delete them. Without it, they are only listed
    #[arg(long)]
    apply: bool,
    /// Also those of which it is not known whether a running consumer uses them
    #[arg(long)]
    even_if_used: bool,
    /// Print JSON: an array
    #[arg(long)]
    json: bool,
}

/// Lines have at most 80 columns, because clap would wrap longer ones and break the layout.
const HELP: &str = "\
It needs the management API (--management), because only this lists wait queues
and consumers, and counts messages that the broker is dead-lettering.

Lists tiers, and the rungs of a ladder with their exchanges, that no queue in
the settings uses. Queues named with --queue count besides those in the
settings. Give it all queues of the service.

A running consumer says where the messages of its queue wait, in the arguments
of its subscription. So nothing is deleted that a running service uses, even if
its settings are not these, or its delays are set in code. A consumer that says
nothing, because it is not rehop's, may use any of them: then they are listed as
\"may be in use\", and only --even-if-used deletes them. A service that does not
run, and one that pauses its subscriptions at this moment, is not seen. When it
starts it declares again what it needs; with topology = \"check\" it does not
start, and names what is missing.

RabbitMQ cannot delete a quorum queue on the condition that it is empty. So with
--apply a queue is unbound, counted again after 12 seconds, and deleted only if
it is still empty and unused. A message sent to it meanwhile goes to the stray
queue. A message on its way to a rung comes home early, and waits for the rest
without an attempt.

SIGINT (Ctrl-C) or SIGTERM stops it: what it has unbound is bound again, and the
exit status is 3. If it cannot bind a queue again, the error names it. If it is
killed, or a second signal stops it, queues may stay unbound, and a service with
topology = \"check\" starts all the same, because AMQP shows no bindings. Then run
`rehop topology declare` with the settings of that service.

Examples:
  rehop topology prune --management http://127.0.0.1:15672
  rehop topology prune --delay 500ms --apply";

pub(super) async fn run(args: Args, options: &Options) -> anyhow::Result<ExitCode> {
    // With a part of the queues, the wait queues of the others would seem to be unused.
    let settings = args.queues.and_listed(options.settings()?)?;
    let mut unused = doctor::unused(&settings).await?;
    if !args.delays.is_empty() {
        let is_asked_for = |unused: &Unused| {
            unused.delay_ms.is_some_and(|delay| args.delays.contains(&Duration::from_millis(delay)))
        };
        unused.retain(is_asked_for);
    }
    if !args.apply {
        match args.json {
            true => output::print_json(&unused)?,
            false => output::print(&listed(&unused, args.even_if_used))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (chosen, left): (Vec<_>, Vec<_>) = unused
        .into_iter()
        .partition(|unused| args.even_if_used || unused.verdict != Verdict::MayBeInUse);
    let stop = signals::watch()?;
    let pruning = doctor::prune(&settings, &chosen, stop.cancelled_owned()).await?;
    let status = ExitCode::from(if pruning.is_stopped { exit::UNFINISHED } else { 0 });
    if args.json {
        output::print_json(&pruning.objects)?;
        return Ok(status);
    }
    let mut lines: Vec<_> = pruning
        .objects
        .iter()
        .map(|pruned| {
            let became = pruned
                .kept_because
                .as_ref()
                .map_or_else(|| "deleted".to_owned(), |it| format!("kept: {it}"));
            format!("{} {} is {became}", pruned.object.as_str(), pruned.name)
        })
        .collect();
    lines.extend(
        left.iter().map(|left| {
            format!("{} {} is kept: {}", left.object.as_str(), left.name, reason(left))
        }),
    );
    if lines.is_empty() {
        lines.push(NOTHING.to_owned());
    }
    output::print(&lines.join("\n"))?;
    Ok(status)
}

const NOTHING: &str = "no wait queue is unused";

fn listed(unused: &[Unused], even_if_used: bool) -> String {
    let mut lines: Vec<_> = unused
        .iter()
        .map(|it| format!("{} {}: {}", it.object.as_str(), it.name, reason(it)))
        .collect();
    let count = |verdict| unused.iter().filter(|unused| unused.verdict == verdict).count();
    let doubtful = count(Verdict::MayBeInUse);
    let removable = count(Verdict::Removable) + if even_if_used { doubtful } else { 0 };
    lines.push(match (unused.len(), removable) {
        (0, _) => NOTHING.to_owned(),
        (_, 0) => "nothing can be deleted now".to_owned(),
        (_, removable) => format!("--apply would delete {removable} of these"),
    });
    if doubtful > 0 && !even_if_used {
        lines.push(format!("--even-if-used would delete {doubtful} of which it is not known whether they are in use"));
    }
    lines.join("\n")
}

/// The verdict, with the queues that it is about.
fn reason(unused: &Unused) -> String {
    match &unused.used_by[..] {
        [] => unused.verdict.as_str().to_owned(),
        queues => format!("{} (consumers of {})", unused.verdict.as_str(), queues.join(", ")),
    }
}
