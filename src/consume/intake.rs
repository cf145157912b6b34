//! The process's one inbox, and the tasks that its handlers run in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep_until;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::broker::acks::Settlement;
use crate::clock;
use crate::consume::inbox::{
    Fingerprint as _, Flow, Inbox, Late, QueueIndex, Rest, Rules, Take, Ticket,
};
use crate::consume::taken::Taken;
use crate::lock::lock;
use crate::message::Delivery;
use crate::random::random;
use crate::shutdown::Shutdown;

/// Holds what all queues of this process have delivered, and runs the handlers.
///
/// There is one for all queues, because a crash charges everything that the process holds,
/// whichever queue it came from.
pub(crate) struct Intake {
    inbox: Mutex<Inbox<Taken>>,
    takes: Vec<watch::Sender<Take>>,
    /// Whether settling a delivery of the queue has to wait.
    settling_waits: Vec<watch::Sender<bool>>,
    /// Why deliveries of the queue are to go back.
    late: Vec<watch::Sender<Option<Late>>>,
    /// How many slots of each queue are taken.
    running: Vec<watch::Sender<usize>>,
    /// Whether each queue rests.
    rests: Vec<watch::Sender<Rest>>,
    /// When [`keep_time`](Self::keep_time) looks at the inbox next, at the latest.
    next_look: watch::Sender<Option<Instant>>,
    shutdown: Shutdown,
    /// Starts the handler of a delivery.
    spawn: Spawn,
    /// The runtime ended before the service did: it drops handlers instead of running them.
    has_lost_runtime: AtomicBool,
    aborted: CancellationToken,
    /// The service's runtime: what changes the inbox may run elsewhere.
    runtime: Handle,
}

/// Runs the attempt at a delivery in a task, which ends when the token is cancelled.
pub(crate) type Spawn = fn(Box<Taken>, Slot, CancellationToken);

impl Intake {
    /// An intake for these queues, and the index of each. `spawn` runs the attempts.
    pub(crate) fn new(
        shutdown: Shutdown,
        rules: impl IntoIterator<Item = Rules>,
        spawn: Spawn,
    ) -> (Arc<Self>, Vec<QueueIndex>) {
        let mut inbox = Inbox::new(random());
        let queues: Vec<_> = rules.into_iter().map(|rules| inbox.add(rules)).collect();
        let now = clock::now();
        let intake = Self {
            takes: queues.iter().map(|queue| watch::Sender::new(inbox.take(*queue, now))).collect(),
            settling_waits: queues.iter().map(|_| watch::Sender::new(false)).collect(),
            late: queues.iter().map(|_| watch::Sender::new(None)).collect(),
            running: queues.iter().map(|_| watch::Sender::new(0)).collect(),
            rests: queues.iter().map(|_| watch::Sender::new(Rest::Flows)).collect(),
            next_look: watch::Sender::new(inbox.wake_at(now)),
            inbox: Mutex::new(inbox),
            shutdown,
            spawn,
            has_lost_runtime: AtomicBool::new(false),
            aborted: CancellationToken::new(),
            runtime: Handle::current(),
        };
        (Arc::new(intake), queues)
    }

    /// How the queue's deliveries are to be taken, as it changes.
    pub(crate) fn take(&self, queue: QueueIndex) -> watch::Receiver<Take> {
        self.takes[queue.position()].subscribe()
    }

    /// A session takes the queue's deliveries from now on.
    pub(crate) fn opened(self: &Arc<Self>, queue: QueueIndex) {
        self.change(|inbox, now| inbox.opened(queue, now));
    }

    /// The queue is not to be asked for single messages any more.
    pub(crate) fn refuses_gets(self: &Arc<Self>, queue: QueueIndex) {
        self.change(|inbox, now| inbox.refuses_gets(queue, now));
    }

    /// The answer to a get.
    pub(crate) fn got(self: &Arc<Self>, queue: QueueIndex, got: Option<Taken>) {
        self.change(|inbox, now| {
            let got = got.map(|taken| (taken.delivery.ledger.redeliveries, taken));
            inbox.got(queue, got, now);
        });
    }

