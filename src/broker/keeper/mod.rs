//! Keeps the topology declared while a service runs: the shared part once per connection, each
//! queue's own part when its consumer asks for it, and everything again when something seems to be
//! missing.
//!
//! The first declaration stops at its first failure, which keeps the service from starting. After
//! that each exchange, and each queue with its bindings, fails alone.
//!
//! Nothing of this happens on a connection that consumes or publishes, if the broker allows a
//! third one: see [`scout`](super::scout).

mod declared;

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use lapin::types::ShortString;
use tokio::sync::Mutex;

use self::declared::Declared;
use crate::broker::client::{Connection, QueueCounts};
use crate::broker::declare::{AT_ONCE, Failure};
use crate::broker::look::look_at;
use crate::broker::scout::Scout;
use crate::error::Error;
use crate::lock::lock;
use crate::settings::TopologyMode;
use crate::topology::{Queue, Role, Topology};

/// How often the depth of the stray queue is read.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// The first look comes early, so that the gauge exists, and late enough for the queue to be
/// declared.
const LOOK_FIRST: Duration = Duration::from_secs(2);
/// How many parked queues are looked at at once.
const LOOKS_AT_ONCE: usize = 8;
/// How many of these looks lie between two declarations of everything.
const DECLARE_EVERY: u32 = 4;

/// The one owner of a service's topology.
pub(crate) struct Keeper {
    scout: Arc<Scout>,
    mode: TopologyMode,
    shared: Topology,
    queues: Vec<Topology>,
    declared: Mutex<Declared<dyn Connection>>,
    /// The last error of each part that failed, so that each failure is reported once and not at
    /// each try.
    problems: StdMutex<HashMap<String, String>>,
}

impl Keeper {
    /// Keeps what all queues share, and what each needs for itself. Elsewhere each is named by its
    /// position.
    pub(crate) fn new(
        scout: Arc<Scout>,
        mode: TopologyMode,
        shared: Topology,
        queues: Vec<Topology>,
    ) -> Self {
        Self {
            scout,
            mode,
            shared,
            queues,
            declared: Mutex::default(),
            problems: StdMutex::default(),
        }
    }

    /// Declares the own part of the queue at this position, after the shared part where that was
    /// not done since `consuming` was opened.
    ///
    /// # Errors
    ///
    /// The first failure when the part was never declared before. Later, only what keeps the queue
    /// from being consumed.
    pub(crate) async fn declare(
        &self,
        consuming: &Arc<dyn Connection>,
        position: usize,
    ) -> Result<(), Error> {
        let declare = |connection: Arc<dyn Connection>| async move {
            self.declare_on(&*connection, consuming, position).await
        };
        self.scout.visit(Some(consuming), declare).await
    }

    async fn declare_on(
        &self,
        connection: &dyn Connection,
        consuming: &Arc<dyn Connection>,
        position: usize,
    ) -> Result<(), Error> {
        let mut declared = self.declared.lock().await;
        if !declared.is_shared_on(consuming) {
            self.declare_or_report(connection, &self.shared, declared.is_new()).await?;
            declared.note_shared(consuming);
        }
        let is_new = !declared.has_queue(position);
        drop(declared);
        self.declare_or_report(connection, &self.queues[position], is_new).await?;
        self.declared.lock().await.note_queue(position);
        Ok(())
    }

    pub(crate) fn scout(&self) -> &Arc<Scout> {
        &self.scout
    }

    async fn declare_or_report(
        &self,
        connection: &dyn Connection,
        topology: &Topology,
        is_new: bool,
    ) -> Result<(), Error> {
        let limit = self.scout.answer_timeout();
        if is_new {
            return topology.establish(connection, self.mode, limit).await;
        }
        let at_once = self.scout.at_once(AT_ONCE);
        let failures = topology.establish_each(connection, self.mode, limit, at_once).await?;
        self.report(topology, &failures);
        failures
            .into_iter()
            .find(Failure::keeps_from_consuming)
            .map_or(Ok(()), |failure| Err(failure.error))
    }

    /// Declares everything again that was declared before, because somebody may have deleted a part
    /// of it. The first declaration is left to a consumer that starts: it says what is wrong, and
    /// checks what the broker can do. `instead` is used if no further connection can be opened.
    pub(crate) async fn repair(&self, instead: Option<&Arc<dyn Connection>>) {
        let parts = self.declared.lock().await.parts_to_repair(&self.shared, &self.queues);
        if parts.is_empty() {
            return;
        }
        let limit = self.scout.answer_timeout();
        let declare = |connection: Arc<dyn Connection>| async move {
            let at_once = self.scout.at_once(AT_ONCE);
            for topology in parts {
                let each = topology.establish_each(&*connection, self.mode, limit, at_once);
                self.report(topology, &each.await?);
            }
            Ok(())
        };
        if let Err(error) = self.scout.visit(instead, declare).await {
            tracing::debug!(%error, "the topology cannot be declared again now");
        }
    }

    /// Logs each failure, and each recovery, once.
    fn report(&self, topology: &Topology, failures: &[Failure]) {
        let mut problems = lock(&self.problems);
        for part in topology.part_names() {
            let failure = failures.iter().find(|failure| failure.part == part);
            let error = failure.map(|failure| failure.error.to_string());
            match (note_result(&mut problems, &part, error.as_deref()), error) {
                (true, Some(error)) => {
                    tracing::warn!(%error, "a part of the topology is missing or different")
                }
                (true, None) => tracing::info!(%part, "a part of the topology is in place again"),
                (false, _) => {}
            }
        }
    }

