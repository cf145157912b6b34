//! Looks at messages on behalf of pages: how long a page waits, and what is kept for the next one.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::address::Address;
use crate::refusal::Refusal;
use crate::work::Work;
use rehop_operator::parked::{ListRequest, Listing, Parked, ParkedError, Planned};

/// How many rows a page has.
pub(super) const ROWS: usize = 100;
/// How long a page waits for another look at the same queue to end.
const BUSY_TIME: Duration = Duration::from_secs(5);
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// How many readings of whole queues are kept, and for how long. One holds at most 1,000 groups and
/// work queues, and 100 messages without bodies.
const READINGS: usize = 8;
pub(super) const READING_AGE: Duration = Duration::from_secs(120);

/// How long a page waits for a look. A request is given up soon after.
const LONGEST: Duration = Duration::from_secs(50);

/// One look that the browser cannot cut off, because messages that are given back in a hurry may
/// lose their order. If somebody else is looking, it is tried again for a while.
///
/// # Errors
///
/// When it cannot be done, or takes longer than a request may. It then goes on to its end, and
/// gives everything back.
pub(super) async fn look<T, F>(
    work: &Work,
    look: impl Fn() -> F + Send + 'static,
) -> Result<T, Refusal>
where
    F: Future<Output = Result<T, ParkedError>> + Send + 'static,
    T: Send + 'static,
{
    let looking = work.spawn(patiently(look));
    match tokio::time::timeout(LONGEST, looking).await {
        Ok(Ok(seen)) => Ok(seen?),
        Ok(Err(error)) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The process ends, and this task is about to end as well.
            Err(_) => std::future::pending().await,
        },
        Err(_) => {
            let text = "This queue is so long that going through it takes longer than a page may. Use the tool, which has no such \
                        limit: rehop parked show, rehop parked edit.";
            Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, text))
        }
    }
}

async fn patiently<T, F>(look: impl Fn() -> F) -> Result<T, ParkedError>
where
    F: Future<Output = Result<T, ParkedError>>,
{
    let until = Instant::now() + BUSY_TIME;
    loop {
        match look().await {
            Err(ParkedError::Busy { .. }) if Instant::now() < until => {
                tokio::time::sleep(BUSY_PAUSE).await
            }
            seen => return seen,
        }
    }
}

/// Lists the messages that an address selects, among as many as it says to look at.
pub(super) async fn list(
    work: &Work,
    parked: Parked,
    address: &Address,
) -> Result<Listing, Refusal> {
    let request = request(address, address.scan());
    look(work, move || {
        let (parked, request) = (parked.clone(), request.clone());
        async move { parked.list(&request).await }
    })
    .await
}

fn request(address: &Address, scan: Option<u64>) -> ListRequest {
    let mut request = ListRequest::all(address.filter.clone());
    // Plans of replays are made of what is read of a whole queue.
    request.planned = scan.is_none().then_some(Planned::Replay);
    (request.scan, request.rows) = (scan, ROWS);
    request
}

/// How far a reading of a whole queue is.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    /// What was read so far, or why it cannot be.
    pub(super) seen: Option<Result<Listing, ParkedError>>,
    ended: Option<Instant>,
}

impl Reading {
    pub(super) fn is_complete(&self) -> bool {
        self.ended.is_some()
    }

    /// What was read so far.
    pub(super) fn listing(self) -> Result<Listing, Refusal> {
        Ok(self.seen.ok_or_else(Refusal::given_up)??)
    }
}

/// Readings of whole queues, which go on while pages come and go.
#[derive(Debug)]
pub(super) struct Readings {
    work: Work,
    kept: Mutex<VecDeque<Kept>>,
}

#[derive(Debug)]
struct Kept {
    query: String,
    reading: watch::Receiver<Reading>,
}

impl Kept {
    /// Whether it goes on, or ended with success in this time.
    fn is_newer_than(&self, age: Duration) -> bool {
        let goes_on = self.reading.has_changed().is_ok();
        let reading = self.reading.borrow();
        // An error may be gone by now.
        reading
            .ended
            .map_or(goes_on, |ended| ended.elapsed() < age && !matches!(reading.seen, Some(Err(_))))
    }
}

impl Readings {
    pub(super) fn new(work: Work) -> Self {
        Self { work, kept: Mutex::default() }
    }

    /// The reading of all messages for this address: the one that is going on or has ended in this
    /// time, or a new one.
    pub(super) fn of(
        &self,
        parked: &Parked,
        address: &Address,
        age: Duration,
    ) -> watch::Receiver<Reading> {
        let (query, mut kept) = (address.clone().at_all().query(), self.lock());
        kept.retain(|one| one.is_newer_than(if one.query == query { age } else { READING_AGE }));
        if let Some(one) = kept.iter().find(|one| one.query == query) {
            return one.reading.clone();
        }
        let (progress, reading) = watch::channel(Reading { seen: None, ended: None });
        let (parked, request) = (parked.clone(), request(address, None));
        self.work.spawn(async move {
            let show = |seen: &Listing| {
                drop(progress.send_replace(Reading { seen: Some(Ok(seen.clone())), ended: None }))
            };
            let seen = patiently(|| parked.list_observed(&request, show)).await;
            progress.send_replace(Reading { seen: Some(seen), ended: Some(Instant::now()) });
        });
        kept.push_back(Kept { query, reading: reading.clone() });
        if kept.len() > READINGS {
            kept.pop_front();
        }
        reading
    }

    /// Forgets what was read: something has changed it.
    pub(super) fn forget(&self) {
        self.lock().retain(|one| !one.reading.borrow().is_complete());
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a reading has seen, as soon as it has seen anything.
pub(super) async fn first_seen(reading: &mut watch::Receiver<Reading>) -> Option<Reading> {
    reading.wait_for(|reading| reading.seen.is_some()).await.ok().map(|reading| reading.clone())
}
