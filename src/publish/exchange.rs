//! An exchange that copies go to: whether it takes any, and the lane that carries them.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Mutex, MutexGuard, watch};

use super::publishing_connection::PublishingConnection;
use super::trouble::Troubles;
use crate::broker::connection::pause;
use crate::broker::lane::{Lane, NotTaken};
use crate::clock;

/// An exchange. It has a lane of its own, so a 403 or 404 that closes the lane is about this
/// exchange.
pub(super) struct Exchange {
    pub(super) name: String,
    pub(super) troubles: Troubles,
    lane: Mutex<SharedLane>,
    readiness: watch::Sender<Readiness>,
    /// Held by the copy that finds out whether the exchange takes copies again.
    finding_out: Mutex<()>,
}

/// The lane that its copies share.
#[derive(Default)]
struct SharedLane {
    lane: Option<Lane>,
    /// The next copy opens another one.
    is_retired: bool,
}

#[derive(Debug, Default)]
struct Readiness {
    doubt: Option<Doubt>,
    /// It, or something that it routes to, is missing.
    needs_repair: bool,
    is_under_repair: bool,
}

/// It has shown that it takes no copies, and no answer has disproved that.
#[derive(Debug)]
struct Doubt {
    /// How often in a row.
    failures: u32,
    /// When it did so last.
    since: Instant,
    paused_until: Instant,
}

impl Readiness {
    fn paused_until(&self) -> Option<Instant> {
        self.doubt.as_ref().map(|doubt| doubt.paused_until).filter(|until| clock::now() < *until)
    }
}

impl Exchange {
    pub(super) fn new(name: String) -> Arc<Self> {
        Arc::new(Self {
            troubles: Troubles::new(name.clone()),
            name,
            lane: Mutex::default(),
            readiness: watch::Sender::default(),
            finding_out: Mutex::default(),
        })
    }

    /// The lane that its copies share. All who need it wait while it is opened.
    ///
    /// # Errors
    ///
    /// Why it could not be opened.
    pub(super) async fn lane(
        &self,
        connection: &Arc<PublishingConnection>,
    ) -> Result<Lane, NotTaken> {
        let mut shared = self.lane.lock().await;
        let present = shared.lane.clone().filter(|lane| connection.has(lane));
        if let Some(lane) = &present
            && !shared.is_retired
        {
            return Ok(lane.clone());
        }
        match (connection.open_lane().await, present) {
            (Ok(lane), _) => {
                *shared = SharedLane { lane: Some(lane.clone()), is_retired: false };
                Ok(lane)
            }
            // As at a limit of channels. The old one still carries copies to other queues.
            (Err(NotTaken::NoLane(_)), Some(retired)) if connection.has(&retired) => Ok(retired),
            (Err(why), _) => Err(why),
        }
    }

    /// Whether copies may be sent to it now. `finds_out`: one that finds out whether it takes any.
    pub(super) fn is_ready(&self, finds_out: bool) -> bool {
        let readiness = self.readiness.borrow();
        !readiness.is_under_repair
            && readiness.paused_until().is_none()
            && (finds_out || readiness.doubt.is_none())
    }

    /// Returns when copies may be sent to it.
    pub(super) async fn ready(&self) {
        let mut readiness = self.readiness.subscribe();
        loop {
            let (paused_until, is_under_repair) = {
                let readiness = readiness.borrow_and_update();
                (readiness.paused_until(), readiness.is_under_repair)
            };
            match paused_until {
                Some(until) => tokio::time::sleep_until(until.into()).await,
                // `self` owns the sender, so this cannot fail.
                None if is_under_repair => drop(readiness.changed().await),
                None => return,
            }
        }
    }

    /// If it is in doubt, returns when it is this copy's turn to find out whether it takes copies
    /// again, and the turn.
    pub(super) async fn find_out(&self) -> Option<MutexGuard<'_, ()>> {
        let is_doubtful = || self.readiness.borrow().doubt.is_some();
        if !is_doubtful() {
            return None;
        }
        // Another one may have found out meanwhile.
        Some(self.finding_out.lock().await).filter(|_| is_doubtful())
    }

    /// It has shown that it takes no copies. During a pause this restarts the pause but counts
    /// nothing, because several copies show it together.
    pub(super) fn mark_in_doubt(&self) {
        self.readiness.send_modify(|readiness| {
            let since = clock::now();
            let failures = match &readiness.doubt {
                Some(doubt) if since < doubt.paused_until => doubt.failures,
                Some(doubt) => doubt.failures.saturating_add(1),
                None => 1,
            };
            readiness.doubt =
                Some(Doubt { failures, since, paused_until: since + pause(failures - 1) });
        });
    }

    /// The broker has answered a copy that was sent at this time. This ends the doubt, unless the
    /// exchange has shown since then that it takes no copies.
    pub(super) fn clear_doubt(&self, sent_at: Instant) {
        self.readiness.send_if_modified(|readiness| {
            readiness.doubt.take_if(|doubt| doubt.since < sent_at).is_some()
        });
    }

    /// A copy was confirmed on a lane of its own. If the shared lane may go on refusing, another
    /// takes its place.
    pub(super) fn renew_lane(&self) {
        self.retire_lane_if(Lane::has_refused);
    }

    /// A copy on this lane was given up without an answer, as when a quorum queue has no majority.
    /// If the lane is the shared one, another takes its place. So the lane closes when nobody waits
    /// for its other answers, and with it ends what client and broker keep of such copies: otherwise
    /// that would grow by each message after each ack timeout.
    pub(super) fn retire_lane(&self, lane: &Lane) {
        self.retire_lane_if(|shared| shared.is(lane));
    }

    fn retire_lane_if(&self, is_retired: impl Fn(&Lane) -> bool) {
        // If the lock is taken, a lane is being opened.
        if let Ok(mut shared) = self.lane.try_lock() {
            shared.is_retired |= shared.lane.as_ref().is_some_and(is_retired);
        }
    }

    pub(super) fn request_repair(&self) {
        self.readiness.send_modify(|readiness| readiness.needs_repair = true);
    }

    /// A repair begins. An exchange whose bindings are incomplete may send a copy to the stray
    /// queue, so copies to an exchange that needs the repair wait until it is done. Copies to other
    /// exchanges go on: declaring what is in place changes nothing. A copy that is returned
    /// meanwhile is stored nowhere, so it can be sent again without a duplicate; it asks for
    /// another repair.
    pub(super) fn begin_repair(&self) {
        self.readiness.send_modify(|readiness| {
            readiness.is_under_repair = std::mem::take(&mut readiness.needs_repair)
        });
    }

    pub(super) fn end_repair(&self) {
        self.readiness.send_modify(|readiness| readiness.is_under_repair = false);
    }
}
