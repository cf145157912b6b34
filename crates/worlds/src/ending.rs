//! How a process of a test ends.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

/// What the future of a process may end with: nothing, or a result, whose error the world reports.
pub trait ProcessEnd: Send + 'static {
    /// Why the process failed, if it did.
    fn error(self) -> Option<String>;
}

impl ProcessEnd for () {
    fn error(self) -> Option<String> {
        None
    }
}

impl<T, E> ProcessEnd for Result<T, E>
where
    T: Send + 'static,
    E: fmt::Debug + Send + 'static,
{
    fn error(self) -> Option<String> {
        self.err().map(|error| format!("{error:?}"))
    }
}

/// Runs a process to its end. Returns why it failed, if it did: an error or a panic.
#[doc(hidden)]
pub async fn failure_of<E: ProcessEnd>(running: impl Future<Output = E>) -> Option<String> {
    let end = AssertUnwindSafe(running).catch_unwind().await;
    end.map_or_else(|panic| Some(text_of(&*panic)), ProcessEnd::error)
}

/// What a panic said.
fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    format!("it panicked: {}", text.unwrap_or("without a text"))
}
