//! A world as a story: its plan, what happened, and what it broke.

use std::fmt;

use crate::check::check;
use crate::record::Recorded;
use crate::run::RunOutcome;
use crate::scenario::Scenario;

/// Prints a world from its beginning to its end.
pub struct Story<'a> {
    /// The plan.
    pub scenario: &'a Scenario,
    /// What became of it.
    pub outcome: &'a RunOutcome,
}

impl fmt::Display for Story<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, outcome } = self;
        writeln!(f, "{scenario}\nwhat happened:")?;
        for Recorded { at, event } in &outcome.events {
            writeln!(f, "{at:>11.3?} {event:?}")?;
        }
        writeln!(f, "what is left:")?;
        for (name, view) in
            outcome.queues.iter().filter(|(_, view)| view.messages().next().is_some())
        {
            writeln!(f, "  {name}: {view:?}")?;
        }
        let broken = check(scenario, outcome);
        if broken.is_empty() {
            return writeln!(f, "every promise was kept");
        }
        writeln!(f, "broken promises:")?;
        broken.iter().try_for_each(|violation| writeln!(f, "{violation}"))
    }
}