    /// Whether settling a delivery of the queue has to wait, as it changes.
    pub(crate) fn settling_waits(&self, queue: QueueIndex) -> watch::Receiver<bool> {
        self.settling_waits[queue.position()].subscribe()
    }

    /// Why deliveries of the queue are to go back, as it changes.
    pub(crate) fn late(&self, queue: QueueIndex) -> watch::Receiver<Option<Late>> {
        self.late[queue.position()].subscribe()
    }

    /// The queue's subscriptions are to end: when to ask again, or `None` if they may be cancelled
    /// now. Until their end is [reported](Self::subscribed), nothing of the queue is settled.
    pub(crate) fn ends_at(self: &Arc<Self>, queue: QueueIndex) -> Option<Instant> {
        self.change(|inbox, now| inbox.ends_at(queue, now))
    }

    /// Records the prefetch of the queue's subscriptions; 0 if there are none.
    pub(crate) fn subscribed(self: &Arc<Self>, queue: QueueIndex, prefetch: u16) {
        self.change(|inbox, now| inbox.subscribed(queue, prefetch, now));
    }

    /// Records that the queue's subscriptions are to have this prefetch, unless that is more than
    /// is wanted by now. In one step, so that a queue of which it was said that it rests is not
    /// subscribed to.
    pub(crate) fn subscribe_if_wanted(self: &Arc<Self>, queue: QueueIndex, prefetch: u16) -> bool {
        self.change(|inbox, now| {
            let is_wanted = inbox.take(queue, now).prefetch() >= prefetch;
            if is_wanted {
                inbox.subscribed(queue, prefetch, now);
            }
            is_wanted
        })
    }

    pub(crate) fn arrive(self: &Arc<Self>, queue: QueueIndex, deliveries: Vec<Taken>) {
        self.change(|inbox, now| {
            for taken in deliveries {
                inbox.arrive(queue, taken.delivery.ledger.redeliveries, now, taken);
            }
        });
    }

    /// The queue's channel is gone: what has not started is dropped, and what is running keeps its
    /// slot until its handler ends. `is_by_delivery`: a delivery has ended the connection, and
    /// comes again.
    pub(crate) fn lost(self: &Arc<Self>, queue: QueueIndex, is_by_delivery: bool) {
        self.change(|inbox, now| inbox.lost(queue, is_by_delivery, now));
    }

    /// Deliveries that have waited too long for a handler, and should go back to the queue.
    pub(crate) fn take_late(self: &Arc<Self>, queue: QueueIndex) -> Vec<Taken> {
        self.change(|inbox, now| inbox.take_late(queue, now))
    }

    /// Applies what time alone changes: starts handlers, opens windows, and reports late
    /// deliveries. Never returns.
    pub(crate) async fn keep_time(self: Arc<Self>) {
        let mut planned = self.next_look.subscribe();
        loop {
            let look_at = *planned.borrow_and_update();
            tokio::select! {
                biased;
                // `self` owns the sender, so this cannot fail.
                _ = planned.changed() => {}
                () = sleep_until(look_at.unwrap_or_else(clock::now).into()), if look_at.is_some() => {
                    self.next_look.send_replace(None);
                    self.change(|_, _| ());
                }
            }
        }
    }

    /// Whether no further handler may start. This does not depend on the sessions: one that waits
    /// for the broker notices a shutdown late.
    fn is_stopping(&self) -> bool {
        self.shutdown.is_requested() || self.has_lost_runtime.load(Ordering::Relaxed)
    }

    /// The deliveries that are not running: no handler has seen them, or they wait between two
    /// attempts.
    pub(crate) fn empty(self: &Arc<Self>, queue: QueueIndex) -> Vec<Taken> {
        self.change(|inbox, now| inbox.empty(queue, now))
    }

