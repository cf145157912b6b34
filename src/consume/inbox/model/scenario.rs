//! What happens in a world, drawn from a seed. Times are in milliseconds.

use std::time::{Duration, Instant};

use super::super::Rules;
use super::Delivery;
use super::draws::Draws;
use super::taken::Taken;
use crate::consume::ack_timeout::can_be_held;
use crate::retry::decision::Reason;
use crate::retry::outcome::Outcome;
use crate::settings::Declare;

/// What scenarios are drawn from: numbers up to these.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Range {
    pub(in super::super) processes: u64,
    pub(in super::super) queues: u64,
    pub(in super::super) messages: u64,
    pub(in super::super) poisons: u64,
    /// How long everything may take between a process and the broker, each way, in ms.
    pub(in super::super) lags: &'static [u64],
    /// Whether messages may wait in their process between two attempts.
    pub(in super::super) waits: bool,
    /// Whether queues may be ordered, by a few keys or as a whole. Their messages wait in their process.
    pub(in super::super) ordered: bool,
    /// The broker's ack timeout, in ms, as the settings say. Handlers take up to half of it.
    pub(in super::super) ack_timeout: u64,
    /// The broker's own one, if it is shorter.
    pub(in super::super) enforced: Option<Enforced>,
    /// How long the broker may refuse copies, in ms; some messages end with one then. Empty: no message does.
    pub(in super::super) refusals: &'static [u64],
    /// Whether some messages end with a copy that the broker never accepts.
    pub(in super::super) unpublishable: bool,
    /// One queue in so many is an existing one, which rehop does not declare.
    pub(in super::super) one_existing_in: u64,
    pub(in super::super) delivery_limit: (u64, u64),
    /// How far `immediate` stays below the limit.
    pub(in super::super) spare: u64,
    /// How often a channel or a connection is lost.
    pub(in super::super) losses: u64,
}

impl Range {
    /// The range for which the inbox promises that no innocent is parked.
    pub(in super::super) const PROMISED: Self = Self {
        processes: 6,
        queues: 3,
        messages: 400,
        poisons: 10,
        lags: &[0, 1, 1, 3, 3],
        waits: false,
        ordered: false,
        ack_timeout: 2 * 3_600_000,
        enforced: None,
        refusals: &[],
        unpublishable: false,
        one_existing_in: 3,
        delivery_limit: (5, 12),
        spare: 3,
        losses: 0,
    };
}

/// A broker's ack timeout. Handlers take a quarter of it at most, but for those that hang.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Enforced {
    timeout: u64,
    /// How long it is from one look at the channels to the next.
    looks_every: u64,
    pub(super) how: TakesBack,
}

/// What the broker takes back if a delivery is not settled in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakesBack {
    /// All that its channel holds, counted, because it closes the channel (3.10 and 4.0).
    WithTheChannel,
    /// Only this delivery, uncounted (4.3).
    Alone,
}

impl Enforced {
    pub(in super::super) fn by_closing_channels(timeout: u64, looks_every: u64) -> Self {
        Self { timeout, looks_every, how: TakesBack::WithTheChannel }
    }

    pub(in super::super) fn by_cancelling(timeout: u64) -> Self {
        Self { timeout, looks_every: 1, how: TakesBack::Alone }
    }

    /// How long it is until the broker acts on a delivery of now.
    pub(super) fn acts_after(self, now: u64) -> u64 {
        (now + self.timeout).next_multiple_of(self.looks_every) - now
    }

    /// The longest that a handler takes if it does not hang.
    fn longest_handler(self) -> u64 {
        self.timeout / 4
    }

    /// What 3.10 and 4.0 say when they close a channel.
    pub(super) fn text(self) -> String {
        format!(
            "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: {} ms.",
            self.timeout
        )
    }
}

