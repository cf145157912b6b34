//! Places for channels: a channel that is tried on the scout's connection shows that there is room
//! for one more, until something else opens one.
//!
//! So nothing else of a service opens a channel from the trial to the opening of the channel that
//! was tried. Several that wait to be opened are tried together.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::stream::BoxStream;
use lapin::Event;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};
use tokio::time::timeout;

use crate::broker::client::{Answer, Channel, Connection};
use crate::clock;
use crate::lock::lock;

/// For how long a place that was tried counts as free. Longer than one channel takes to open, or
/// those who were tried together would try again, one after the other.
const FRESH: Duration = Duration::from_secs(3);

/// The longest that others wait for a channel that is being opened.
const OPENS_WITHIN: Duration = Duration::from_secs(1);

/// Who opens a channel.
#[derive(Default)]
pub(crate) struct Places {
    /// Read-locked while a channel is opened on which nothing depends, and write-locked while a
    /// place is tried and taken.
    opening: Arc<RwLock<()>>,
    /// How many wait to take a place.
    waiting: AtomicUsize,
    /// How many were tried and not taken, and when.
    tried: Mutex<Option<(usize, Instant)>>,
    /// Each channel that consumes has a clone.
    consumed: Arc<()>,
}

/// Counts a queue as consumed, until this is dropped.
#[must_use = "the queue counts as consumed until this is dropped"]
pub(crate) struct Consumed(#[expect(dead_code, reason = "it is counted")] Arc<()>);

/// A place for a channel, which nothing else of this service takes meanwhile.
#[must_use = "nothing else opens a channel until it is used or dropped"]
pub(crate) struct Place {
    _turn: OwnedRwLockWriteGuard<()>,
}

impl Place {
    /// Opens the channel. Others need not wait for one that takes long.
    pub(crate) async fn open<T>(self, opening: impl Future<Output = T>) -> T {
        let mut opening = pin!(opening);
        match timeout(OPENS_WITHIN, &mut opening).await {
            Ok(opened) => opened,
            Err(_) => {
                drop(self);
                opening.await
            }
        }
    }
}

impl Places {
    /// Waits for the turn to take a place. Returns also how many others wait.
    pub(super) async fn take(&self) -> (Place, usize) {
        let waiting = Waiting::begin(&self.waiting);
        let place = Place { _turn: self.opening.clone().write_owned().await };
        drop(waiting);
        (place, self.waiting.load(Ordering::Relaxed))
    }

    /// Takes a place that was tried together with another one, if there is one.
    pub(super) fn take_tried(&self) -> bool {
        let mut tried = lock(&self.tried);
        match &mut *tried {
            Some((left @ 1.., at)) if clock::now().saturating_duration_since(*at) < FRESH => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    /// So many places were tried and are not taken yet.
    pub(super) fn tried(&self, left: usize) {
        *lock(&self.tried) = Some((left, clock::now()));
    }

    /// Counts a queue as consumed.
    pub(super) fn consumed(&self) -> Consumed {
        Consumed(self.consumed.clone())
    }

    /// How many queues are consumed.
    pub(super) fn count_consumed(&self) -> usize {
        Arc::strong_count(&self.consumed) - 1
    }

    /// The connection; each channel that it opens may take a place that was tried.
    pub(super) fn counted(
        self: &Arc<Self>,
        connection: Arc<dyn Connection>,
    ) -> Arc<dyn Connection> {
        Arc::new(Counted { connection, places: self.clone() })
    }
}

/// Counted as waiting until this is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that opens no channel while a place is tried and taken.
struct Counted {
    connection: Arc<dyn Connection>,
    places: Arc<Places>,
}

impl Connection for Counted {
    fn is_open(&self) -> bool {
        self.connection.is_open()
    }

    fn is_blocked(&self) -> bool {
        self.connection.is_blocked()
    }

    fn frame_max(&self) -> u32 {
        self.connection.frame_max()
    }

    fn channel_max(&self) -> u16 {
        self.connection.channel_max()
    }

    fn events(&self) -> BoxStream<'static, Event> {
        self.connection.events()
    }

    fn open_channel(&self) -> Answer<'_, Arc<dyn Channel>> {
        async {
            let opening = self.places.opening.read().await;
            self.places.take_tried();
            let mut channel = self.connection.open_channel();
            match timeout(OPENS_WITHIN, &mut channel).await {
                Ok(opened) => opened,
                Err(_) => {
                    drop(opening);
                    channel.await
                }
            }
        }
        .boxed()
    }

    fn close(&self, why: &'static str) -> Answer<'_, ()> {
        self.connection.close(why)
    }
}
