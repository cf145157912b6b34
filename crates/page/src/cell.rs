//! A value on a page that changes while the page is open.

/// A value that changes while the page is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    /// Its element's id on the page.
    pub(super) id: String,
    pub(super) text: String,
}

impl Cell {
    pub(super) fn new(id: impl Into<String>, text: impl Into<String>) -> Self {
        Self { id: id.into(), text: text.into() }
    }
}