#[derive(Debug)]
pub(in super::super) struct Scenario {
    pub(super) rules: Vec<Rules>,
    /// Who has declared each queue.
    pub(super) declares: Vec<Declare>,
    /// The broker's ack timeout, as the settings say.
    pub(super) ack_timeout: u64,
    /// The broker's own one, if it is shorter.
    pub(super) enforced: Option<Enforced>,
    /// How long each queue's messages wait in their process after the immediate attempts. `None`: its handlers requeue.
    pub(super) waits: Vec<Option<u64>>,
    pub(super) messages: Vec<Message>,
    /// When each process starts first.
    pub(super) starts: Vec<u64>,
    /// How long a dead process stays away, at least and at most.
    pub(super) restart: (u64, u64),
    /// How long everything takes between a process and the broker, each way.
    pub(super) lag: u64,
    /// How long a process takes to look at what has happened: it sees what arrives meanwhile all at once.
    pub(super) thinks_for: u64,
    /// How long the broker takes to agree on the end of a subscription. What it delivers meanwhile goes back.
    pub(super) agrees_for: u64,
    /// How long a process collects what it settles before it tells the broker. It may die meanwhile.
    pub(super) collects_for: u64,
    pub(super) returns_in_old_order: bool,
    pub(super) acks_are_lost: bool,
    /// Whether the broker counts what comes back with a lost channel of a process that lives on. It does not if a node dies.
    pub(super) losses_count: bool,
    /// Whether the broker counts what a process hands back. It does on 3.10 and 4.0.
    pub(super) hand_backs_count: bool,
    /// Whether it counts what was on its way to a subscription that ended. It does on 3.10 and 4.0, and on 4.3 now and then.
    pub(super) unsent_count: bool,
    /// When a process is killed from outside; no message is to blame.
    pub(super) kills: Vec<(u64, usize)>,
    pub(super) losses: Vec<Loss>,
    /// From when until when the broker refuses copies.
    pub(super) refusal: (u64, u64),
}

/// A channel breaks, and its process lives on.
#[derive(Debug)]
pub(super) struct Loss {
    pub(super) at: u64,
    pub(super) process: usize,
    /// `None`: the connection breaks, and with it the channels of all queues.
    pub(super) queue: Option<usize>,
    /// How long it takes until the broker notices, and delivers again what the channel held.
    pub(super) broker_notices: u64,
    /// How long it takes until the process notices. Until then it settles in vain.
    pub(super) process_notices: u64,
    /// How long it is from then until the process has another channel.
    pub(super) pause: u64,
}

/// What becomes of a delivery when its handler has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Ack,
    Requeue,
    /// It waits in its process for this long.
    Hold(u64),
    /// It is acked when the broker has confirmed its copy.
    Copy,
}

#[derive(Debug)]
pub(super) struct Message {
    pub(super) queue: usize,
    /// In an ordered queue, messages with the same key stay in order.
    pub(super) key: u64,
    pub(super) published_at: u64,
    /// Poison: its handler kills the process after this time. In a queue whose messages wait in their process, it fails first as often as
    /// `failures` says.
    pub(super) kills_after: Option<u64>,
    pub(super) takes: u64,
    /// Whether the handler of its first delivery takes longer than the broker's ack timeout.
    pub(super) hangs: bool,
    /// How often its handler fails.
    pub(super) failures: u32,
    /// Whether its handler then fails for good, so that it ends with a copy.
    pub(super) is_copied: bool,
    /// Whether the broker never accepts that copy.
    pub(super) is_unpublishable: bool,
    /// Handed back by an earlier process on 3.10 or 4.0, which count that.
    pub(super) came_back_before: u32,
}

