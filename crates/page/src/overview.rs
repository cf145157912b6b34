//! The front page's tables. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::address::Address;
use crate::cell::Cell;
use crate::counts;
use crate::depths::Depth;
use crate::format::{span, time};
use crate::statistics::Statistics;
use rehop::SettingsError;
use rehop::Timestamp;
use rehop::Topology;
use rehop::internals::Names;
use rehop::internals::Resolved;
use rehop::topology::{Argument, Role};
use rehop_operator::format::count;
use rehop_operator::parked::Place;

/// How many queues that cannot be read are explained.
const MOST_REASONS: usize = 5;

/// The queues that the front page shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) queues: Vec<PlannedQueue>,
    pub(super) waits: Vec<PlannedWait>,
    pub(super) stray: String,
    pub(super) discarded: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedQueue {
    pub(super) work: String,
    pub(super) parked: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedWait {
    pub(super) queue: String,
    /// How long a message waits in it, if all wait equally long.
    pub(super) ttl: Option<Duration>,
}

impl Plan {
    pub(super) fn of(resolved: &Resolved) -> Result<Self, SettingsError> {
        let topology = Topology::of(&resolved.settings)?;
        let names = Names::new(&resolved.settings.namespace);
        let ttl = |argument: &Argument| match argument {
            Argument::Number(millis) => u64::try_from(*millis).ok().map(Duration::from_millis),
            _ => None,
        };
        let waits = topology.queues.iter().filter(|queue| queue.role == Role::Wait);
        let wait = |queue: &rehop::topology::Queue| PlannedWait {
            queue: queue.name.clone(),
            ttl: queue.arguments.get("x-message-ttl").and_then(ttl),
        };
        let queue = |config: &rehop::internals::QueueConfig| PlannedQueue {
            work: config.queue.clone(),
            parked: config.parked.clone(),
        };
        Ok(Self {
            queues: resolved.queues.iter().map(queue).collect(),
            waits: waits.map(wait).collect(),
            stray: names.stray(),
            discarded: names.discarded(),
        })
    }

    /// Every queue whose depth is shown.
    pub(super) fn names(&self) -> Vec<String> {
        let queues =
            self.queues.iter().flat_map(|queue| [queue.work.clone(), queue.parked.clone()]);
        let waits = self.waits.iter().map(|wait| wait.queue.clone());
        queues.chain(waits).chain([self.stray.clone(), self.discarded.clone()]).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueueRow {
    pub(super) queue: String,
    /// The address of its parked messages.
    pub(super) query: String,
    pub(super) ready: Cell,
    pub(super) consumers: Cell,
    pub(super) parked: Cell,
    /// What only the management API tells.
    pub(super) counts: Vec<Cell>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaitRow {
    pub(super) queue: String,
    pub(super) ttl: String,
    pub(super) waiting: Cell,
    /// When the last of those that wait now has left.
    pub(super) until: Cell,
    /// What only the management API tells.
    pub(super) counts: Vec<Cell>,
}

/// The front page's tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Overview {
    pub(super) queues: Vec<QueueRow>,
    pub(super) waits: Vec<WaitRow>,
    pub(super) stray: Cell,
    pub(super) discarded: Cell,
    /// Why queues cannot be read; empty if all can.
    pub(super) unread: Cell,
    /// Why the management API tells nothing; empty if it does. `None` if the settings name none.
    pub(super) management: Option<Cell>,
}

impl Overview {
    pub(super) fn new(
        plan: &Plan,
        depths: &BTreeMap<String, Depth>,
        statistics: &Statistics,
        now: Timestamp,
    ) -> Self {
        let ready = |id: String, queue: &str| Cell::new(id, ready(depths.get(queue)));
        let queues = plan.queues.iter().enumerate().map(|(index, queue)| QueueRow {
            queue: queue.work.clone(),
            query: Address::of(Place::queue(&queue.work)).query(),
            ready: ready(format!("ready-{index}"), &queue.work),
            consumers: Cell::new(format!("consumers-{index}"), consumers(depths.get(&queue.work))),
            parked: ready(format!("parked-{index}"), &queue.parked),
            counts: counts::work(index, &queue.work, &queue.parked, statistics),
        });
        let waits = plan.waits.iter().enumerate().map(|(index, wait)| WaitRow {
            queue: wait.queue.clone(),
            ttl: wait.ttl.map_or("differs".to_owned(), span),
            waiting: ready(format!("waiting-{index}"), &wait.queue),
            until: Cell::new(
                format!("until-{index}"),
                until(depths.get(&wait.queue), wait.ttl, now),
            ),
            counts: counts::wait(index, &wait.queue, statistics),
        });
        Self {
            queues: queues.collect(),
            waits: waits.collect(),
            stray: ready("stray".to_owned(), &plan.stray),
            discarded: match depths.get(&plan.discarded) {
                // Declared by the first discard.
                Some(Depth::Missing) => Cell::new("discarded", "none"),
                _ => ready("discarded".to_owned(), &plan.discarded),
            },
            unread: Cell::new("unread", unread(depths)),
            management: match statistics {
                Statistics::NoAddress => None,
                Statistics::Seen(_) => Some(Cell::new("management", "")),
                Statistics::Unseen(problem) => {
                    Some(Cell::new("management", format!("Not seen: {problem}.")))
                }
            },
        }
    }

    /// Every value that changes, by the id of its element.
    pub(super) fn cells(&self) -> BTreeMap<&str, &str> {
        let queues = self.queues.iter().flat_map(|row| {
            [&row.ready, &row.consumers, &row.parked].into_iter().chain(&row.counts)
        });
        let waits = self
            .waits
            .iter()
            .flat_map(|row| [&row.waiting, &row.until].into_iter().chain(&row.counts));
        queues
            .chain(waits)
            .chain([&self.stray, &self.discarded, &self.unread])
            .chain(&self.management)
            .map(|cell| (cell.id.as_str(), cell.text.as_str()))
            .collect()
    }
}

fn ready(depth: Option<&Depth>) -> String {
    match depth {
        Some(Depth::There { ready, .. }) => count(*ready),
        Some(Depth::Missing) => "not declared".to_owned(),
        Some(Depth::Hidden(_)) | None => "cannot be read".to_owned(),
    }
}

/// The reasons name their queues.
fn unread(depths: &BTreeMap<String, Depth>) -> String {
    let reasons = depths.values().filter_map(|depth| match depth {
        Depth::Hidden(reason) => Some(reason.as_str()),
        Depth::There { .. } | Depth::Missing => None,
    });
    let reasons: Vec<_> = reasons.collect();
    match reasons.len() {
        0 => String::new(),
        all if all <= MOST_REASONS => format!("Not read: {}.", reasons.join("; ")),
        all => format!(
            "Not read: {}; and {} more.",
            reasons[..MOST_REASONS].join("; "),
            all - MOST_REASONS
        ),
    }
}

fn consumers(depth: Option<&Depth>) -> String {
    match depth {
        Some(Depth::There { consumers: 0, .. }) => "none".to_owned(),
        Some(Depth::There { consumers, .. }) => count(*consumers),
        _ => "–".to_owned(),
    }
}

/// AMQP does not tell when a message began to wait, so the one that came last may have come now.
fn until(depth: Option<&Depth>, ttl: Option<Duration>, now: Timestamp) -> String {
    match (depth, ttl) {
        (Some(Depth::There { ready, .. }), Some(ttl)) if *ready > 0 => time(now + ttl),
        _ => "–".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rehop::Settings;

    #[test]
    fn the_front_page_shows_every_queue_of_the_settings_and_says_what_is_missing() {
        let mut settings = Settings::default();
        settings.namespace = "shop".to_owned();
        settings.queue_mut("orders");
        settings.queue_mut("mails");
        let plan = Plan::of(&settings.resolve().unwrap()).unwrap();
        assert_eq!(plan.waits.first().unwrap().ttl, Some(Duration::from_secs(10)));
        let depths = BTreeMap::from([
            ("orders".to_owned(), Depth::There { ready: 1_234_567, consumers: 2 }),
            ("orders.parked".to_owned(), Depth::There { ready: 3, consumers: 0 }),
            ("mails".to_owned(), Depth::Missing),
            ("mails.parked".to_owned(), Depth::Hidden("no permission".to_owned())),
            ("shop.stray".to_owned(), Depth::There { ready: 0, consumers: 0 }),
            (plan.waits[1].queue.clone(), Depth::There { ready: 2, consumers: 0 }),
        ]);
        let now = Timestamp::from_millis(1_700_000_000_000);
        let overview = Overview::new(&plan, &depths, &Statistics::NoAddress, now);
        let cells = overview.cells();
        for (id, text) in [
            ("ready-0", "1,234,567"),
            ("consumers-0", "2"),
            ("parked-0", "3"),
            ("ready-1", "not declared"),
            ("consumers-1", "–"),
            ("parked-1", "cannot be read"),
            ("waiting-0", "cannot be read"),
            ("until-0", "–"),
            ("waiting-1", "2"),
            ("until-1", &time(now + plan.waits[1].ttl.unwrap())),
            ("stray", "0"),
            ("unread", "Not read: no permission."),
        ] {
            assert_eq!(cells.get(id), Some(&text), "{id}: {cells:?}");
        }
        assert_eq!(cells.len(), plan.names().len() + plan.queues.len() + plan.waits.len() + 1);
        let unseen =
            Overview::new(&plan, &depths, &Statistics::Unseen("it is away".to_owned()), now);
        let cells = unseen.cells();
        assert_eq!(
            (cells["management"], cells["arrive-0"], cells["stuck-0"]),
            ("Not seen: it is away.", "–", "–")
        );
    }

    #[test]
    fn the_front_page_says_why_queues_cannot_be_read_of_the_first_few() {
        let hidden = |count: usize| -> BTreeMap<String, Depth> {
            let all = (0..count).map(|number| {
                (format!("q{number}"), Depth::Hidden(format!("q{number} is silent")))
            });
            all.chain([("there".to_owned(), Depth::Missing)]).collect()
        };
        assert_eq!(unread(&hidden(0)), "");
        assert_eq!(unread(&hidden(2)), "Not read: q0 is silent; q1 is silent.");
        let many = unread(&hidden(MOST_REASONS + 2));
        assert!(many.ends_with("q4 is silent; and 2 more."), "{many}");
    }
}
