//! What all pages share.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::Options;
use crate::address::Address;
use crate::allowed::Allowed;
use crate::depths;
use crate::door::{Door, Fields};
use crate::overview::{Overview, Plan};
use crate::readings::Readings;
use crate::refusal::Refusal;
use crate::runs::Runs;
use crate::statistics::Statistician;
use crate::work::Work;
use rehop::Error;
use rehop::Settings;
use rehop::Timestamp;
use rehop::internals::Link;
use rehop_operator::parked::{Parked, Place};

/// How old the depths may be that are shown. However many pages are open, the broker is asked no
/// more often.
const DEPTHS_AGE: Duration = Duration::from_secs(1);

/// What all pages share.
pub(super) struct AppState {
    pub(super) door: Arc<Door>,
    pub(super) allowed: Allowed,
    pub(super) settings: Settings,
    pub(super) work: Work,
    pub(super) readings: Readings,
    pub(super) runs: Runs,
    trace_url: Option<String>,
    /// Where it is served, as addresses for other browsers begin.
    pub(super) origin: String,
    link: Link,
    plan: Plan,
    statistician: Arc<Statistician>,
    overview: Mutex<Option<(Instant, Arc<Overview>)>>,
}

impl AppState {
    pub(super) fn new(
        door: Door,
        settings: Settings,
        plan: Plan,
        link: Link,
        origin: String,
        may: Options,
    ) -> Self {
        let work = Work::default();
        Self {
            door: Arc::new(door),
            allowed: may.allowed,
            statistician: Statistician::new(settings.clone(), plan.names()),
            settings,
            readings: Readings::new(work.clone()),
            runs: Runs::new(work.clone()),
            work,
            trace_url: may.trace_url,
            origin,
            link,
            plan,
            overview: Mutex::default(),
        }
    }

    /// What an address or a form asks for.
    pub(super) fn address(&self, fields: &Fields) -> Result<Address, Refusal> {
        let queues: Vec<_> = self.plan.queues.iter().map(|queue| queue.work.clone()).collect();
        Address::parse(fields, &queues).map_err(|text| Refusal::new(StatusCode::BAD_REQUEST, text))
    }

    /// The messages that were discarded.
    pub(super) fn discarded(&self) -> Result<Parked, Refusal> {
        self.open(Place::Discarded)
    }

    /// The messages of the address's place.
    pub(super) fn parked(&self, address: &Address) -> Result<Parked, Refusal> {
        self.open(address.place.clone())
    }

    /// The messages of a place. Looks at them stop when the page ends.
    fn open(&self, place: Place) -> Result<Parked, Refusal> {
        Ok(Parked::open(&self.settings, place)?.stopped_by(self.work.stopped()))
    }

    /// Where the trace of a message can be seen, if that was told and the message has one.
    pub(super) fn trace(&self, traceparent: &str) -> Option<String> {
        let id = traceparent.split('-').nth(1)?;
        let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some(self.trace_url.as_ref().filter(|_| is_id)?.replace("{trace_id}", id))
    }

    pub(super) fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }

    /// The front page's tables, read now or a moment ago.
    pub(super) async fn overview(&self) -> Result<Arc<Overview>, Error> {
        let mut last = self.overview.lock().await;
        if let Some((_, overview)) = last.as_ref().filter(|(at, _)| at.elapsed() < DEPTHS_AGE) {
            return Ok(overview.clone());
        }
        let queues = self.plan.names();
        let (depths, statistics) =
            tokio::join!(depths::look(&self.link, &queues), self.statistician.latest());
        let overview = Arc::new(Overview::new(&self.plan, &depths?, &statistics, self.now()));
        *last = Some((Instant::now(), overview.clone()));
        Ok(overview)
    }
}