impl Scenario {
    pub(in super::super) fn draw(seed: u64, range: Range) -> Self {
        let draws = &mut Draws::new(seed);
        let processes = draws.within(1, range.processes);
        let rules: Vec<_> = (0..draws.within(1, range.queues)).map(|_| rules(draws, range)).collect();
        let typical: Vec<_> = rules.iter().map(|_| draws.pick(&[1, 5, 20, 100, 1000])).collect();
        let waits: Vec<_> =
            rules.iter().map(|_| draws.pick(&[None, None, Some(0), Some(100), Some(3000), Some(20_000)])).collect();
        let wait = |(wait, rules): (Option<u64>, &Rules)| match rules.is_ordered {
            true => wait.or(Some(100)),
            false => wait.filter(|_| range.waits),
        };
        let waits = waits.into_iter().zip(&rules).map(wait).collect();
        let mut messages = messages(draws, range, &rules, &typical);
        poison(draws, range, &mut messages, &typical);
        let together = draws.one_in(2);
        let killed = if draws.one_in(3) { draws.index(2) } else { 0 };
        let mut scenario = Self {
            ack_timeout: range.ack_timeout,
            enforced: None,
            unsent_count: true,
            starts: (0..processes).map(|_| if together { 0 } else { draws.below(2000) }).collect(),
            restart: draws.pick(&[(0, 0), (0, 100), (100, 100), (0, 3000), (1000, 30_000)]),
            lag: draws.pick(range.lags),
            thinks_for: draws.pick(&[0, 0, 1]),
            agrees_for: draws.pick(&[0, 2, 2, 20]),
            collects_for: draws.pick(&[0, 0, 1, 5]),
            returns_in_old_order: draws.one_in(2),
            acks_are_lost: draws.one_in(2),
            losses_count: !draws.one_in(3),
            hand_backs_count: draws.one_in(2),
            kills: (0..killed).map(|_| (draws.below(5000), draws.below(processes) as usize)).collect(),
            losses: losses(draws, range, processes, rules.len()),
            refusal: (0, 0),
            declares: vec![Declare::Own; rules.len()],
            waits,
            rules,
            messages,
        };
        if let Some(enforced) = range.enforced {
            let one_hanging_in = draws.pick(&[None, Some(50), Some(10)]);
            for message in &mut scenario.messages {
                message.hangs = one_hanging_in.is_some_and(|of| draws.one_in(of));
            }
            scenario = scenario.with(enforced);
        }
        if !range.refusals.is_empty() {
            let (from, one_copied_in) = (draws.pick(&[0, 0, 1_000]), draws.pick(&[3, 10, 50]));
            scenario.refusal = (from, from + draws.pick(range.refusals));
            for message in &mut scenario.messages {
                message.is_copied = draws.one_in(one_copied_in);
            }
            // Processes give their own channels up, which each version counts.
            scenario.losses_count = true;
        }
        if range.unpublishable {
            let one_unpublishable_in = draws.pick(&[10, 50]);
            for message in &mut scenario.messages {
                message.is_unpublishable = draws.one_in(one_unpublishable_in);
                message.is_copied |= message.is_unpublishable;
            }
            scenario.losses_count = true;
        }
        for declare in &mut scenario.declares {
            *declare = if draws.one_in(range.one_existing_in) { Declare::Existing } else { Declare::Own };
        }
        scenario
    }

    /// The same world with a broker that has this ack timeout, and counts as its version does.
    pub(in super::super) fn with(self, enforced: Enforced) -> Self {
        let counts = enforced.how == TakesBack::WithTheChannel;
        Self { enforced: Some(enforced), losses_count: true, hand_backs_count: counts, unsent_count: counts, ..self }
    }

    /// The same world with a broker that does not count what is given back unseen or what was on its way, as 4.3 does not.
    pub(in super::super) fn on_4_3(self) -> Self {
        Self { hand_backs_count: false, unsent_count: false, ..self }
    }

    /// The same world in which no process is killed from outside.
    pub(in super::super) fn without_kills(self) -> Self {
        Self { kills: Vec::new(), ..self }
    }

    /// The same world with existing queues, this ack timeout, and a broker that refuses copies until this time. One message in so many ends
    /// with a copy.
    pub(in super::super) fn existing_and_refusing(
        mut self,
        ack_timeout: u64,
        until: u64,
        one_copied_in: usize,
    ) -> Self {
        self.declares.fill(Declare::Existing);
        for (index, message) in self.messages.iter_mut().enumerate() {
            message.is_copied = index.is_multiple_of(one_copied_in);
        }
        Self { ack_timeout, refusal: (0, until), ..self }
    }

    /// The same world with messages that are published one by one, with this pause between them.
    pub(in super::super) fn published_every(mut self, pause: u64) -> Self {
        for (index, message) in (0u64..).zip(&mut self.messages) {
            message.published_at = index * pause;
        }
        self
    }

    /// Whether this message ends with a copy.
    pub(in super::super) fn is_copied(&self, message: usize) -> bool {
        self.messages[message].is_copied
    }

    /// Whether this message is in an ordered queue.
    pub(in super::super) fn is_ordered(&self, message: usize) -> bool {
        self.rules[self.messages[message].queue].is_ordered
    }