    /// Notices what was deleted while the service runs, and declares it again. A missing wait queue
    /// or binding breaks no connection, but until the next restart messages would go to the stray
    /// queue, or stay in a wait queue whose return exchange is gone. `observe` is told the depth of
    /// the stray queue, and `observe_parked` of each parked queue, after its work queue and itself.
    /// `spare`: a connection that has nothing to lose now, used if no further one can be opened.
    pub(crate) async fn watch(
        &self,
        stray: &ShortString,
        spare: impl Fn() -> Option<Arc<dyn Connection>>,
        observe: impl Fn(u64),
        observe_parked: impl Fn(&str, &str, u64),
    ) {
        let (mut reported, mut pause) = (StrayDepth::default(), LOOK_FIRST);
        let spare = || spare().filter(|_| !self.scout.is_narrow());
        for round in 1u32.. {
            tokio::time::sleep(pause).await;
            pause = LOOK_EVERY;
            let limit = self.scout.answer_timeout();
            let look = |connection: Arc<dyn Connection>| async move {
                look_at(&*connection, stray.as_str(), limit).await
            };
            let looked = self.scout.visit(spare().as_ref(), look).await;
            // Nothing can be declared either.
            if looked.as_ref().is_err_and(|error| error.limit().is_some()) {
                continue;
            }
            let suspicious = if let Ok(seen) = looked {
                let grown = reported.has_grown(seen);
                if grown.is_some() {
                    observe(reported.0);
                }
                if grown == Some(true) {
                    tracing::warn!(
                        queue = %stray,
                        depth = reported.0,
                        "unroutable messages reached the stray queue: inspect them there; declaring the topology again"
                    );
                }
                grown == Some(true)
            } else {
                tracing::debug!(queue = %stray, "could not read the depth of the stray queue");
                true
            };
            self.watch_parked(&spare, &observe_parked).await;
            if suspicious || round.is_multiple_of(DECLARE_EVERY) {
                self.repair(None).await;
            }
        }
    }

    /// A parked queue that cannot be read is left out: whether it is missing is noticed elsewhere.
    /// Several are read at a time, so that one whose leader hangs does not hide the others.
    async fn watch_parked(
        &self,
        spare: &impl Fn() -> Option<Arc<dyn Connection>>,
        observe: &impl Fn(&str, &str, u64),
    ) {
        let limit = self.scout.answer_timeout();
        let look = |topology: &Topology| {
            let of = |role| topology.queues.iter().find(|queue| queue.role == role);
            let name = |queue: &Queue| queue.name.clone();
            let (work, parked) = (of(Role::Work).map(name), of(Role::Parked).map(name));
            async move {
                let (Some(work), Some(parked)) = (work, parked) else { return };
                let look = |connection: Arc<dyn Connection>| async {
                    let connection = connection;
                    look_at(&*connection, &parked, limit).await
                };
                if let Ok(seen) = self.scout.visit(spare().as_ref(), look).await {
                    observe(&work, &parked, u64::from(seen.messages));
                }
            }
        };
        let at_once = self.scout.at_once(LOOKS_AT_ONCE);
        stream::iter(&self.queues).for_each_concurrent(at_once, look).await;
    }
}

/// The depth of the stray queue when it was read last.
#[derive(Debug, Default)]
struct StrayDepth(u64);

impl StrayDepth {
    /// Whether messages have come. `None` if that cannot be told: somebody consumes the queue, such
    /// as an operator who looks at it, and gives back what is held meanwhile.
    fn has_grown(&mut self, seen: QueueCounts) -> Option<bool> {
        if seen.consumers > 0 {
            return None;
        }
        let depth = u64::from(seen.messages);
        Some(depth > std::mem::replace(&mut self.0, depth))
    }
}

/// A part was declared, or failed with this error. Returns whether that is to be logged.
fn note_result(problems: &mut HashMap<String, String>, part: &str, error: Option<&str>) -> bool {
    match error {
        Some(error) => {
            problems.insert(part.to_owned(), error.to_owned()).is_none_or(|before| before != error)
        }
        None => problems.remove(part).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stray_queue_has_not_grown_because_an_operator_looked_at_it() {
        let mut depth = StrayDepth::default();
        for (messages, consumers, expected) in [
            (0, 0, Some(false)),
            (5, 0, Some(true)),
            (5, 0, Some(false)),
            (0, 1, None),
            (5, 0, Some(false)),
            (2, 0, Some(false)),
            (3, 0, Some(true)),
        ] {
            let seen = QueueCounts { messages, consumers };
            assert_eq!(depth.has_grown(seen), expected, "{seen:?}");
        }
    }

    #[test]
    fn a_failure_is_news_once_and_again_when_it_changes_or_comes_back() {
        let mut problems = HashMap::new();
        for (error, is_news) in [
            (None, false),
            (Some("no permission"), true),
            (Some("no permission"), false),
            (Some("other arguments"), true),
            (None, true),
            (None, false),
            (Some("no permission"), true),
        ] {
            assert_eq!(note_result(&mut problems, "queue", error), is_news, "{error:?}");
        }
    }
}
