//! The deaths of the consumer's processes.

use std::sync::{Arc, Mutex};

/// One death.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crash {
    /// In nanoseconds since the epoch.
    pub(crate) at: u64,
    /// The order that killed it.
    pub(crate) order: u32,
}

/// All deaths so far. Whoever supervises the consumer adds to them.
pub(crate) type Crashes = Arc<Mutex<Vec<Crash>>>;
