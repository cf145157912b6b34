//! Records what the handlers of both sides report, so that the same events start and stop both
//! clocks.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::Result;

/// Attempts by message. Messages have the ids 0, 1, 2, …
pub(crate) struct Witness {
    origin: Instant,
    chains: Vec<Chain>,
    /// How many messages have not had their last attempt.
    open: AtomicUsize,
    all_ended: Notify,
    has_begun: AtomicBool,
    begun: Notify,
    /// Attempts at messages that the benchmark has not sent.
    strangers: AtomicUsize,
}

/// Times are nanoseconds since the origin; 0 means not yet.
#[derive(Default)]
struct Chain {
    attempts: AtomicU32,
    first: AtomicU64,
    last: AtomicU64,
}

/// What is known of one message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) attempts: u32,
    /// When its first attempt was.
    pub(crate) first: Option<Duration>,
    /// When the attempt was that ended its chain.
    pub(crate) last: Option<Duration>,
}

impl Witness {
    pub(crate) fn new(messages: usize) -> Self {
        Self {
            origin: Instant::now(),
            chains: (0..messages).map(|_| Chain::default()).collect(),
            open: AtomicUsize::new(messages),
            all_ended: Notify::new(),
            has_begun: AtomicBool::new(false),
            begun: Notify::new(),
            strangers: AtomicUsize::new(0),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// A handler was called. If `is_last`, its result ends the chain.
    pub(crate) fn attempt(&self, message_id: Option<&str>, is_last: bool) {
        let Some(chain) = message_id.and_then(|id| self.chains.get(id.parse::<usize>().ok()?))
        else {
            self.strangers.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let now = u64::try_from(self.now().as_nanos()).unwrap_or(u64::MAX).max(1);
        let once = |time: &AtomicU64| {
            time.compare_exchange(0, now, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        chain.attempts.fetch_add(1, Ordering::Relaxed);
        if once(&chain.first) && !self.has_begun.swap(true, Ordering::Relaxed) {
            self.begun.notify_one();
        }
        if is_last && once(&chain.last) && self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all_ended.notify_one();
        }
    }

    /// Returns at the first attempt. Call it once only.
    pub(crate) async fn begun(&self) {
        self.begun.notified().await;
    }

    /// Returns when each message has had the attempt that ends its chain. Call it once only.
    pub(crate) async fn all_ended(&self) {
        self.all_ended.notified().await;
    }

    /// # Errors
    ///
    /// When a handler was given a message that the benchmark has not sent.
    pub(crate) fn seen(&self) -> Result<Vec<Seen>> {
        let strangers = self.strangers.load(Ordering::Acquire);
        if strangers > 0 {
            return Err(format!("{strangers} attempts at messages that were never sent").into());
        }
        let time = |time: &AtomicU64| {
            Some(time.load(Ordering::Acquire)).filter(|at| *at > 0).map(Duration::from_nanos)
        };
        let seen = self.chains.iter().map(|chain| Seen {
            attempts: chain.attempts.load(Ordering::Acquire),
            first: time(&chain.first),
            last: time(&chain.last),
        });
        Ok(seen.collect())
    }
}
