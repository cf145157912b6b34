//! What a scenario allows: the conditions of the promises.

use std::time::Duration;

use rehop::settings::{Order, WaitStrategy};
use rehop_simulator::Version;

use super::{Checker, TOLERANCE};
use crate::network::Conditions;
use crate::run::RunOutcome;
use crate::scenario::{
    AffectedQueues, AttemptEnd, Fault, FaultKind, LONG_TIMEOUT, Limit, MessagePlan, QueuePlan,
    Scenario,
};

/// How far away the broker may be for a message that kills to be parked alone.
const NEAR: Duration = Duration::from_millis(3);

/// How long a delivery may take from its queue to its channel for the same.
const PROMPT: Duration = Duration::from_millis(1);

/// An ack timeout within which the lines of drawn worlds end.
const LONG_ENOUGH_FOR_LINES: Duration = Duration::from_secs(600);

impl Checker<'_> {
    /// Whether nothing breaks that could make a second message of this one.
    pub(super) fn is_undisturbed(&self, message: usize) -> bool {
        let is_single = !self.unconfirmed.contains_key(&message);
        let replays = &self.scenario.replays;
        let is_undisturbed = self.scenario.faults.is_empty()
            && replays.iter().all(|replay| replay.disturbed.is_none());
        is_undisturbed && self.kills == 0 && is_single && !self.is_taken_back()
    }

    /// Whether nothing breaks but other queues than this message's, which accept nothing and do not
    /// share its wait queues.
    pub(super) fn is_beside_full_queues(&self, message: usize) -> bool {
        let (queues, own) = (&self.scenario.queues, self.queue_of(message));
        let is_beside = |fault: &Fault| match fault.kind {
            FaultKind::Full { queues: AffectedQueues::Work(full), .. }
            | FaultKind::SilentLeader { queues: AffectedQueues::Work(full), .. } => {
                let full = &queues[full];
                full.name != own.name && (full.has_own_wait_queues() || own.has_own_wait_queues())
            }
            _ => false,
        };
        let faults = &self.scenario.faults;
        !faults.is_empty() && faults.iter().all(is_beside) && self.kills == 0
    }

    /// Whether no attempt at this message kills its process.
    pub(super) fn is_innocent(&self, message: usize) -> bool {
        let attempts = &self.scenario.messages[message].attempts;
        attempts.iter().all(|attempt| attempt.ends != AttemptEnd::Kills)
    }

    /// Whether the message fails in a queue in which the deaths of its process use up attempts that
    /// do not come again.
    pub(super) fn may_use_up_attempts(&self, message: usize) -> bool {
        let fails = self.scenario.messages[message]
            .attempts
            .iter()
            .any(|attempt| attempt.ends != AttemptEnd::Succeeds);
        fails && self.queue_of(message).strategy == WaitStrategy::Native
    }

    /// Whether the message has failed as often as its policy allows. Each death of its process uses
    /// up an immediate attempt, so that all it is sure of is one attempt before each wait and one
    /// after the last. Its last attempt failed, all its waits are over, and since the last one it
    /// came back as often as it may be tried again at once: so its policy has parked it, and not the
    /// broker's limit.
    pub(super) fn has_used_up_attempts(&self, message: usize) -> bool {
        let queue = self.queue_of(message);
        let endings = self.endings.get(&message);
        if endings.and_then(|endings| endings.last()) != Some(&AttemptEnd::Requeues) {
            return false;
        }
        // Attempts count on after a wait. The first one that may not be tried again at once waits,
        // and later ones of the same round are of a duplicate.
        let mut before = 0;
        let mut last = None;
        for round in 0..=u32::try_from(queue.delays.len()).unwrap_or(u32::MAX) {
            let attempts = self.attempts.values();
            let of_round = attempts.filter(|it| it.message == message && it.waits == round);
            let numbers = of_round.map(|attempt| attempt.number);
            last = numbers.filter(|it| it.saturating_sub(before) > queue.immediate).min();
            before = last.unwrap_or(before);
        }
        last.is_some()
    }

    /// Whether one that kills comes before this message in its line of an ordered queue that holds
    /// several.
    pub(super) fn is_behind_poison(&self, message: usize) -> bool {
        let plan = &self.scenario.messages[message];
        let is_of_line = |other: &usize| {
            let other = &self.scenario.messages[*other];
            other.queue == plan.queue && other.key == plan.key
        };
        // What is published at nearly the same time may change places.
        let is_before = |other: &usize| self.scenario.messages[*other].at <= plan.at + TOLERANCE;
        let mut before = (0..self.scenario.messages.len()).filter(is_of_line).filter(is_before);
        self.queue_of(message).order == Order::RoutingKey
            && before.any(|other| !self.is_innocent(other))
    }

    /// Whether the broker may delete the message above its delivery limit, which it would
    /// dead-letter if it could.
    pub(super) fn may_be_deleted(&self, message: usize) -> bool {
        let queue = self.queue_of(message);
        queue.is_existing && (!self.is_innocent(message) || self.is_behind_poison(message))
    }

    /// Whether 4.3, which may refuse copies of others, has no reason to park this message.
    pub(super) fn is_never_late(&self, message: usize) -> bool {
        let (plan, queue) = (&self.scenario.messages[message], self.queue_of(message));
        let is_quick = plan.attempts.iter().all(|attempt| {
            attempt.ends == AttemptEnd::Succeeds
                && attempt.runs < self.scenario.enforced_timeout / 2
        });
        let goes_back = !matches!(queue.strategy, WaitStrategy::InProcess | WaitStrategy::Native);
        let refuses = |fault: &Fault| {
            matches!(fault.kind, FaultKind::NoCopies { .. } | FaultKind::Full { .. })
        };
        let is_undisturbed = self.kills == 0 && self.scenario.faults.iter().all(refuses);
        let is_alone = self.scenario.version == Version::V4_3 && is_undisturbed;
        is_quick
            && goes_back
            && is_alone
            && plan.deadline.is_none()
            && !self.unconfirmed.contains_key(&message)
    }

    /// Whether an ordered queue may hold a line for longer than the broker's ack timeout. Then it
    /// gives back all that it holds, which is counted. So is what waits too long for its first
    /// handler in a queue in which the broker lets messages wait.
    pub(super) fn may_give_back(&self, message: usize) -> bool {
        let queue = self.queue_of(message);
        let is_counted = queue.order.is_kept() || queue.strategy == WaitStrategy::Native;
        is_counted && self.scenario.consumer_timeout < LONG_ENOUGH_FOR_LINES
    }

    /// Whether the broker takes messages back sooner than the settings say. Then their handlers run
    /// on, and others run beside them. 4.3 obeys its consumers, but what was asked for singly has
    /// the broker's timeout.
    pub(super) fn is_taken_back(&self) -> bool {
        let Scenario { version, consumer_timeout, enforced_timeout, .. } = self.scenario;
        enforced_timeout < consumer_timeout
            && (*version < Version::V4_3 || *consumer_timeout < LONG_TIMEOUT)
    }

    /// Whether nothing breaks but processes, within the limits in which a message that kills is
    /// parked alone.
    pub(super) fn is_of_poison(&self) -> bool {
        let Scenario { faults, conditions, queues, messages, .. } = self.scenario;
        let is_near = is_near(conditions);
        let processes = u32::try_from(self.scenario.processes).unwrap_or(u32::MAX);
        let is_within = |queue: &QueuePlan| {
            queue.delivery_limit >= 5
                && queue.immediate + processes.max(3) <= queue.delivery_limit
                && (queue.strategy != WaitStrategy::InProcess
                    || queue.order.is_kept() && queue.delivery_limit >= 6)
        };
        let is_ordered = queues.iter().any(|queue| queue.order.is_kept());
        let kills = (0..messages.len()).filter(|message| !self.is_innocent(*message)).count();
        let is_alone = !is_ordered || queues.len() == 1 && kills <= 1;
        // Others succeed in the end, after no more attempts at once than they have.
        let is_planned = |message: &MessagePlan| {
            let immediate = queues[message.queue].immediate as usize;
            message.attempts.iter().all(|attempt| match attempt.ends {
                AttemptEnd::Kills => attempt.runs <= Duration::from_secs(2),
                AttemptEnd::Requeues => !is_ordered && message.attempts.len() <= immediate + 1,
                ends => ends == AttemptEnd::Succeeds,
            })
        };
        let is_kill = |fault: &Fault| matches!(fault.kind, FaultKind::Kill { .. });
        let is_killed_once = faults.len() <= 1 && faults.iter().all(is_kill);
        let is_planned = messages.iter().all(is_planned) && queues.iter().all(is_within);
        is_killed_once && is_near && is_alone && is_planned && !self.is_taken_back()
    }

    /// How many duplicates of a message the faults can explain: each may have taken an ack or a
    /// confirm with it. The broker may take a message back while its handler runs.
    pub(super) fn disruptions(&self, outcome: &RunOutcome) -> usize {
        let ack_timeout = self.scenario.consumer_timeout;
        let explained = self.scenario.faults.iter().map(|fault| match fault.kind {
            // The copy was refused, so there is none. But one that is sent when that ends may be
            // given up before its confirm comes.
            FaultKind::NoCopies { lasts }
            | FaultKind::Full { lasts, .. }
            | FaultKind::NoBodies { lasts } => usize::from(lasts >= ack_timeout / 2),
            // A copy may be stored although its confirm did not come in time, each time that the
            // message comes again.
            FaultKind::SilentLeader { lasts, .. } => {
                1 + (lasts.as_secs() / (ack_timeout.as_secs() / 3)) as usize
            }
            // The same if the broker takes the message back during the alarm: a new connection
            // sends one copy before it hears of the alarm.
            FaultKind::Alarm { lasts } => 1 + (lasts.as_secs() / ack_timeout.as_secs()) as usize,
            // The first consumer that is one too many ends the connection of each process, also of
            // those that take the place of others.
            FaultKind::Limit { limit: Limit::ChannelConsumers, .. } => {
                self.scenario.processes + self.kills + self.scenario.faults.len()
            }
            // Nothing that exists ends, unless another process takes the last channel at the same
            // moment.
            FaultKind::Limit { limit: Limit::UserChannels | Limit::NodeChannels, .. } => {
                usize::from(self.scenario.processes > 1 || self.kills > 0)
            }
            // The client knows how many channels a connection may have.
            FaultKind::Limit {
                limit:
                    Limit::UserConnections
                    | Limit::VhostConnections
                    | Limit::NodeConnections
                    | Limit::ConnectionChannels(_)
                    | Limit::VhostQueues,
                ..
            }
            | FaultKind::Pause { .. }
            | FaultKind::Concurrency { .. } => 0,
            _ => 1,
        });
        let disturbed = self.scenario.replays.iter().filter(|replay| replay.disturbed.is_some());
        let taken_back = if self.is_taken_back() { outcome.timeouts.len() } else { 0 };
        explained.sum::<usize>() + self.kills + disturbed.count() + taken_back
    }

    /// Whether the broker counts nothing but attempts, if nothing breaks.
    pub(super) fn counts_exactly(&self) -> bool {
        self.scenario.version == Version::V4_3 && self.scenario.queues.len() == 1
    }
}

/// Whether the broker is near, delivers promptly, and applies at once what it reads.
fn is_near(conditions: &Conditions) -> bool {
    let Conditions { latency, delivery_lag, .. } = *conditions;
    let (latency, delivery_lag) = (latency.min(NEAR), delivery_lag.min(PROMPT));
    *conditions == Conditions { latency, delivery_lag, ..Conditions::default() }
}
