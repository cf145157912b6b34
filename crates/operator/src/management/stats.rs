//! What the broker counts of one queue, and how fast it changes.

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;

use crate::management::Api;

/// How many questions are asked at a time.
const AT_A_TIME: usize = 8;

/// What the broker counts of one queue. Counts are missing where it collects no statistics.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct QueueStats {
    /// How many messages consumers hold.
    #[serde(rename = "messages_unacknowledged")]
    pub held: Option<u64>,
    /// How many messages have expired, and cannot be dead-lettered for now.
    #[serde(rename = "messages_dlx")]
    pub stuck: Option<u64>,
    /// Missing until the queue has had a message, and where the broker keeps no rates.
    #[serde(rename = "message_stats")]
    pub rates: Option<Rates>,
    /// Whether the broker keeps rates: only then is what is missing among them 0.
    #[serde(skip)]
    pub has_rates: bool,
}

/// What the broker as a whole says of its statistics.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Kept {
    rates_mode: Option<String>,
    #[serde(rename = "disable_stats")]
    is_without_statistics: bool,
}

impl Kept {
    /// `management.rates_mode = none` keeps none (4.3), and `management.disable_stats` shows none
    /// (4.0), although the broker then still counts messages.
    fn has_rates(&self) -> bool {
        !self.is_without_statistics && self.rates_mode.as_ref().is_some_and(|mode| mode != "none")
    }
}

/// In messages a second. What has never happened is missing in the answer, and 0.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Rates {
    #[serde(rename = "publish_details")]
    pub published: Rate,
    #[serde(rename = "ack_details")]
    pub acked: Rate,
    #[serde(rename = "redeliver_details")]
    pub redelivered: Rate,
}

/// The change between the last two samples, which the broker takes every five seconds (3.10, 4.0
/// and 4.3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Rate {
    pub rate: f64,
}

impl QueueStats {
    /// The rates, if the broker keeps them and has counted.
    pub fn rates(&self) -> Option<Rates> {
        self.held.filter(|_| self.has_rates).map(|_| self.rates.clone().unwrap_or_default())
    }
}

impl Api {
    /// What is counted of these queues; nothing for one that does not exist, or that the API alone
    /// cannot tell of.
    ///
    /// # Errors
    ///
    /// When the API cannot be used. The text names no credentials.
    pub async fn stats(&self, queues: Vec<String>) -> Result<Vec<(String, QueueStats)>, String> {
        let kept = self.get::<Kept>(&["overview"]).await;
        let kept = kept.map_err(|refusal| refusal.of("statistics"))?.unwrap_or_default();
        let has_rates = kept.has_rates();
        let asked = stream::iter(queues).map(|queue| async move {
            match self.get::<QueueStats>(&["queues", &self.vhost, &queue]).await {
                Ok(stats) => Ok(stats.map(|stats| (queue, QueueStats { has_rates, ..stats }))),
                Err(refusal) => refusal.noted("queues", &mut Vec::new()).map(|()| None),
            }
        });
        let found: Vec<_> = asked.buffer_unordered(AT_A_TIME).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_not_happened_is_zero_and_what_is_not_counted_is_unknown() {
        let read = |answer| {
            let stats = serde_json::from_value::<QueueStats>(answer).unwrap();
            QueueStats { has_rates: true, ..stats }
        };
        let busy = read(json!({
            "name": "orders",
            "messages_unacknowledged": 3,
            "messages_dlx": 0,
            "message_stats": {"publish": 9, "publish_details": {"rate": 1.8}, "ack_details": {"rate": 0.4}},
        }));
        let rates = busy.rates().unwrap();
        assert_eq!(
            (busy.held, rates.published.rate, rates.acked.rate, rates.redelivered.rate),
            (Some(3), 1.8, 0.4, 0.0)
        );
        assert_eq!(read(json!({"messages_unacknowledged": 0})).rates(), Some(Rates::default()));
        assert_eq!(read(json!({"name": "orders"})).rates(), None);
        let only_counted = QueueStats { has_rates: false, ..busy };
        assert_eq!((only_counted.held, only_counted.rates()), (Some(3), None));
        for (overview, expected) in [
            (json!({"rates_mode": "basic", "disable_stats": false}), true),
            (json!({"rates_mode": "detailed"}), true),
            (json!({"rates_mode": "none"}), false),
            (json!({"rates_mode": "basic", "disable_stats": true}), false),
            (json!({}), false),
        ] {
            let kept = serde_json::from_value::<Kept>(overview.clone()).unwrap();
            assert_eq!(kept.has_rates(), expected, "{overview}");
        }
    }
}