    /// How many of the queue's slots are taken, also by handlers whose channel is gone.
    pub(crate) fn running(&self, queue: QueueIndex) -> usize {
        *self.running[queue.position()].borrow()
    }

    /// How many are taken in all queues together.
    pub(crate) fn running_in_all(&self) -> usize {
        self.running.iter().map(|running| *running.borrow()).sum()
    }

    /// Waits until no slot of the queue is taken. A handler that was dropped ends at its next
    /// await.
    pub(crate) async fn idle(&self, queue: QueueIndex) {
        // An error would mean that the intake is gone.
        let _ = self.running[queue.position()].subscribe().wait_for(|running| *running == 0).await;
    }

    /// Like [`idle`](Self::idle), but ignores so many slots of deliveries that wait only for the
    /// end of their session.
    pub(crate) async fn idle_but_for(&self, queue: QueueIndex, mut left: watch::Receiver<usize>) {
        let mut running = self.running[queue.position()].subscribe();
        while *running.borrow_and_update() > *left.borrow_and_update() {
            // An error would mean that the intake, or the queue's context, is gone.
            let _ = tokio::select! {
                changed = running.changed() => changed,
                changed = left.changed() => changed,
            };
        }
    }

    /// No delivery of the queue waits for a handler for longer than this from now on.
    pub(crate) fn limit_start(self: &Arc<Self>, queue: QueueIndex, limit: Duration) {
        self.change(|inbox, now| inbox.limit_start(queue, limit, now));
    }

    /// What the program wants of the queue from now on.
    pub(crate) fn set_flow(self: &Arc<Self>, queue: QueueIndex, flow: Flow) {
        self.change(|inbox, now| inbox.set_flow(queue, flow, now));
    }

    /// Returns whether the queue rests, once it does or is to flow again.
    pub(crate) fn rested(&self, queue: QueueIndex) -> impl Future<Output = bool> + Send + 'static {
        let mut rests = self.rests[queue.position()].subscribe();
        async move {
            // An error means that the service has ended.
            let rest = rests.wait_for(|rest| *rest != Rest::NotYet).await;
            rest.is_ok_and(|rest| *rest == Rest::Rests)
        }
    }

    /// How many handlers of the queue may run at a time from now on. Those that run go on. Returns
    /// true when no more run.
    pub(crate) fn set_concurrency(
        self: &Arc<Self>,
        queue: QueueIndex,
        handlers: u16,
    ) -> impl Future<Output = bool> + Send + use<> {
        self.change(|inbox, now| inbox.set_concurrency(queue, handlers, now));
        let mut running = self.running[queue.position()].subscribe();
        async move { running.wait_for(|running| *running <= usize::from(handlers)).await.is_ok() }
    }

    /// The most handlers of the queue that may be asked for.
    pub(crate) fn most_handlers(&self, queue: QueueIndex) -> u16 {
        lock(&self.inbox).most_handlers(queue)
    }

    /// When this guard is dropped, so are the handlers that are still running.
    pub(crate) fn abort_on_drop(&self) -> DropGuard {
        self.aborted.clone().drop_guard()
    }

    /// Changes the inbox, then starts the handlers that may start, unless the service is stopping.
    /// Then publishes what sessions and settlements need, and when to look next. Both depend only
    /// on the inbox and the time.
    fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut Inbox<Taken>, Instant) -> R) -> R {
        let now = clock::now();
        let mut inbox = lock(&self.inbox);
        let result = change(&mut inbox, now);
        let mut started = Vec::new();
        if !self.is_stopping() {
            while let Some((ticket, mut taken)) = inbox.start(now) {
                // Not after a wait in this process: the returns before its first attempt were told
                // then.
                if taken.chain.is_none() {
                    taken.unanswered = inbox.unanswered(&ticket);
                }
                started.push((ticket, taken));
            }
        }
        while let Some(queue) = inbox.next_changed() {
            let position = queue.position();
            set_if_changed(&self.takes[position], inbox.take(queue, now));
            set_if_changed(&self.settling_waits[position], inbox.is_ending(queue));
            set_if_changed(&self.late[position], inbox.late(queue, now));
            set_if_changed(&self.running[position], inbox.running(queue));
            set_if_changed(&self.rests[position], inbox.rest(queue));
        }
        let wake_at = inbox.wake_at(now);
        // A later time need not be set: it is found when the earlier one comes.
        self.next_look.send_if_modified(|look_at| {
            let is_sooner = wake_at.is_some_and(|at| look_at.is_none_or(|look_at| at < look_at));
            if is_sooner {
                *look_at = wake_at;
            }
            is_sooner
        });
        drop(inbox);
        let _runs_here = (!started.is_empty()).then(|| self.runtime.enter());
        for (ticket, taken) in started {
            let outlives_session = taken.context.line.lets_handlers_outlive_the_session();
            let aborted =
                if outlives_session { &self.aborted } else { &taken.session_ended }.clone();
            let slot = Slot { intake: self.clone(), ticket: Some(ticket), has_run: false };
            (self.spawn)(Box::new(taken), slot, aborted);
        }
        result
    }
}

