//! Locks a mutex, also after a panic of whoever held it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is behind the mutex is whole whenever anything of rehop's can panic, so a poisoned one is
/// as good as any.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
