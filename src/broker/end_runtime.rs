//! The runtime in which lapin's threads end connections.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread;

use async_compat::Compat;

/// Starts it, unless it runs.
///
/// lapin's threads (4.12) drop sockets outside of any runtime. For this async-compat (0.2) starts
/// one when it is first needed. If the process has no file descriptor left then, that panics, and
/// again whenever a connection ends from then on.
///
/// # Errors
///
/// When there is no file descriptor or thread for it. Nothing is broken then.
pub(super) fn start() -> io::Result<()> {
    static IS_STARTED: Mutex<bool> = Mutex::new(false);
    let mut is_started = IS_STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if *is_started {
        return Ok(());
    }
    let starting = thread::Builder::new().spawn(|| {
        // It needs as many descriptors as this one.
        drop(tokio::runtime::Builder::new_current_thread().enable_all().build()?);
        drop(Compat::new(()));
        Ok(())
    })?;
    let started: io::Result<()> =
        starting.join().unwrap_or_else(|_| Err(io::Error::other("async-compat has no runtime")));
    started?;
    *is_started = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    /// Inside of a runtime, too.
    #[tokio::test]
    async fn it_is_started_once() {
        for _ in 0..2 {
            super::start().unwrap();
        }
    }
}