fn set_if_changed<T: PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|present| {
        let is_other = *present != value;
        *present = value;
        is_other
    });
}

/// A handler's slot in the inbox. It is free again however the handler's task ends.
pub(crate) struct Slot {
    intake: Arc<Intake>,
    ticket: Option<Ticket>,
    has_run: bool,
}

impl Slot {
    /// Its task runs.
    pub(crate) fn mark_running(&mut self) {
        self.has_run = true;
    }

    /// The handler has ended, and its delivery is about to be settled in this way. Called once more
    /// if it is settled in another way, because no copy was accepted. Decides which handlers start
    /// next.
    pub(crate) fn handler_ended(&self, delivery: &Delivery, how: Settlement) {
        let Some(ticket) = &self.ticket else { return };
        // What waits in the queue comes again, too, but with no more in the broker's count.
        let is_counted = match how {
            Settlement::Requeue => Some(true),
            Settlement::Nack => Some(false),
            Settlement::Ack | Settlement::DeadLetter => None,
        };
        let comes_again = is_counted.map(|is_counted| (delivery.fingerprint(), is_counted));
        self.intake.change(|inbox, now| {
            inbox.handler_ended(ticket, now);
            if let Some((fingerprint, is_counted)) = comes_again {
                inbox.expect(ticket, fingerprint, is_counted);
            }
        });
    }

    /// The delivery is held until its next attempt. A stopping service makes no further attempts:
    /// [`Intake::empty`] takes out what is held by then, and a delivery whose handler ends later is
    /// handed back here.
    pub(crate) fn hold(mut self, taken: Box<Taken>, due: Instant) {
        let Some(ticket) = self.ticket.take() else { return };
        if let Some((ticket, taken)) =
            self.intake.change(|inbox, now| inbox.hold(ticket, *taken, due, now))
        {
            hand_back_last(&taken);
            // Frees the slot, and not earlier: the end of the session waits for free slots, and the
            // delivery has to be handed back by then.
            self.ticket = Some(ticket);
        }
    }
}

/// Hands back a delivery whose handler ended while the service was stopping.
fn hand_back_last(taken: &Taken) {
    let goes_back = match taken.context.line.allows_single_return() {
        true => taken.hand_back(),
        false => !taken.session_ended.is_cancelled(),
    };
    if goes_back {
        taken.context.summary.update(|summary| summary.handed_back += 1);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(
                "rehop itself panicked while handling a message, which stays unacked; please report this"
            );
        }
        if !self.has_run {
            // The runtime has ended. It would drop the next handler at once, too, which would start
            // the one after that, and so on.
            self.intake.has_lost_runtime.store(true, Ordering::Relaxed);
        }
        if let Some(ticket) = self.ticket.take() {
            self.intake.change(|inbox, now| inbox.finish(ticket, now));
        }
    }
}
