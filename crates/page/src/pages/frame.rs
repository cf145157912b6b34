//! What every page has around its content.

use crate::door::Session;
use crate::state::State;

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
    pub(super) fn new(state: &State, session: &Session, title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            namespace: state.settings.namespace.clone(),
            allowed: state.allowed.to_string(),
            form: session.form.clone(),
        }
    }
}
