//! The broker's statistics: asked for in the background, so that no page waits for a management API
//! that is slow or away.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use rehop::Settings;
use rehop_operator::management::Api;
use rehop_operator::management::stats::QueueStats;

/// The broker takes a sample every five seconds. However many pages are open, it is asked no more
/// often.
const AGE: Duration = Duration::from_secs(5);
/// Statistics that are older are not shown.
const TOO_OLD: Duration = Duration::from_secs(30);
/// How long the first page waits for the first answer.
const FIRST: Duration = Duration::from_secs(2);

/// What is known of the broker's statistics.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Statistics {
    /// The settings name no management address.
    NoAddress,
    /// By the queues' names.
    Seen(Arc<BTreeMap<String, QueueStats>>),
    /// Why they cannot be seen. The text names no credentials.
    Unseen(String),
}

/// Asks for the statistics of some queues.
#[derive(Debug)]
pub(super) struct Statistician {
    settings: Settings,
    queues: Vec<String>,
    is_asking: AtomicBool,
    answer: watch::Sender<Option<DatedStatistics>>,
}

#[derive(Debug, Clone)]
struct DatedStatistics {
    at: Instant,
    statistics: Statistics,
}

impl Statistician {
    pub(super) fn new(settings: Settings, queues: Vec<String>) -> Arc<Self> {
        Arc::new(Self {
            settings,
            queues,
            is_asking: AtomicBool::new(false),
            answer: watch::Sender::new(None),
        })
    }

    /// The last answer. Asks again if it is not new.
    pub(super) async fn latest(self: &Arc<Self>) -> Statistics {
        if self.settings.broker.management_url.is_none() {
            return Statistics::NoAddress;
        }
        let mut answer = self.answer.subscribe();
        let is_new = answer.borrow().as_ref().is_some_and(|answer| answer.at.elapsed() < AGE);
        if !is_new && !self.is_asking.swap(true, Ordering::SeqCst) {
            let asking = self.clone();
            tokio::spawn(async move {
                let statistics = asking.ask().await;
                asking
                    .answer
                    .send_replace(Some(DatedStatistics { at: Instant::now(), statistics }));
                asking.is_asking.store(false, Ordering::SeqCst);
            });
        }
        let is_recent = |answer: &Option<DatedStatistics>| {
            answer.as_ref().is_some_and(|answer| answer.at.elapsed() < TOO_OLD)
        };
        match timeout(FIRST, answer.wait_for(is_recent)).await.ok().and_then(Result::ok).as_deref()
        {
            Some(Some(answer)) => answer.statistics.clone(),
            _ => Statistics::Unseen("the management API has not answered yet".to_owned()),
        }
    }

    /// With a client of its own each time, so that a password that was changed in its file is used.
    async fn ask(&self) -> Statistics {
        let api = Api::of(&self.settings).unwrap_or_else(|| Err("no address is set".to_owned()));
        let asked = match api {
            Ok(api) => api.stats(self.queues.clone()).await,
            Err(problem) => Err(problem),
        };
        match asked {
            Ok(stats) => Statistics::Seen(Arc::new(stats.into_iter().collect())),
            Err(problem) => {
                tracing::debug!(problem, "the broker's statistics cannot be seen");
                Statistics::Unseen(problem)
            }
        }
    }
}
