//! The names of a namespace's exchanges and queues.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::wait::Path;
use crate::wire::Homes;

/// The names of a namespace's exchanges and queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    namespace: String,
}

impl Names {
    /// The names of this namespace.
    pub fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned() }
    }

    /// The exchange that routes to the wait queues, by `rehop-wait-for`.
    pub fn wait(&self) -> String {
        format!("{}.wait", self.namespace)
    }

    /// The wait queue of one tier.
    pub fn tier(&self, ttl: Duration) -> String {
        format!("{}.wait.{}", self.namespace, ttl.as_millis())
    }

    /// The exchange that routes to the first rung of the ladder, by `rehop-wait-for`.
    pub fn ladder(&self) -> String {
        format!("{}.ladder", self.namespace)
    }

    /// The wait queue of one rung of the ladder.
    pub fn rung(&self, ttl: Duration) -> String {
        format!("{}.ladder.{}", self.namespace, ttl.as_millis())
    }

    /// The exchange that routes from one rung of the ladder to the next, by `rehop-then-<ms>`.
    pub fn after(&self, ttl: Duration) -> String {
        format!("{}{}", self.after_prefix(), ttl.as_millis())
    }

    /// What the names of the ladder's exchanges between rungs begin with.
    pub fn after_prefix(&self) -> String {
        format!("{}.after.", self.namespace)
    }

    /// The delayed exchange.
    pub fn delay(&self) -> String {
        format!("{}.delay", self.namespace)
    }

    /// The exchanges that deliver copies after a wait.
    pub fn homes(&self) -> Homes {
        Homes {
            return_exchange: self.return_(),
            after_prefix: self.after_prefix(),
            delay_exchange: self.delay(),
        }
    }

    /// What holds a copy during a leg, as spans and metrics name it. The ladder is one thing there,
    /// whichever rungs a copy takes.
    pub(crate) fn holder(&self, path: Path, leg: Duration) -> String {
        match path {
            Path::Tier | Path::Return | Path::Hold => self.tier(leg),
            Path::Ladder { .. } => self.ladder(),
            Path::Delayed => self.delay(),
        }
    }

    /// What the names of all tiers begin with.
    pub fn tier_prefix(&self) -> String {
        format!("{}.wait.", self.namespace)
    }

    /// What the names of all rungs of the ladder begin with.
    pub fn rung_prefix(&self) -> String {
        format!("{}.ladder.", self.namespace)
    }

    /// The namespace itself.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The rest of a name that begins with this namespace.
    pub fn without_namespace<'a>(&self, name: &'a str) -> &'a str {
        name.strip_prefix(&self.namespace).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name)
    }

    /// The exchange that returns messages to their work queue, by `rehop-return-to`.
    pub fn return_(&self) -> String {
        format!("{}.return", self.namespace)
    }

    /// The exchange that routes to the parked queues, by the work queue's name.
    pub fn park(&self) -> String {
        format!("{}.park", self.namespace)
    }

    /// The exchange that consumers tell of the fate of replayed messages.
    pub fn report(&self) -> String {
        format!("{}.report", self.namespace)
    }

    /// The exchange and the queue for messages that an operator has discarded.
    pub fn discarded(&self) -> String {
        format!("{}.discarded", self.namespace)
    }

    /// Exists while somebody looks at this queue.
    pub fn operator_lock(&self, queue: &str) -> String {
        let name = format!("{}.op.lock.{queue}", self.namespace);
        if name.len() <= 255 {
            return name;
        }
        let mut hasher = DefaultHasher::new();
        queue.hash(&mut hasher);
        format!("{}.op.lock.{:016x}", self.namespace, hasher.finish())
    }

    /// Receives the fate of a replay's messages.
    pub fn operator_fates(&self, run: &str) -> String {
        format!("{}.op.fates.{run}", self.namespace)
    }

    /// Declared for a moment, to learn what the broker can do.
    pub(crate) fn probe(&self, unique: &str) -> String {
        format!("{}.op.probe.{unique}", self.namespace)
    }

    /// The exchange and the queue for unroutable messages.
    pub fn stray(&self) -> String {
        format!("{}.stray", self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_of_a_copy_has_what_holds_it() {
        let (names, seconds) = (Names::new("ns"), Duration::from_secs);
        let check =
            |path, holder: &str| assert_eq!(names.holder(path, seconds(5)), holder, "{path:?}");
        check(Path::Tier, "ns.wait.5000");
        check(Path::Ladder { rung: seconds(1) }, "ns.ladder");
        check(Path::Delayed, "ns.delay");
    }

    #[test]
    fn an_operators_names_belong_to_the_namespace_and_are_as_short_as_the_broker_demands() {
        let names = Names::new("ns");
        let others =
            [names.report(), names.discarded(), names.operator_fates("run"), names.probe("run")];
        assert_eq!(others, ["ns.report", "ns.discarded", "ns.op.fates.run", "ns.op.probe.run"]);
        let lock = |letter: &str, length| names.operator_lock(&letter.repeat(length));
        assert_eq!(lock("x", 3), "ns.op.lock.xxx");
        assert_eq!(lock("x", 244), format!("ns.op.lock.{}", "x".repeat(244)), "255 bytes");
        assert_eq!(lock("x", 245).len(), "ns.op.lock.".len() + 16);
        assert_ne!(lock("x", 245), lock("y", 245));
        assert_eq!(lock("x", 245), lock("x", 245));
    }
}
