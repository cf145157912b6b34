//! The names of a namespace's exchanges and queues.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use fnv::FnvHasher;

use crate::settings::QueueConfig;
use crate::wait::Path;
use crate::wire::Homes;

/// The most bytes that a name can have.
const MOST_BYTES: usize = 255;

/// The most digits of a TTL in milliseconds: no queue can have one of more than 32 bits.
const MOST_DIGITS: usize = 10;

/// The names of a namespace's exchanges and queues.
///
/// Those that messages wait in are the namespace's, which its queues share, or those of one queue
/// alone, such as `ns.wait.orders.500`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    namespace: String,
    /// The one queue whose messages wait there, as it is in their names. `None`: all that share
    /// them.
    owner: Option<String>,
}

impl Names {
    /// The names of this namespace.
    pub fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), owner: None }
    }

    /// The same names, with those that this queue's messages wait in.
    pub fn waits_of(&self, config: &QueueConfig) -> Self {
        match config.has_own_wait_queues() {
            true => self.own_waits_of(&config.queue),
            false => Self::new(&self.namespace),
        }
    }

    /// The same names, with those of a queue that has wait queues of its own.
    pub fn own_waits_of(&self, queue: &str) -> Self {
        let longest = format!("{}.ladder.{queue}.", self.namespace).len() + MOST_DIGITS;
        // Consumers announce these names with spaces between them.
        let is_usable = longest <= MOST_BYTES && !queue.contains(char::is_whitespace);
        let owner = if is_usable { queue.to_owned() } else { hashed(queue) };
        Self { namespace: self.namespace.clone(), owner: Some(owner) }
    }

    /// The same names, with those among which this wait queue is, and its delay. `None` if it has
    /// no such name: `ns.wait.0500` is not one that rehop gives.
    pub fn of_wait_queue(&self, queue: &str) -> Option<(Self, Duration)> {
        self.of_delay(queue, &["wait.", "ladder."])
    }

    /// The same names, with those among which this exchange between rungs of a ladder is, and the
    /// delay of the rung before it.
    pub fn of_after(&self, exchange: &str) -> Option<(Self, Duration)> {
        self.of_delay(exchange, &["after."])
    }

    fn of_delay(&self, name: &str, kinds: &[&str]) -> Option<(Self, Duration)> {
        let rest = self.within_namespace(name)?;
        let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
        let (owner, digits) = match rest.rsplit_once('.') {
            Some((owner, digits)) => (Some(owner.to_owned()), digits),
            None => (None, rest),
        };
        let delay: u64 = digits.parse().ok()?;
        let names = Self { namespace: self.namespace.clone(), owner };
        (delay.to_string() == digits).then(|| (names, Duration::from_millis(delay)))
    }

    /// The same names, with those among which this exchange is, if it is one that leads to wait
    /// queues.
    pub fn of_wait_exchange(&self, exchange: &str) -> Option<Self> {
        let rest = self.within_namespace(exchange)?;
        let rest = ["wait", "ladder"].iter().find_map(|kind| rest.strip_prefix(kind))?;
        let owner = match rest {
            "" => None,
            rest => Some(rest.strip_prefix('.')?.to_owned()),
        };
        Some(Self { namespace: self.namespace.clone(), owner })
    }

    fn of_kind(&self, kind: &str) -> String {
        match &self.owner {
            Some(owner) => format!("{}.{kind}.{owner}", self.namespace),
            None => format!("{}.{kind}", self.namespace),
        }
    }

    /// The exchange that routes to the wait queues, by `rehop-wait-for`.
    pub fn wait(&self) -> String {
        self.of_kind("wait")
    }

    /// The wait queue of one tier.
    pub fn tier(&self, ttl: Duration) -> String {
        format!("{}.{}", self.wait(), ttl.as_millis())
    }

    /// The exchange that routes to the first rung of the ladder, by `rehop-wait-for`.
    pub fn ladder(&self) -> String {
        self.of_kind("ladder")
    }

    /// The wait queue of one rung of the ladder.
    pub fn rung(&self, ttl: Duration) -> String {
        format!("{}.{}", self.ladder(), ttl.as_millis())
    }

    /// The exchange that routes from one rung of the ladder to the next, by `rehop-then-<ms>`.
    pub fn after(&self, ttl: Duration) -> String {
        format!("{}{}", self.after_prefix(), ttl.as_millis())
    }

    /// What the names of the ladder's exchanges between rungs begin with.
    pub fn after_prefix(&self) -> String {
        format!("{}.", self.of_kind("after"))
    }

    /// The delayed exchange.
    pub fn delay(&self) -> String {
        format!("{}.delay", self.namespace)
    }

    /// The exchanges that deliver this queue's copies after a wait.
    pub fn homes(&self, queue: &str) -> Homes {
        let shared = Self::new(&self.namespace);
        Homes {
            return_exchange: self.return_(),
            after_prefixes: [shared.after_prefix(), shared.own_waits_of(queue).after_prefix()],
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

    /// What the names of these tiers begin with. Those of tiers that queues do not share begin with
    /// the prefix of the shared ones, too.
    pub fn tier_prefix(&self) -> String {
        format!("{}.", self.wait())
    }

    /// What the names of these rungs of the ladder begin with.
    pub fn rung_prefix(&self) -> String {
        format!("{}.", self.ladder())
    }

    /// The namespace itself.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The rest of a name that begins with this namespace.
    pub fn without_namespace<'a>(&self, name: &'a str) -> &'a str {
        self.within_namespace(name).unwrap_or(name)
    }

    fn within_namespace<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(&self.namespace)?.strip_prefix('.')
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
        if name.len() <= MOST_BYTES {
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

/// Stands for a queue whose name cannot be part of another one. It is the same in all versions,
/// which the standard library's hash is not.
fn hashed(queue: &str) -> String {
    let mut hasher = FnvHasher::default();
    hasher.write(queue.as_bytes());
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::inputs::inputs;

    #[test]
    fn each_path_of_a_copy_has_what_holds_it() {
        let (names, seconds) = (Names::new("ns"), Duration::from_secs);
        let check =
            |path, holder: &str| assert_eq!(names.holder(path, seconds(5)), holder, "{path:?}");
        check(Path::Tier, "ns.wait.5000");
        check(Path::Ladder { rung: seconds(1) }, "ns.ladder");
        check(Path::Delayed, "ns.delay");
        let own = names.own_waits_of("orders");
        assert_eq!(own.holder(Path::Tier, seconds(5)), "ns.wait.orders.5000");
        assert_eq!(own.holder(Path::Ladder { rung: seconds(1) }, seconds(5)), "ns.ladder.orders");
        assert_eq!(own.holder(Path::Delayed, seconds(5)), "ns.delay");
    }

    #[test]
    fn a_queue_whose_name_is_too_long_or_has_spaces_is_named_by_its_hash() {
        let names = Names::new("ns");
        let wait = |queue: &str| names.own_waits_of(queue).wait();
        assert_eq!(wait("orders"), "ns.wait.orders");
        let most = 255 - "ns.ladder..4294967295".len();
        assert_eq!(wait(&"x".repeat(most)), format!("ns.wait.{}", "x".repeat(most)));
        assert_eq!(wait(&"x".repeat(most + 1)).len(), "ns.wait.".len() + 16);
        assert_ne!(wait(&"x".repeat(most + 1)), wait(&"x".repeat(most + 2)));
        // As every version has named it.
        assert_eq!(wait("my orders"), "ns.wait.8b48507744e92df8");
    }

    proptest! {
        #![proptest_config(inputs(500))]

        #[test]
        fn the_names_of_wait_queues_are_valid_and_tell_whose_they_are(
            namespace in "[a-z.]{1,200}", queue in "\\PC{1,63}|[a-z0-9.]{1,255}", ttl in 1..=u32::MAX,
        ) {
            let (shared, ttl) = (Names::new(&namespace), Duration::from_millis(ttl.into()));
            let own = shared.own_waits_of(&queue);
            for names in [&shared, &own] {
                for name in [names.tier(ttl), names.rung(ttl), names.after(ttl)] {
                    prop_assert!(name.len() <= 255, "{name} has {} bytes", name.len());
                    prop_assert!(!name.contains(char::is_whitespace), "{name:?}");
                }
                let whose = Some((names.clone(), ttl));
                prop_assert_eq!(&shared.of_wait_queue(&names.tier(ttl)), &whose);
                prop_assert_eq!(&own.of_wait_queue(&names.rung(ttl)), &whose);
                prop_assert_eq!(&shared.of_after(&names.after(ttl)), &whose);
                for exchange in [names.wait(), names.ladder()] {
                    prop_assert_eq!(shared.of_wait_exchange(&exchange), Some(names.clone()));
                }
            }
            let all = |names: &Names| [names.tier(ttl), names.rung(ttl), names.after(ttl)];
            prop_assert!(all(&shared).iter().all(|name| !all(&own).contains(name)));
        }
    }

    #[test]
    fn other_names_are_none_of_wait_queues() {
        let names = Names::new("ns");
        for name in [
            "ns.wait.0500",
            "ns.wait.",
            "ns.wait.+5",
            "ns.wait",
            "ns.after.5",
            "ns.wait.a",
            "wait.5",
        ] {
            assert_eq!(names.of_wait_queue(name), None, "{name}");
        }
        for name in ["ns.wait.5", "ns.after", "ns.after.a", "after.5"] {
            assert_eq!(names.of_after(name), None, "{name}");
        }
        for name in ["ns.waiting", "ns.park", "ns.ladders.a", "wait"] {
            assert_eq!(names.of_wait_exchange(name), None, "{name}");
        }
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