    /// The same world with handlers that take this long.
    pub(in super::super) fn taking(mut self, takes: u64) -> Self {
        self.messages.iter_mut().for_each(|message| message.takes = takes);
        self
    }

    /// What becomes of this delivery when its handler ends.
    pub(super) fn verdict(&self, taken: &Taken) -> Verdict {
        let Delivery { channel, message, .. } = taken.delivery;
        let (queue, failures) = (channel.queue, self.messages[message].failures);
        let immediate = self.rules[queue].immediate;
        let end = if self.is_copied(message) { Verdict::Copy } else { Verdict::Ack };
        match self.waits[queue] {
            _ if taken.is_exhausted => Verdict::Copy,
            Some(_) if taken.failed >= failures => end,
            Some(_) if taken.count.saturating_add(taken.failed) < immediate => Verdict::Hold(0),
            Some(delay) => Verdict::Hold(delay),
            None if taken.count < failures.min(immediate) => Verdict::Requeue,
            None => end,
        }
    }

    /// What the copy of this message is for: to be parked, or to wait. A copy that waits does not come back to this world.
    pub(super) fn copy_outcome(&self, taken: &Taken) -> Outcome {
        if taken.is_exhausted {
            Outcome::Park(Reason::Exhausted)
        } else if taken.delivery.message.is_multiple_of(2) {
            Outcome::Park(Reason::Permanent)
        } else {
            Outcome::Wait(Duration::from_secs(1))
        }
    }

    /// How long the confirm of a copy that is sent now takes. A refused copy is sent again until it is taken.
    pub(super) fn confirms_after(&self, now: u64) -> u64 {
        let ((from, until), arrives) = (self.refusal, now + self.lag);
        let taken = if (from..until).contains(&arrives) { until } else { arrives };
        taken + self.lag - now
    }

    /// Whether this attempt kills its process, and after which time.
    pub(super) fn kills_after(&self, taken: &Taken) -> Option<u64> {
        let fails = matches!(self.verdict(taken), Verdict::Hold(_));
        self.messages[taken.delivery.message].kills_after.filter(|_| !fails)
    }

    /// How long the handler of this delivery takes.
    pub(super) fn takes(&self, taken: &Taken) -> u64 {
        let message = &self.messages[taken.delivery.message];
        let hangs = self.enforced.filter(|_| message.hangs && taken.delivery.number == 1);
        hangs.map_or(message.takes, |enforced| 2 * enforced.timeout)
    }

    /// Whether a delivery can wait here until it is due, and its handler can still end in time.
    pub(super) fn can_be_held(&self, taken: &Taken, due: Instant) -> bool {
        let longest = self.enforced.map_or(self.ack_timeout / 2, Enforced::longest_handler);
        let ends = due + Duration::from_millis(longest);
        can_be_held(self.rules[taken.delivery.channel.queue].is_ordered, ends, taken.until)
    }

    /// Whether a delivery that cannot wait here may go back, by the rule of [`give_back`](crate::retry::decision::give_back).
    pub(super) fn may_go_back(&self, taken: &Taken) -> bool {
        taken.count < self.rules[taken.delivery.channel.queue].delivery_limit
    }

    /// One queue's messages of the same kind, with one poison, all there from the start. Their keys, this many, take turns.
    pub(in super::super) fn plain(
        processes: usize,
        rules: Rules,
        messages: usize,
        keys: usize,
        poison_at: usize,
    ) -> Self {
        let message = |index| Message {
            queue: 0,
            key: (index % keys) as u64,
            published_at: 0,
            kills_after: (index == poison_at).then_some(0),
            takes: 5,
            hangs: false,
            failures: 0,
            is_copied: false,
            is_unpublishable: false,
            came_back_before: 0,
        };
        Self {
            rules: vec![rules],
            declares: vec![Declare::Own],
            ack_timeout: Range::PROMISED.ack_timeout,
            enforced: None,
            messages: (0..messages).map(message).collect(),
            starts: vec![0; processes],
            restart: (0, 0),
            lag: 1,
            thinks_for: 0,
            agrees_for: 2,
            collects_for: 0,
            returns_in_old_order: true,
            acks_are_lost: false,
            losses_count: true,
            hand_backs_count: true,
            unsent_count: true,
            kills: Vec::new(),
            losses: Vec::new(),
            refusal: (0, 0),
            waits: vec![None],
        }
    }
}

