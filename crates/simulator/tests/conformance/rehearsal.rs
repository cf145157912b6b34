//! Tells which scripts a real broker can be compared on.
//!
//! A real broker takes its time for each step, its timers are late by a few milliseconds, and its
//! queues run beside each other. So a script whose outcome depends on which of two timers or of two
//! queues comes first proves nothing. The simulator plays each script several times, with steps of
//! other lengths, with the times of each queue a little longer or shorter, and with some queues
//! held up in each step. Only if it sees the same each time is the script any use.

use std::collections::BTreeMap;
use std::time::Duration;

use rehop_simulator::{QueueView, Turnover, Version};

use crate::client::Subscribed;
use crate::lockstep::{SOON, epilogue};
use crate::naming::Naming;
use crate::random::Random;
use crate::script::{Index, Script, Step};
use crate::seen::{Saw, Seen, Stream};
use crate::simulated::Simulated;

const PLAYS: u64 = 8;
/// How long a step takes at most, in a script's milliseconds.
const STEP: u64 = 4;
const STEPS_BEFORE_TIME_PASSES: usize = 6;

/// Whether the outcome of a script depends on nothing but the script.
pub(crate) fn is_certain(script: &Script, version: Version) -> bool {
    let Some(first) = play(script, version, Pace::Prompt, None) else {
        return false;
    };
    let mut random = Random::new(1);
    let mut late =
        (0..script.queues()).flat_map(|queue| [0, 1].map(|turn| Pace::Late { queue, turn }));
    late.all(|pace| play(script, version, pace, Some(&first)).is_some())
        && (1..PLAYS)
            .all(|_| play(script, version, Pace::Varied(&mut random), Some(&first)).is_some())
}

/// What the simulator does at which time.
enum Pace<'a> {
    Prompt,
    /// Steps take their time, which is longer for some queues.
    Varied(&'a mut Random),
    /// In each second step a queue does nothing before the next one, if nobody can see that. So it
    /// is with a settlement, which has no answer: the broker has read it, but its queue may not
    /// have carried it out.
    Late {
        queue: Index,
        turn: usize,
    },
}

/// The script without the steps that do nothing, such as to settle what nobody holds. And time
/// passes before a slow broker has to do many steps while something is due soon.
pub(crate) fn to_the_point(script: Script, version: Version) -> Script {
    let mut simulated = Simulated::new(version, Naming::new("rehearsal.".to_owned(), 100));
    open(&script.topology, &mut simulated, Duration::ZERO);
    simulated.perform(&script.topology, Duration::ZERO);
    let (mut now, mut steps, mut since) = (Duration::ZERO, Vec::new(), 0);
    for step in script.steps {
        since = if simulated.can(&Step::PassTime) { since + 1 } else { 0 };
        let step = if since > STEPS_BEFORE_TIME_PASSES { Step::PassTime } else { step };
        if !simulated.can(&step) {
            continue;
        }
        if step == Step::PassTime {
            now = simulated.next_timer().unwrap().max(now);
            simulated.pass_time(now);
            since = 0;
        } else {
            open(std::slice::from_ref(&step), &mut simulated, now);
            simulated.perform(std::slice::from_ref(&step), now);
        }
        steps.push(step);
    }
    Script { topology: script.topology, steps }
}

fn open(steps: &[Step], simulated: &mut Simulated, now: Duration) {
    if let Some(channel) =
        steps.first().and_then(Step::needs).filter(|channel| !simulated.has(*channel))
    {
        simulated.perform(&[Step::OpenChannel { channel }], now);
    }
}

/// Plays a script, and tells what was seen in each step. Ends at once if a step leaves something to
/// chance, or if something else is seen than in the first play.
fn play(
    script: &Script,
    version: Version,
    mut pace: Pace<'_>,
    first: Option<&[Seen]>,
) -> Option<Vec<Seen>> {
    let naming = Naming::new("rehearsal.".to_owned(), 100).with_queue_stretch(match &mut pace {
        Pace::Varied(random) => (0..script.queues()).map(|_| 85 + random.next() % 31).collect(),
        Pace::Prompt | Pace::Late { .. } => Vec::new(),
    });
    let simulated = Simulated::new(version, naming);
    let mut play =
        Play { simulated, pace, first, now: Duration::ZERO, sleeping: None, seen: Vec::new() };
    play.step(&script.topology)?;
    for step in script.steps.iter().chain(&epilogue()) {
        play.step(std::slice::from_ref(step))?;
    }
    for step in play.simulated.drain() {
        play.step(&[step])?;
    }
    Some(play.seen)
}

struct Play<'a> {
    simulated: Simulated,
    pace: Pace<'a>,
    first: Option<&'a [Seen]>,
    now: Duration,
    /// The queue that does nothing before the next step.
    sleeping: Option<Index>,
    seen: Vec<Seen>,
}

/// What each queue holds, and what has passed through it.
type Views = BTreeMap<Index, (QueueView, Turnover)>;

