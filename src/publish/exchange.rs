//! An exchange that copies go to: whether it takes any, the lane that carries them, and the trouble that copies have with it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::running_lane::RunningLane;
use super::session::Session;
use super::trouble::Troubles;
use crate::broker::lane::cause::{Cause, Trouble};
use crate::clock;
use crate::pause::pause;
use crate::random::random;

/// An exchange has a lane of its own, so a 403 or 404 that closes the lane is about this exchange.
pub(super) struct Exchange {
    pub(super) name: String,
    /// Carries every copy in good standing, as many at once as there are.
    lane: tokio::sync::Mutex<Option<RunningLane>>,
    state: watch::Sender<State>,
    /// While the exchange is in doubt, the copy that finds out whether it takes any holds this.
    pub(super) finding_out: tokio::sync::Mutex<()>,
    troubles: Mutex<Troubles>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// How often in a row it has shown that it takes no copies. Until it takes one it is in doubt.
    failures: u32,
    /// When it did so last, and until when nothing is sent to it.
    rest: Option<(Instant, Instant)>,
    /// Something that it routes to, or the exchange itself, is missing.
    needs_repair: bool,
    is_under_repair: bool,
}

impl State {
    fn rests_until(&self) -> Option<Instant> {
        self.rest.map(|(_, until)| until).filter(|until| clock::now() < *until)
    }
}

impl Exchange {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            lane: tokio::sync::Mutex::default(),
            state: watch::Sender::default(),
            finding_out: tokio::sync::Mutex::default(),
            troubles: Mutex::default(),
        }
    }

    /// The lane for copies in good standing. All who need it wait while it is opened.
    ///
    /// # Errors
    ///
    /// Why it could not be opened.
    pub(super) async fn lane(&self, session: &Arc<Session>) -> Result<RunningLane, Cause> {
        let mut present = self.lane.lock().await;
        if let Some(lane) = present.as_ref().filter(|lane| lane.serves(session)) {
            return Ok(lane.clone());
        }
        let lane = RunningLane::open(session).await?;
        *present = Some(lane.clone());
        Ok(lane)
    }

    /// Copies may be sent to it now.
    pub(super) fn is_ready(&self) -> bool {
        let state = self.state.borrow();
        !state.is_under_repair && state.rests_until().is_none()
    }

    /// Returns when copies may be sent to it.
    pub(super) async fn ready(&self) {
        if self.is_ready() {
            return;
        }
        let mut state = self.state.subscribe();
        while !self.is_ready() {
            let rests_until = state.borrow_and_update().rests_until();
            match rests_until {
                Some(until) => tokio::time::sleep_until(until.into()).await,
                // The sender lives as long as `self`.
                // An error would mean that `self` is gone.
                None => {
                    let _ = state.changed().await;
                }
            }
        }
    }

    /// Whether one copy at a time finds out if it takes any.
    pub(super) fn is_doubtful(&self) -> bool {
        self.state.borrow().failures > 0
    }

    /// It takes no copies. A rest that is running starts again, but several copies that show this together count once.
    pub(super) fn takes_none(&self) {
        self.state.send_modify(|state| {
            let now = clock::now();
            state.failures = state.failures.saturating_add(u32::from(state.rests_until().is_none()));
            state.rest = Some((now, now + pause(state.failures - 1, random())));
        });
    }

    /// It has taken a copy that was sent at this time. If it has shown since then that it takes none, this proves nothing.
    pub(super) fn takes_copies(&self, sent_at: Instant) {
        if !self.is_doubtful() {
            return;
        }
        self.state.send_if_modified(|state| {
            let is_over = state.failures > 0 && state.rest.is_none_or(|(since, _)| since < sent_at);
            if is_over {
                (state.failures, state.rest) = (0, None);
            }
            is_over
        });
    }

    /// A copy was confirmed on a lane of its own. If the lane of the exchange may go on refusing, another takes its place.
    pub(super) fn renew_lane(&self) {
        // Otherwise it is being opened.
        if let Ok(mut present) = self.lane.try_lock() {
            present.take_if(|lane| lane.has_refused());
        }
    }

    pub(super) fn needs_repair(&self) {
        self.state.send_modify(|state| state.needs_repair = true);
    }

    /// A repair begins. An exchange whose bindings are incomplete may send a copy to the stray queue, so copies to an exchange that needs the repair
    /// wait until it is done. Copies to other exchanges go on: declaring what is in place changes nothing. A copy that is returned meanwhile is
    /// stored nowhere, so it can be sent again without a duplicate; it asks for another repair.
    pub(super) fn begin_repair(&self) {
        self.state.send_modify(|state| state.is_under_repair = std::mem::take(&mut state.needs_repair));
    }

    pub(super) fn end_repair(&self) {
        self.state.send_modify(|state| state.is_under_repair = false);
    }

    /// Logs whether it has recovered.
    pub(super) fn look(&self) {
        self.troubles().look(&self.name, clock::now());
    }

    fn troubles(&self) -> MutexGuard<'_, Troubles> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often [`Exchange::look`] is to be called.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A copy, which is counted as in trouble from its first trouble until this is dropped.
pub(super) struct InTrouble<'a> {
    exchange: &'a Exchange,
    is_counted: bool,
}

impl<'a> InTrouble<'a> {
    pub(super) fn not_yet(exchange: &'a Exchange) -> Self {
        Self { exchange, is_counted: false }
    }

    /// Logs the trouble if it is new for the exchange. `answer` is what the broker said.
    pub(super) fn note(&mut self, trouble: Trouble, answer: &str) {
        let is_first = !std::mem::replace(&mut self.is_counted, true);
        self.exchange.troubles().note(&self.exchange.name, trouble, answer, is_first);
    }
}

impl Drop for InTrouble<'_> {
    fn drop(&mut self) {
        if self.is_counted {
            self.exchange.troubles().one_less(clock::now());
        }
    }
}
