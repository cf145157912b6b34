//! What all deliveries of one queue share.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::handler::Process;
use crate::headers::Ignored;
use crate::message::{Arrival, Envelope};
use crate::publisher::Publisher;
use crate::settings::QueuePlan;
use crate::tally::Tally;
use crate::telemetry::metrics::QueueMetrics;
use crate::telemetry::spans::QueueTracer;
use crate::timestamp::Timestamp;
use crate::topology::Names;

pub(crate) struct Queue {
    pub(crate) plan: QueuePlan,
    pub(crate) names: Names,
    pub(crate) process: Box<dyn Process>,
    pub(crate) publisher: Publisher,
    pub(crate) tracer: QueueTracer,
    pub(crate) metrics: QueueMetrics,
    pub(crate) tally: Arc<Tally>,
    pub(crate) warned: Warned,
}

impl Queue {
    pub(crate) fn read(&self, envelope: Envelope, now: Timestamp) -> Arrival {
        let (arrival, ignored) = self.plan.contract.read(envelope, now);
        self.warned.about(&self.plan.queue, ignored);
        arrival
    }
}

/// A delivery in this process's hands, for as long as this is kept.
pub(crate) struct InFlight(Arc<Queue>);

impl InFlight {
    pub(crate) fn new(queue: Arc<Queue>) -> Self {
        queue.metrics.received();
        Self(queue)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.metrics.released();
    }
}

/// The shell's clock. Decisions get the time as an argument.
pub(crate) fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

/// The headers that were warned about already: one warning each, however many messages carry the same mistake.
#[derive(Debug, Default)]
pub(crate) struct Warned(Mutex<HashSet<String>>);

impl Warned {
    pub(crate) fn about(&self, queue: &str, ignored: Vec<Ignored>) {
        if ignored.is_empty() {
            return;
        }
        let mut warned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for Ignored { header, because } in ignored {
            if warned.insert(header.clone()) {
                tracing::warn!(
                    queue,
                    header,
                    because,
                    "ignoring a header; further ones of this name without a warning"
                );
            }
        }
    }
}
