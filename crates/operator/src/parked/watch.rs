//! How an operation is watched, and how it learns that it is to end early.

use crate::parked::progress::Progress;

/// Is told how far the operation is.
pub(crate) type Observe<'a> = &'a mut (dyn FnMut(&Progress) + Send);

/// Completes when the operation is to end. Must not be polled again after that.
pub(crate) type StopSignal<'a> = &'a mut (dyn Future<Output = ()> + Send + Unpin);
