//! What the deliveries of one queue have in common.

use std::sync::Arc;
use std::time::Duration;

use lapin::types::ShortString;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::broker::connection::Link;
use crate::broker::name::short;
use crate::consume::advice::Advice;
use crate::consume::failure_log::FailureLog;
use crate::consume::line::Line;
use crate::consume::malformed::Malformed;
use crate::consume::onlooker::{Onlooker, onlooker};
use crate::consume::receipts::Receipts;
use crate::consume::summary::LiveSummary;
use crate::error::Error;
use crate::handler::AnyHandler;
use crate::message::Source;
use crate::publish::CopyPublisher;
use crate::settings::{Declare, QueueConfig, Settings, address};
use crate::shutdown::Shutdown;
use crate::status::QueueState;
use crate::telemetry::metrics::{Instruments, QueueMetrics};
use crate::telemetry::spans::QueueTracer;
use crate::timestamp::Timestamp;
use crate::topology::Names;
use crate::wire::Contract;

/// How long settling waits at most for subscriptions to end.
const LONGEST_ENDING: Duration = Duration::from_secs(2);

/// What the deliveries of one queue have in common.
pub(crate) struct QueueContext {
    pub(crate) config: QueueConfig,
    pub(crate) line: Line,
    pub(crate) contract: Contract,
    pub(crate) addresses: ShortNames,
    pub(crate) names: Names,
    pub(crate) handler: Box<dyn AnyHandler>,
    pub(crate) source: Arc<Source>,
    pub(crate) publisher: CopyPublisher,
    /// The connection of the publisher.
    pub(crate) publishing: Arc<Link>,
    pub(crate) receipts: Receipts,
    /// Whether settling has to wait, because the queue's subscriptions are about to end.
    pub(crate) settling_waits: watch::Receiver<bool>,
    /// Held by the first of those that wait for it, so that they go on in the order in which they
    /// came. A watch alone wakes them in any order.
    settling_turn: Mutex<()>,
    /// Cancelled when the service stops and nothing that goes back now can come here again: the
    /// subscription has ended or, in an ordered queue, nothing goes back before the channel closes.
    /// From then on, a copy that is refused is given up.
    pub(crate) stopping: CancellationToken,
    /// How many deliveries wait for nothing but the end of their session.
    left: watch::Sender<usize>,
    pub(crate) tracer: QueueTracer,
    pub(crate) metrics: QueueMetrics,
    pub(crate) summary: Arc<LiveSummary>,
    pub(crate) state: Arc<QueueState>,
    pub(crate) malformed: Malformed,
    pub(crate) failures: Arc<FailureLog>,
    pub(crate) advice: Advice,
    /// For how long after its arrival a delivery may be held before another attempt begins, if
    /// messages wait in the process.
    pub(crate) hold_limit: Option<Duration>,
    pub(crate) onlooker: Option<Onlooker>,
}

/// The names that this queue's copies need, in AMQP's form: one that is too long is an error before
/// anything is consumed.
pub(crate) struct ShortNames {
    pub(crate) queue: ShortString,
    pub(crate) wait: ShortString,
    pub(crate) ladder: ShortString,
    pub(crate) delay: ShortString,
    pub(crate) park: ShortString,
}

impl ShortNames {
    fn of(queue: &str, names: &Names) -> Result<Self, Error> {
        Ok(Self {
            queue: short(queue)?,
            wait: short(&names.wait())?,
            ladder: short(&names.ladder())?,
            delay: short(&names.delay())?,
            park: short(&names.park())?,
        })
    }
}

/// What all queues of a service share.
pub(crate) struct ServiceParts<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) publisher: CopyPublisher,
    /// The connection of the publisher.
    pub(crate) publishing: Arc<Link>,
    pub(crate) receipts: Receipts,
    pub(crate) instruments: Instruments,
    pub(crate) summary: Arc<LiveSummary>,
    pub(crate) shutdown: Shutdown,
}

