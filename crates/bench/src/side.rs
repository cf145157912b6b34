//! The sides that are compared: raw lapin in several variants, and rehop.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::corner::Corner;
use crate::job::Job;
use crate::task::Task;
use crate::witness::Witness;
use crate::{Result, raw, rehop_side};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Raw(raw::Variant),
    Rehop,
    /// In a service that consumes so many queues, of which the others are idle.
    RehopOf(usize),
}

impl Side {
    /// The side that the others are compared with: rehop's own topology, an ack for each message.
    pub(crate) const YARDSTICK: Self = Self::Raw(raw::Variant::SingleAcks);

    /// The same with rehop's headers on each copy: what is left between it and rehop is rehop's own
    /// work.
    pub(crate) const WITH_HISTORY: Self = Self::Raw(raw::Variant::WithHistory);

    /// Services with more and more queues.
    pub(crate) const OF_QUEUES: [Self; 3] =
        [Self::RehopOf(1), Self::RehopOf(10), Self::RehopOf(100)];

    /// The yardstick first.
    pub(crate) fn all(job: Job) -> Vec<Self> {
        match job {
            Job::Success => {
                vec![Self::YARDSTICK, Self::Raw(raw::Variant::BatchedAcks), Self::Rehop]
            }
            Job::Wait(_) => {
                vec![
                    Self::YARDSTICK,
                    Self::Raw(raw::Variant::CheapestTopology),
                    Self::WITH_HISTORY,
                    Self::Rehop,
                ]
            }
            Job::Requeue => vec![Self::YARDSTICK, Self::Rehop],
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Raw(variant) => variant.name(),
            Self::Rehop => "rehop",
            Self::RehopOf(1) => "rehop, the only queue",
            Self::RehopOf(10) => "rehop, one of 10 queues",
            Self::RehopOf(_) => "rehop, one of 100 queues",
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Raw(_) => "raw",
            Self::Rehop | Self::RehopOf(_) => "rehop",
        }
    }

    /// How many queues are consumed and stay empty.
    pub(crate) fn idle_queues(self) -> usize {
        match self {
            Self::RehopOf(queues) => queues - 1,
            Self::Raw(_) | Self::Rehop => 0,
        }
    }

    pub(crate) fn is_on_the_default_exchange(self) -> bool {
        self == Self::Raw(raw::Variant::CheapestTopology)
    }

    /// Works until the task's `stop` is signalled.
    async fn work(self, task: Task) -> Result<()> {
        match self {
            Self::Raw(variant) => raw::work(task, variant).await,
            Self::Rehop | Self::RehopOf(_) => rehop_side::work(task).await,
        }
    }

    /// Lets this side work in a tokio task of its own until `end` is ready.
    pub(crate) async fn work_until<T>(
        self,
        job: Job,
        url: &str,
        corner: &Corner,
        witness: &Arc<Witness>,
        end: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let (stop, stopped) = oneshot::channel();
        let task = Task {
            job,
            url: url.to_owned(),
            corner: corner.clone(),
            witness: witness.clone(),
            stop: stopped,
        };
        let working = async { tokio::spawn(self.work(task)).await? };
        let ending = async {
            let end = end.await?;
            // A side that has already ended has failed, and returns the error itself.
            let _ = stop.send(());
            Ok(end)
        };
        let ((), end) = tokio::try_join!(working, ending)?;
        Ok(end)
    }
}