fn rules(draws: &mut Draws, range: Range) -> Rules {
    let prefetch = if draws.one_in(2) { draws.within(1, 200) } else { draws.pick(&[1, 10, 100, 200]) };
    let (lowest, highest) = range.delivery_limit;
    let limit = draws.within(lowest, highest);
    let is_ordered = range.ordered && draws.one_in(2);
    let hold_limit = if is_ordered { range.ack_timeout - range.ack_timeout / 20 } else { range.ack_timeout / 2 };
    Rules {
        prefetch: prefetch as u16,
        concurrency: draws.within(1, prefetch.min(20)) as u16,
        delivery_limit: limit as u32,
        immediate: draws.within(0, limit - range.spare) as u32,
        hold_limit: Duration::from_millis(hold_limit),
        is_ordered,
    }
}

fn losses(draws: &mut Draws, range: Range, processes: u64, queues: usize) -> Vec<Loss> {
    let (number, within) = (draws.below(range.losses + 1), draws.pick(&[300, 5000, 30_000]));
    let loss = |_| {
        // A half-open connection is noticed on one side long before the other.
        let (soon, late) = (draws.pick(&[0, 1, 20]), draws.pick(&[0, 3, 500, 60_000]));
        let (broker_notices, process_notices) = if draws.one_in(2) { (soon, late) } else { (late, soon) };
        Loss {
            at: draws.below(within),
            process: draws.below(processes) as usize,
            queue: if draws.one_in(2) { None } else { Some(draws.index(queues)) },
            broker_notices,
            process_notices,
            pause: draws.pick(&[1, 50, 100, 2000]),
        }
    };
    (0..number).map(loss).collect()
}

/// All at once, at a steady rate, or after a pause that leaves every process idle with an open window.
fn messages(draws: &mut Draws, range: Range, rules: &[Rules], typical: &[u64]) -> Vec<Message> {
    let number = draws.within(50, range.messages);
    let one_slow_in = draws.pick(&[None, None, Some(10), Some(50)]);
    let one_failing_in = draws.pick(&[None, None, Some(5), Some(2)]);
    let handed_back = draws.pick(&[0, 0, 0, 20]);
    let keys = draws.pick(&[1, 2, 5, 50]);
    let longest = range.enforced.map_or(range.ack_timeout / 2, Enforced::longest_handler);
    let (arrival, before, pause) = (draws.below(4), draws.below(number), draws.within(0, 20_000));
    let published_at = |index| match arrival {
        0 => 0,
        1 => index * 3,
        2 if index < before => 0,
        2 => pause,
        _ if index < before => index * 2,
        _ => before * 2 + pause,
    };
    let mut message = |index| {
        let queue = draws.index(rules.len());
        let slow = if one_slow_in.is_some_and(|of| draws.one_in(of)) { 30 } else { 1 };
        let most = u64::from(rules[queue].immediate.max(1)) + 1;
        let takes = draws.within(typical[queue] / 2, typical[queue] * 2) * slow;
        Message {
            queue,
            key: draws.below(keys),
            published_at: published_at(index),
            kills_after: None,
            takes: takes.min(longest),
            hangs: false,
            failures: if one_failing_in.is_some_and(|of| draws.one_in(of)) { draws.within(1, most) as u32 } else { 0 },
            is_copied: false,
            is_unpublishable: false,
            came_back_before: u32::from(index < handed_back),
        }
    };
    (0..number).map(&mut message).collect()
}

/// Anywhere, or close together.
fn poison(draws: &mut Draws, range: Range, messages: &mut [Message], typical: &[u64]) {
    let poisons = draws.within(range.poisons.min(1), range.poisons);
    let (anywhere, near, spread) = (draws.one_in(3), draws.index(messages.len()), draws.within(poisons, 60) as usize);
    let same = draws.pick(&[0, 0, 1, 10, 500]);
    for _ in 0..poisons {
        let at = if anywhere { draws.index(messages.len()) } else { near + draws.index(spread) };
        let last = messages.len() - 1;
        let message = &mut messages[at.min(last)];
        message.kills_after = Some(if draws.one_in(2) { same } else { draws.within(0, typical[message.queue] * 2) });
    }
}
