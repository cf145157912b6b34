//! Where an operator looks.

use serde::Serialize;

use rehop::Error;
use rehop::SettingsError;
use rehop::internals::Names;
use rehop::internals::Resolved;

/// One of the queues in which messages rest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The parked queue of this work queue.
    Queue(String),
    /// The namespace's stray queue, which keeps unroutable messages.
    Stray,
    /// The namespace's queue of messages that an operator has discarded.
    Discarded,
}

impl Place {
    /// The parked queue of this work queue.
    pub fn queue(queue: impl Into<String>) -> Self {
        Self::Queue(queue.into())
    }

    /// The name of the queue in which the messages rest.
    pub(crate) fn resting(&self, names: &Names, resolved: &Resolved) -> Result<String, Error> {
        Ok(match self {
            Self::Queue(queue) if queue.is_empty() => {
                return Err(
                    SettingsError::invalid("queue".to_owned(), "a queue's name must not be empty".to_owned()).into()
                );
            }
            Self::Queue(queue) => resolved.queue(queue)?.parked,
            Self::Stray => names.stray(),
            Self::Discarded => names.discarded(),
        })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Queue(queue) => write!(f, "parked messages of queue {queue}"),
            Self::Stray => f.write_str("stray messages"),
            Self::Discarded => f.write_str("discarded messages"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rehop::Settings;

    #[test]
    fn each_place_is_one_queue() {
        let mut settings = Settings::default();
        settings.queue_mut("orders").parked = Some("orders.dead".to_owned());
        let (resolved, names) = (settings.resolve().unwrap(), Names::new("ns"));
        for (place, queue, shown) in [
            (Place::queue("orders"), "orders.dead", "parked messages of queue orders"),
            (Place::queue("bills"), "bills.parked", "parked messages of queue bills"),
            (Place::Stray, "ns.stray", "stray messages"),
            (Place::Discarded, "ns.discarded", "discarded messages"),
        ] {
            assert_eq!(place.resting(&names, &resolved).unwrap(), queue);
            assert_eq!(place.to_string(), shown);
        }
        let refused = Place::queue("").resting(&names, &resolved).unwrap_err().to_string();
        assert!(refused.contains("must not be empty"), "{refused}");
    }
}
