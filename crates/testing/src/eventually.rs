use std::{fmt, time::Duration};

use tokio::time::{Instant, sleep_until, timeout_at};

/// What a probe of [`eventually`] may return.
///
/// `true` and `Some` end the waiting; `false` and `None` do not. An `Err` does not end it either:
/// it describes the observed state for the failure message. The value inside `Ok` counts, so
/// `Ok(false)` keeps waiting.
pub trait Observed {
    /// What [`eventually`] returns.
    type Value;

    /// The value, or a description of the state that was observed instead.
    fn observed(self) -> Result<Self::Value, String>;
}

impl Observed for bool {
    type Value = ();

    fn observed(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("false".to_owned()) }
    }
}

impl<T> Observed for Option<T> {
    type Value = T;

    fn observed(self) -> Result<T, String> {
        self.ok_or_else(|| "none".to_owned())
    }
}

impl<O: Observed, E: fmt::Display> Observed for Result<O, E> {
    type Value = O::Value;

    fn observed(self) -> Result<O::Value, String> {
        self.map_err(|error| error.to_string()).and_then(Observed::observed)
    }
}

crate::debug_is_display!(NotInTime);

/// An event did not happen in time.
#[derive(thiserror::Error)]
#[error("not within {within:?}: {what}; last seen: {last} (looked {looks} times)")]
pub struct NotInTime {
    what: String,
    within: Duration,
    last: String,
    looks: u32,
}

/// Waits until the probe succeeds. It runs the probe again after 5 ms, then after 10 ms, and so on
/// up to every 200 ms.
///
/// A probe that hangs is abandoned at the deadline. To show the observed state in the failure,
/// return `Err` with a description:
///
/// ```
/// # use std::time::Duration;
/// # use rehop_testing::eventually;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let mut queued = 3;
/// let emptied = eventually(Duration::from_secs(1), "the queue is empty", async || {
///     queued -= 1;
///     if queued == 0 { Ok(true) } else { Err(format!("{queued} messages")) }
/// });
/// assert!(emptied.await.is_ok());
///
/// let never = eventually(Duration::from_millis(20), "pigs fly", async || false).await;
/// let error = never.unwrap_err().to_string();
/// assert!(error.starts_with("not within 20ms: pigs fly; last seen: false"));
/// # }
/// ```
pub async fn eventually<O: Observed>(
    within: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> O,
) -> Result<O::Value, NotInTime> {
    let deadline = Instant::now() + within;
    let mut pause = Duration::from_millis(5);
    let mut last = "nothing, the first look did not end".to_owned();
    let mut looks = 0;
    loop {
        match timeout_at(deadline, probe()).await.map(Observed::observed) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(seen)) => last = seen,
            Err(_) => {
                return Err(NotInTime { what: what.to_owned(), within, last, looks });
            }
        }
        looks += 1;
        let next = Instant::now() + pause;
        if next >= deadline {
            return Err(NotInTime { what: what.to_owned(), within, last, looks });
        }
        sleep_until(next).await;
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}
