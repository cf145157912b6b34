//! Functions as handlers, so that the compiler explains one that is not.

use std::future::Future;

use crate::message::Message;

/// A function that takes a `Message<T>` and returns a future.
///
/// The compiler reports a bound on `Fn` by the number and the types of the arguments, without the
/// text of [`Handler`](super::Handler). A function that does not satisfy this trait lacks all of
/// its implementations, and then that text appears: hence the second implementation, which exists
/// for no type. That `Fn` is a supertrait keeps the compiler from reporting it as well.
pub trait HandlerFunction<T, R>: Fn(Message<T>) -> R {}

impl<T, R: Future, F: Fn(Message<T>) -> R> HandlerFunction<T, R> for F {}

impl<T, F: Never + Fn(Message<T>) -> NotAFuture> HandlerFunction<T, NotAFuture> for F {}

/// Implemented for no type.
pub trait Never {}

/// Keeps the two implementations apart.
#[derive(Debug)]
pub struct NotAFuture;
