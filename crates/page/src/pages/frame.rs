//! What every page has around its content.

use crate::door::FormToken;
use crate::state::AppState;

/// What every page has around its content.
pub(super) struct Frame {
    pub(super) title: String,
    pub(super) namespace: String,
    /// What the page may do, in words.
    pub(super) allowed: String,
    /// What its forms carry.
    pub(super) form: String,
}

impl Frame {
    pub(super) fn new(state: &AppState, token: &FormToken, title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            namespace: state.settings.namespace.clone(),
            allowed: state.allowed.to_string(),
            form: token.0.clone(),
        }
    }
}
