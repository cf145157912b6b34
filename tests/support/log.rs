//! A log of events that tests can wait for.

use std::sync::{Arc, Mutex};

use rehop_testing::eventually;

use super::SOON;

/// Recorded events, in order. A test can wait for them.
pub(crate) struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Log<T> {
    /// How many owners this log has.
    pub(crate) fn owners(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Adds an entry and returns the new number of entries.
    pub(crate) fn push(&self, seen: T) -> usize {
        let mut log = self.0.lock().unwrap();
        log.push(seen);
        log.len()
    }
}

impl<T: Clone> Log<T> {
    pub(crate) fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }

    /// Waits for this many entries and returns all.
    pub(crate) async fn reaches(&self, count: usize) -> Vec<T> {
        let what = format!("{count} entries in the log");
        eventually(SOON, &what, async || {
            let seen = self.all().len();
            if seen >= count { Ok(true) } else { Err(format!("{seen}")) }
        })
        .await
        .unwrap();
        self.all()
    }
}