impl Play<'_> {
    fn step(&mut self, steps: &[Step]) -> Option<()> {
        open(steps, &mut self.simulated, self.now);
        let (views, subscribed) = (self.simulated.views(), self.simulated.subscribed());
        let before = self.simulated.snapshot_without(self.sleeping);
        let waking = self.sleeping.take();
        if steps == [Step::PassTime] {
            waking.into_iter().for_each(|queue| self.simulated.wake(queue));
            self.pass_time();
        } else {
            self.hold_up(waking);
            self.simulated.perform(steps, self.now);
            waking.into_iter().for_each(|queue| self.simulated.wake(queue));
        }
        let expected = self.first.map(|first| &first[self.seen.len()]);
        if let (Some(queue), Some(expected)) = (self.sleeping, expected) {
            let without = self.simulated.snapshot_without(self.sleeping);
            if is_same_without(queue, &without, expected, self.seen.last()) {
                self.seen.push(expected.clone());
                self.simulated.forget();
                return Some(());
            }
            self.simulated.wake(queue);
            self.sleeping = None;
        }
        let after = self.simulated.views();
        let is_left_to_chance = is_mixed(steps, &views, &after)
            || arrives_unseen(&views, &after)
            || ends_unseen(&subscribed, &before, &mut self.simulated)
            || is_cut_short(steps, &self.simulated);
        if let Pace::Varied(random) = &mut self.pace {
            self.now += Duration::from_micros(random.next() % (STEP * 1000));
        }
        let seen = self.simulated.snapshot();
        let is_other = expected.is_some_and(|expected| *expected != seen);
        self.seen.push(seen);
        self.simulated.forget();
        (!is_left_to_chance && !is_other).then_some(())
    }

    fn pass_time(&mut self) {
        let soon = self.now + Duration::from_millis(SOON.into());
        let mut next = self.simulated.next_timer().filter(|due| *due <= soon);
        if let (Some(due), Pace::Varied(random)) = (next, &mut self.pace) {
            self.simulated.hold_up_queues(due, random);
        }
        while let Some(due) = next {
            self.simulated.pass_time(due);
            self.now = due;
            // What is due right after it comes with it on a slow machine, and alone on a fast one.
            next = self
                .simulated
                .next_timer()
                .filter(|next| *next <= due + Duration::from_millis(STEP));
        }
    }

    fn hold_up(&mut self, waking: Option<Index>) {
        match &mut self.pace {
            Pace::Varied(random) => self.simulated.hold_up_queues(self.now, random),
            Pace::Late { queue, turn } if waking.is_none() && self.seen.len() % 2 == *turn => {
                self.simulated.put_to_sleep(*queue);
                self.sleeping = Some(*queue);
            }
            Pace::Late { .. } | Pace::Prompt => {}
        }
    }
}

/// Whether a publisher's channel was closed between two of its messages: then it may or may not see
/// what became of the first one.
fn is_cut_short(steps: &[Step], simulated: &Simulated) -> bool {
    let is_burst =
        steps.len() > 1 || matches!(steps, [Step::Publish { messages, .. }] if messages.len() > 1);
    is_burst && simulated.has_seen(|saw| matches!(saw, Saw::Closed { .. }))
}

/// Whether nothing shows that a queue does nothing.
fn is_same_without(queue: Index, without: &Seen, expected: &Seen, before: Option<&Seen>) -> bool {
    let stream = Stream::Queue(queue);
    let is_same_for_others = expected.iter().filter(|(other, _)| **other != stream).eq(without);
    is_same_for_others && before.is_some_and(|before| before.get(&stream) == expected.get(&stream))
}

/// Whether a queue got a dead letter and gave a message up, or refused it: then it may hold as many
/// as before, and nobody sees that the dead letter has come. What a client does next may come
/// before it.
fn arrives_unseen(before: &Views, after: &Views) -> bool {
    after.iter().any(|(queue, (_, after))| {
        let before = before.get(queue).map(|(_, before)| *before).unwrap_or_default();
        after.dead_letters > before.dead_letters && after.dropped > before.dropped
    })
}

/// Whether a channel ended, and nobody can see at one of its queues that the queue knows. The
/// broker says that a channel is closed just before its process ends, so the next step may come
/// first. Only a queue with a single active consumer shows nothing: neither the end of one that
/// waits, nor that of the active one if another takes its place and gets nothing.
fn ends_unseen(subscribed: &Subscribed, before: &Seen, simulated: &mut Simulated) -> bool {
    let (after, still) = (simulated.snapshot(), simulated.subscribed());
    let ended = subscribed.iter().filter(|((channel, _), _)| !simulated.has(*channel));
    let mut queues = ended.map(|(_, queue)| *queue);
    queues.any(|queue| {
        let mut others = still.iter().filter(|(_, other)| **other == queue);
        let is_passed_on = others.any(|((channel, tag), _)| {
            after.contains_key(&Stream::Subscription(*channel, tag.clone()))
        });
        !is_passed_on && before.get(&Stream::Queue(queue)) == after.get(&Stream::Queue(queue))
    })
}

/// Whether a queue got messages in two ways at once, from a publisher and as the dead letters of
/// another queue: their order is chance.
fn is_mixed(steps: &[Step], before: &Views, after: &Views) -> bool {
    let [Step::Publish { messages, .. }] = steps else {
        return false;
    };
    let is_published =
        |id: &String| messages.iter().any(|message| message.number.to_string() == *id);
    after.iter().any(|(queue, after)| {
        let mut old = contents(before.get(queue));
        let mut new = contents(Some(after));
        new.retain(|id| match old.iter().position(|other| other == id) {
            Some(at) => {
                old.swap_remove(at);
                false
            }
            None => true,
        });
        let is_twice = |id: &String| new.iter().filter(|other| *other == id).count() > 1;
        new.iter().any(is_published) && new.iter().any(|id| !is_published(id) || is_twice(id))
    })
}

fn contents(view: Option<&(QueueView, Turnover)>) -> Vec<String> {
    view.map(|(view, _)| [&*view.ready, &view.unacked, &view.delayed].concat()).unwrap_or_default()
}
