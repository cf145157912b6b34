//! The progress of the messages, from what the services have recorded and what the queues hold.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rehop::topology::Role;
use rehop_testing::{Client, eventually};

use super::Lab;
use crate::expectation::{Expected, Fate};
use crate::ground::SOON;
use crate::record::{Record, Step};
use crate::service::Does;

/// How long nothing moves before everything counts as settled.
const AT_REST: Duration = Duration::from_millis(700);

/// How long messages may be unhandled before others are sent. Longer than their waits.
const SEND_AGAIN_AFTER: Duration = Duration::from_secs(8);

impl Lab {
    pub(crate) fn record(&self) -> Record {
        self.book().record.record().clone()
    }

    /// How many handlers have got this far.
    pub(crate) fn count(&self, step: Step) -> usize {
        self.book().record.record().count(step)
    }

    /// How many messages a handler has begun, and none has finished: they run, or wait for another
    /// attempt.
    pub(crate) fn in_flight(&self) -> usize {
        let mut book = self.book();
        let record = book.record.record().clone();
        let failed = record.ids(Step::Failed);
        let has_failed_for_good =
            |id: u64| failed.contains(&id) && book.expected[&id].does == Does::Permanent;
        record
            .ids(Step::Started)
            .difference(&record.ended())
            .filter(|id| !has_failed_for_good(**id))
            .count()
    }

    async fn reached(&self, step: Step, count: usize) {
        eventually(SOON, &format!("{count} handlers have {step:?}"), async || {
            let reached = self.count(step);
            if reached >= count { Ok(true) } else { Err(format!("{reached} have")) }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}; logs are in {}", self.directory.display()));
    }

    pub(crate) async fn started(&self, count: usize) {
        self.reached(Step::Started, count).await;
    }

    pub(crate) async fn done(&self, count: usize) {
        self.reached(Step::Succeeded, count).await;
    }

    pub(crate) async fn failed(&self, count: usize) {
        self.reached(Step::Failed, count).await;
    }

    /// Waits until this many messages are ready in a queue.
    pub(crate) async fn depth(&self, queue: &str, wanted: u32) {
        self.depth_by(&self.client().await, queue, wanted).await;
    }

    /// The same, with a client that is there already: messages that wait are not there for long.
    pub(crate) async fn depth_by(&self, client: &Client, queue: &str, wanted: u32) {
        eventually(SOON, &format!("{wanted} messages in {queue}"), async || {
            match client.depth(queue).await {
                Ok(depth) if depth == wanted => Ok(true),
                Ok(depth) => Err(format!("{depth} messages")),
                Err(error) => Err(error.to_string()),
            }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}; logs are in {}", self.directory.display()));
    }

    /// To be called when a fault is over. Checks that messages sent now are handled within this
    /// time, at once and after a wait, in each queue.
    pub(crate) async fn recovers(&self, within: Duration) {
        let begun = Instant::now();
        let probes = self.probe().await;
        self.recovers_when(
            begun,
            within,
            "messages sent after the fault are handled",
            async || self.are_handled(&probes),
        )
        .await;
    }

    /// Like [`recovers`](Self::recovers), after the death of a node. Until the other nodes have
    /// noticed it, they deliver to its consumers, and since 4.3 what these hold comes back only
    /// after a minute. So this sends again until all messages of one round are handled.
    pub(crate) async fn recovers_from_a_dead_node(&self, within: Duration) {
        let begun = Instant::now();
        let (mut probes, mut sent) = (self.probe().await, begun);
        self.recovers_when(
            begun,
            within,
            "messages sent after the death of a node are handled",
            async || {
                let handled = self.are_handled(&probes);
                if handled.is_err() && sent.elapsed() > SEND_AGAIN_AFTER {
                    (probes, sent) = (self.probe().await, Instant::now());
                }
                handled
            },
        )
        .await;
    }

    /// Sends one message that succeeds and one that waits to each queue.
    async fn probe(&self) -> BTreeSet<u64> {
        let mut probes = BTreeSet::new();
        for queue in 0..self.config.queues.len() {
            for does in [Does::Succeed, Does::Fail(1)] {
                probes.insert(self.send_to(queue, 1, does, |message| message).await);
            }
        }
        probes
    }

    fn are_handled(&self, probes: &BTreeSet<u64>) -> Result<bool, String> {
        let missing = probes.difference(&self.record().ended()).count();
        if missing == 0 { Ok(true) } else { Err(format!("{missing} of {} are not", probes.len())) }
    }

    /// Like [`recovers`](Self::recovers), if something else shows that work continues.
    pub(crate) async fn recovers_when(
        &self,
        over: Instant,
        within: Duration,
        what: &str,
        probe: impl AsyncFnMut() -> Result<bool, String>,
    ) {
        let left = within.saturating_sub(over.elapsed());
        eventually(left, what, probe).await.unwrap_or_else(|error| {
            panic!("no recovery: {error}; logs are in {}", self.directory.display())
        });
        let mut book = self.book();
        book.recovery = book.recovery.max(Some(over.elapsed()));
    }

    /// Waits until each message has ended, at a handler or in a queue where messages end.
    /// Duplicates may come later, so the queues from which messages return have to be empty too,
    /// and handlers idle, for a while: what the broker is dead-lettering is in no queue's depth.
    pub(crate) async fn settled(&self, within: Duration) {
        let client = self.client().await;
        let (mut seen, mut rests_since) = (0, Instant::now());
        let result = eventually(within, "every message has ended", async || {
            let state = self.state(&client).await;
            if std::mem::replace(&mut seen, state.entries) != state.entries || state.queued > 0 {
                rests_since = Instant::now();
            }
            let rests = rests_since.elapsed() >= AT_REST;
            if state.open <= state.stray && state.queued == 0 && rests {
                Ok(true)
            } else {
                Err(state.to_string())
            }
        })
        .await;
        // The account will show which messages these are.
        if let Err(error) = result {
            self.book().complaints.push(error.to_string());
        }
    }

    async fn state(&self, client: &Client) -> Remaining {
        let queues = self.book().queues.clone();
        let mut state = Remaining::default();
        let mut parked = 0;
        for (queue, role) in queues {
            let depth = client.depth(&queue).await.unwrap_or(0) as usize;
            match role {
                Role::Parked => parked += depth,
                Role::Stray => state.stray += depth,
                Role::Discarded => {}
                _ => state.queued += depth,
            }
        }
        let mut book = self.book();
        let ended = book.record.record().ended();
        state.entries = book.record.record().entries.len();
        // What was sent and not confirmed exists if a handler has seen it.
        let seen: BTreeSet<u64> =
            book.record.record().entries.iter().map(|entry| entry.id).collect();
        let exists = |expected: &&Expected| expected.confirmed || seen.contains(&expected.id);
        let existing = || book.expected.values().filter(exists);
        let to_be_parked =
            existing().filter(|expected| matches!(expected.fate, Fate::Parked(_))).count();
        let at_handlers = existing().filter(|expected| !matches!(expected.fate, Fate::Parked(_)));
        state.open = at_handlers.filter(|expected| !ended.contains(&expected.id)).count();
        state.open += to_be_parked.saturating_sub(parked);
        state
    }
}

/// How far a case's messages are from their ends.
#[derive(Default)]
struct Remaining {
    open: usize,
    stray: usize,
    queued: usize,
    entries: usize,
}

impl std::fmt::Display for Remaining {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} open, {} stray, {} queued", self.open, self.stray, self.queued)
    }
}
