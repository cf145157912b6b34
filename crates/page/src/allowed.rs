//! What the page may do.

use std::fmt;
use std::str::FromStr;

/// Something that changes messages, or shows what is otherwise masked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Action {
    /// Send messages back to their work queue.
    Replay,
    /// Move messages to the discarded queue.
    Discard,
    /// Send a changed copy, and keep the original in the discarded queue.
    Edit,
    /// Show headers and values that `mask.headers` and `mask.json` mask.
    Reveal,
}

impl Action {
    const ALL: [Self; 4] = [Self::Replay, Self::Discard, Self::Edit, Self::Reveal];

    /// The action's name, as settings and addresses write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Discard => "discard",
            Self::Edit => "edit",
            Self::Reveal => "reveal",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|action| action.as_str() == text);
        known.ok_or_else(|| {
            format!("unknown action {text:?}; expected replay, discard, edit or reveal")
        })
    }
}

/// The actions that the page may carry out. By default there are none: it is read-only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowed(Vec<Action>);

impl Allowed {
    /// Whether this action is allowed.
    pub fn contains(&self, action: Action) -> bool {
        self.0.contains(&action)
    }

    /// Whether nothing is allowed but to look.
    pub fn is_read_only(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Action> for Allowed {
    fn from_iter<T: IntoIterator<Item = Action>>(actions: T) -> Self {
        let mut actions: Vec<_> = actions.into_iter().collect();
        actions.sort_unstable();
        actions.dedup();
        Self(actions)
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_read_only() {
            return f.write_str("read-only");
        }
        f.write_str(&self.0.iter().map(|action| action.as_str()).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_allowed_unless_it_is_named() {
        let allowed: Allowed =
            ["reveal", "replay", "replay"].map(|name| name.parse().unwrap()).into_iter().collect();
        assert_eq!(allowed.to_string(), "replay, reveal");
        assert!(allowed.contains(Action::Replay) && !allowed.contains(Action::Discard));
        assert!(
            Allowed::default().is_read_only()
                && Action::ALL.iter().all(|it| !Allowed::default().contains(*it))
        );
        assert!(
            "purge"
                .parse::<Action>()
                .unwrap_err()
                .contains("expected replay, discard, edit or reveal")
        );
    }
}