impl QueueContext {
    /// # Errors
    ///
    /// When a name is too long for AMQP.
    pub(crate) fn new(
        parts: &ServiceParts<'_>,
        config: QueueConfig,
        handler: Box<dyn AnyHandler>,
        settling_waits: watch::Receiver<bool>,
        state: Arc<QueueState>,
    ) -> Result<Self, Error> {
        let ServiceParts { settings, publisher, publishing, receipts, instruments, .. } = parts;
        let ServiceParts { summary, shutdown, .. } = parts;
        let queue = config.queue.as_str();
        let names = Names::new(&settings.namespace).waits_of(&config);
        let server = address::server(&settings.broker);
        if config.declare == Declare::Existing {
            tracing::info!(
                queue,
                "using the queue as it is; its delivery limit and dead-letter target cannot be checked"
            );
        }
        let contract = Contract {
            queue: config.queue.clone(),
            homes: names.homes(queue),
            expiry_header: settings.expiry_header.clone(),
            max_age: config.policy.max_age,
            counts_deliveries: config.counts_deliveries,
            counts_waits: config.policy.strategy.delayed_return().is_some(),
        };
        let hold_limit = config.hold_limit(settings.broker.consumer_timeout);
        let metrics = QueueMetrics::new(instruments.clone(), queue);
        metrics.consuming(false);
        Ok(Self {
            addresses: ShortNames::of(queue, &names)?,
            tracer: QueueTracer::new(
                queue,
                server.as_ref(),
                (config.policy.max_attempts(), &config.policy.delays),
                settings.trace.max_age,
            ),
            metrics,
            state,
            line: Line::of(&config.order),
            source: Arc::new(Source {
                queue: config.queue.clone(),
                policy: config.policy.clone(),
                handler_timeout: config.handler_timeout,
                shutdown: shutdown.clone(),
            }),
            contract,
            names,
            handler,
            publisher: publisher.clone(),
            publishing: publishing.clone(),
            receipts: receipts.clone(),
            settling_waits,
            settling_turn: Mutex::new(()),
            stopping: CancellationToken::new(),
            left: watch::Sender::new(0),
            summary: summary.clone(),
            malformed: Malformed::default(),
            failures: Arc::new(FailureLog::new(queue)),
            advice: Advice::default(),
            hold_limit,
            onlooker: onlooker(),
            config,
        })
    }
}

impl QueueContext {
    /// Returns when deliveries of the queue may be settled.
    pub(crate) async fn settleable(&self) {
        if *self.settling_waits.borrow() {
            let mut waits = self.settling_waits.clone();
            // Boxed, because it is rare and the task of a delivery should stay small. Bounded,
            // because a broker that does not answer must not make duplicates of all that could
            // still be settled.
            let settleable = async {
                let _turn = self.settling_turn.lock().await;
                let _ = waits.wait_for(|waits| !waits).await;
            };
            let _ = Box::pin(timeout(LONGEST_ENDING, settleable)).await;
        }
    }

    /// How many deliveries are left to the end of their session, as it changes.
    pub(crate) fn left(&self) -> watch::Receiver<usize> {
        self.left.subscribe()
    }

    /// A delivery is left to the end of its session, until the guard is dropped.
    pub(crate) fn leave(&self) -> Left<'_> {
        self.left.send_modify(|left| *left += 1);
        Left(&self.left)
    }

    /// The queue is consumed from now on.
    pub(crate) fn consuming(&self) {
        tracing::info!(queue = %self.config.queue, "consuming");
        self.metrics.consuming(true);
        self.state.consuming(Timestamp::now());
    }

    /// The queue is not consumed from now on. `error` says why, unless the service is stopping.
    pub(crate) fn not_consuming(&self, error: Option<&Error>) {
        self.metrics.consuming(false);
        self.state.not_consuming(error, Timestamp::now());
    }
}

/// Whatever ends a consumer, its queue is not consumed any more: the task of the service may be
/// aborted.
impl Drop for QueueContext {
    fn drop(&mut self) {
        self.not_consuming(None);
    }
}

/// Counts a delivery as left to the end of its session for as long as this is kept.
pub(crate) struct Left<'a>(&'a watch::Sender<usize>);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|left| *left -= 1);
    }
}

/// Counts a delivery as in flight for as long as this is kept.
pub(crate) struct InFlight(Arc<QueueContext>);

impl InFlight {
    pub(crate) fn new(context: Arc<QueueContext>) -> Self {
        context.metrics.received();
        context.state.received();
        Self(context)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.metrics.released();
        self.0.state.released();
    }
}
