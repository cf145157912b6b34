//! `rehop topology plan`: what declaring would do.

use std::process::ExitCode;

use rehop::Settings;
use rehop::settings::TopologyMode;
use rehop_operator::doctor::{self, Action, Plan};

use crate::{exit, output};

pub(super) async fn run(settings: &Settings, json: bool) -> anyhow::Result<ExitCode> {
    // Like `rehop topology declare`, which declares in any case.
    let mut settings = settings.clone();
    settings.topology = TopologyMode::Declare;
    let plan = doctor::plan(&settings).await?;
    if json {
        output::print_json(&plan)?;
    } else {
        output::print(&text(&plan))?;
    }
    Ok(if plan.is_in_place() { ExitCode::SUCCESS } else { ExitCode::from(exit::FINDINGS) })
}

fn text(plan: &Plan) -> String {
    let mut lines = Vec::new();
    for part in &plan.parts {
        let because =
            if part.action == Action::Keep { String::new() } else { format!(": {}", part.because) };
        lines.push(format!("{:8} {}{because}", part.action.as_str(), part.object));
        lines.extend(
            part.steps
                .iter()
                .enumerate()
                .map(|(index, step)| format!("         {}. {step}", index + 1)),
        );
    }
    let count = |actions: &[Action]| {
        plan.parts.iter().filter(|part| actions.contains(&part.action)).count()
    };
    let refused = count(&[Action::Refuse, Action::Missing]);
    lines.push(match (count(&[Action::Create]), refused, count(&[Action::Unknown])) {
        (0, 0, 0) if plan.unseen.is_empty() => "declaring would change nothing".to_owned(),
        (0, 0, 0) => "declaring would change nothing, as far as seen".to_owned(),
        (0, 0, unknown) => format!("{unknown} of these could not be looked at"),
        (changes, 0, _) => format!("`rehop topology declare` would create {changes} of these"),
        (_, refused, _) => {
            format!("`rehop topology declare` would fail at {refused} of these; see their steps")
        }
    });
    lines.extend(plan.unseen.iter().map(|unseen| format!("not seen: {unseen}")));
    lines.join("\n")
}
