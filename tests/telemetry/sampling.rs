//! What tail sampling keeps with the configuration that comes with rehop, by the rules of the
//! collector's `tail_sampling` processor (its `processor.go`, 0.140 and later, as in Jaeger 2.20).

use std::collections::{HashMap, VecDeque};

const CONFIGURATION: &str = include_str!("../../observability/jaeger/tail-sampling.yaml");

/// A number in the configuration, or the processor's default of 0.
fn configured(key: &str) -> usize {
    let lines = CONFIGURATION.lines().filter_map(|line| line.trim().strip_prefix(key));
    let value = lines.filter_map(|rest| rest.strip_prefix(": ")).next();
    value.map_or(0, |value| value.trim_end_matches('s').parse().unwrap())
}

/// Ids of traces, of which the most recent ones are remembered. A size of 0 remembers none.
struct Cache {
    size: usize,
    ids: VecDeque<u32>,
}

impl Cache {
    fn of(key: &str) -> Self {
        Self { size: configured(key), ids: VecDeque::new() }
    }

    fn get(&mut self, id: u32) -> bool {
        let Some(at) = self.ids.iter().position(|known| *known == id) else { return false };
        self.ids.remove(at);
        self.ids.push_back(id);
        true
    }

    fn put(&mut self, id: u32) {
        self.get(id);
        self.ids.retain(|known| *known != id);
        self.ids.push_back(id);
        while self.ids.len() > self.size {
            self.ids.pop_front();
        }
    }
}

/// A trace in memory.
struct Trace {
    since: usize,
    /// Whether each span failed, until it is decided.
    spans: Vec<bool>,
    is_kept: Option<bool>,
}

/// The processor. None of the traces is in the share of those that are kept anyway.
struct Sampler {
    traces: HashMap<u32, Trace>,
    order: VecDeque<u32>,
    kept: Cache,
    dropped: Cache,
    /// How many spans of each trace have passed.
    passed: HashMap<u32, usize>,
}

impl Sampler {
    fn new() -> Self {
        Self {
            traces: HashMap::new(),
            order: VecDeque::new(),
            kept: Cache::of("sampled_cache_size"),
            dropped: Cache::of("non_sampled_cache_size"),
            passed: HashMap::new(),
        }
    }

    fn span(&mut self, now: usize, id: u32, failed: bool) {
        if self.kept.get(id) {
            *self.passed.entry(id).or_default() += 1;
            return;
        }
        if self.dropped.get(id) {
            return;
        }
        if !self.traces.contains_key(&id) {
            self.order.push_back(id);
            while self.order.len() > configured("num_traces") {
                let oldest = self.order.pop_front().unwrap();
                self.traces.remove(&oldest);
            }
        }
        let trace =
            self.traces.entry(id).or_insert(Trace { since: now, spans: Vec::new(), is_kept: None });
        match trace.is_kept {
            None => trace.spans.push(failed),
            Some(true) => *self.passed.entry(id).or_default() += 1,
            Some(false) => {
                self.dropped.put(id);
                self.forget_if_remembered(id);
            }
        }
    }

    /// Once a second.
    fn tick(&mut self, now: usize) {
        let wait = configured("decision_wait");
        let mut due: Vec<_> = (self.traces.iter())
            .filter(|(_, trace)| trace.is_kept.is_none() && trace.since + wait <= now)
            .map(|(id, _)| *id)
            .collect();
        due.sort_unstable();
        for id in due {
            let trace = self.traces.get_mut(&id).unwrap();
            let is_kept = trace.spans.contains(&true);
            trace.is_kept = Some(is_kept);
            if is_kept {
                *self.passed.entry(id).or_default() += trace.spans.len();
                self.kept.put(id);
            } else {
                self.dropped.put(id);
            }
            self.forget_if_remembered(id);
        }
    }

    /// What a cache remembers need not stay in memory.
    fn forget_if_remembered(&mut self, id: u32) {
        if self.kept.get(id) || self.dropped.get(id) {
            self.traces.remove(&id);
            self.order.retain(|known| *known != id);
        }
    }
}

/// How many of `messages` failures are kept if they come this many seconds after the message was
/// published, one message a second, while `others` more messages a second succeed at once.
fn kept(messages: u32, seconds: usize, others: u32) -> usize {
    let mut sampler = Sampler::new();
    let mut next = messages;
    for now in 0..messages as usize + seconds + 2 * configured("decision_wait") {
        for _ in 0..others {
            sampler.span(now, next, false);
            next += 1;
        }
        for id in 0..messages {
            if now == id as usize {
                sampler.span(now, id, false);
            }
            if now == id as usize + seconds {
                sampler.span(now, id, true);
                sampler.span(now, id, false);
            }
        }
        sampler.tick(now);
    }
    let whole = |id: &u32| sampler.passed.get(id).is_some_and(|spans| *spans >= 2);
    (0..messages).filter(whole).count()
}

#[test]
fn a_failure_after_a_long_time_in_the_queue_is_kept_unless_its_trace_was_the_last_to_be_dropped() {
    // All lie in the queue before the first one fails, and nothing else is traced: the trace that
    // is dropped last stays dropped.
    assert_eq!(kept(20, 60, 0), 19);
    // The next message takes its place.
    assert_eq!(kept(20, 16, 1), 20);
    assert_eq!(kept(20, 60, 10), 20);
    // A failure at once is part of the first decision.
    assert_eq!(kept(20, 1, 0), 20);
}

#[test]
fn as_many_traces_are_held_as_begin_before_they_are_decided() {
    let a_second = configured("num_traces") / configured("decision_wait");
    assert!(a_second >= 1_000, "{a_second} messages a second");
}
