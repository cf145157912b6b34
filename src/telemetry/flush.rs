//! Exports at once what a process may not live to export later.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

/// How long a delivery waits for it. A collector may hang.
const LIMIT: Duration = Duration::from_millis(500);

type Flush = Arc<dyn Fn() + Send + Sync>;

static FLUSH: RwLock<Option<Flush>> = RwLock::new(None);

/// A flush that hangs must not be joined by more and more others.
static ONE_AT_A_TIME: Semaphore = Semaphore::const_new(1);

/// How the spans of a provider of your own are exported at once. [`init`](crate::telemetry::init)
/// sets this up for its own provider.
///
/// rehop calls it before it handles a message whose handler may have killed the process: such a
/// process exports nothing any more. It may block, and runs on a thread of its own; the message
/// waits for it for 500 ms at most, and whatever it does fails nothing.
///
/// ```
/// # fn run(provider: opentelemetry_sdk::trace::SdkTracerProvider) {
/// rehop::telemetry::flush_with(move || drop(provider.force_flush()));
/// # }
/// ```
pub fn flush_with(flush: impl Fn() + Send + Sync + 'static) {
    *FLUSH.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(flush));
}

/// Exports what was recorded so far, and returns after [`LIMIT`] at the latest.
pub(crate) async fn at_once() {
    let flush = FLUSH.read().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(flush) = flush {
        // A panic of a service's own function drops the sender, too.
        let _ = tokio::time::timeout(LIMIT, run(flush, &ONE_AT_A_TIME)).await;
    }
}

async fn run(flush: Flush, turns: &'static Semaphore) {
    // One that hangs must not hold up every further suspect.
    let Ok(turn) = turns.try_acquire() else { return };
    let (sender, done) = oneshot::channel();
    // The SDK blocks, and would deadlock on a runtime with one thread.
    let work = move || {
        // Before the sender is dropped, also if the flush panics.
        let turn = turn;
        flush();
        drop(turn);
        let _ = sender.send(());
    };
    // If no thread can be started, the sender is dropped with the closure.
    let _ = std::thread::Builder::new().name("rehop-flush".to_owned()).spawn(work);
    let _ = done.await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_flush_is_awaited_and_a_panic_in_it_is_its_own() {
        static TURNS: Semaphore = Semaphore::const_new(1);
        let count = Arc::new(AtomicU32::new(0));
        let counter = count.clone();
        let flush: Flush = Arc::new(move || {
            assert!(counter.fetch_add(1, Ordering::SeqCst) > 0, "the first one panics")
        });
        run(flush.clone(), &TURNS).await;
        run(flush, &TURNS).await;
        assert_eq!((count.load(Ordering::SeqCst), TURNS.available_permits()), (2, 1));
    }

    #[tokio::test]
    async fn while_one_flush_hangs_no_other_begins_or_waits() {
        static TURNS: Semaphore = Semaphore::const_new(1);
        let (release, hangs) = mpsc::channel::<()>();
        let (started, begun) = oneshot::channel();
        let (hangs, started) = (std::sync::Mutex::new(hangs), std::sync::Mutex::new(Some(started)));
        let flush: Flush = Arc::new(move || {
            if let Some(started) = started.lock().unwrap().take() {
                started.send(()).unwrap();
            }
            let _ = hangs.lock().unwrap().recv();
        });
        let first = tokio::spawn(run(flush.clone(), &TURNS));
        begun.await.unwrap();
        assert!(futures_util::poll!(Box::pin(run(flush, &TURNS))).is_ready());
        assert_eq!(TURNS.available_permits(), 0);
        drop(release);
        first.await.unwrap();
        assert_eq!(TURNS.available_permits(), 1);
    }
}
