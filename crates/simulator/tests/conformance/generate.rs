//! Draws scripts from seeds.
//!
//! What RabbitMQ itself leaves to chance is not drawn:
//!
//! - A burst to a queue that refuses at a length limit: the limit is a soft one, and a publisher
//!   learns late that it is reached.
//! - A burst to several queues: what one of them dead-letters may come to the other before or after
//!   the rest of the burst.
//! - A prefetch for a subscription without acks: a quorum queue waits until the channel has settled
//!   what it passed on.
//! - A length limit or a purge of a queue that dead-letters at least once: both count messages
//!   until the queue's worker has settled them, which it does some time after the target has them.
//! - A timeout for acks: 4.3 sets its timer for the next message only if its clock has moved on
//!   since the last one, and else waits for the queue's next command.
//!
//! Nor are these drawn:
//!
//! - A single active consumer of a lower priority than one that waits, a change that the simulator
//!   leaves out.
//! - A length limit with delayed retries: when more messages are delayed than the limit allows, a
//!   queue of 4.3.6 looks forever for one that it can drop, and answers nobody (`evaluate_limit0`
//!   in `rabbit_fifo`).

use crate::random::Random;
use crate::script::{Index, Key, Message, Script, Settlement, Step, Table, Value};

/// Routing keys of messages.
const WORDS: &[&str] = &["a", "b", "a.b", "c"];
/// Routing keys of bindings.
const PATTERNS: &[&str] = &["a", "b", "a.b", "a.*", "#", "*.b"];
const KINDS: &[&str] = &["direct", "fanout", "topic", "headers"];
const RETRY_TYPES: &[&str] = &["all", "failed", "returned", "disabled"];
/// No exchange has this index.
const MISSING: Index = 9;

/// The script of a seed. `salt` makes another one.
pub(crate) fn script(seed: u64, salt: u64) -> Script {
    let mut random = Random::new(seed.wrapping_mul(1_000_003).wrapping_add(salt));
    // The first numbers of neighbouring seeds look alike.
    random.next();
    let mut draw = Draw { queues: 1 + random.below(3), exchanges: Vec::new(), ..Draw::new(random) };
    let topology = draw.topology();
    let length = 10 + draw.random.below(41);
    let mut steps = Vec::new();
    while steps.len() < length {
        steps.push(draw.step());
    }
    prioritize(seed ^ salt.rotate_left(32), &mut steps);
    Script { topology, steps }
}

/// Gives some messages a priority, in one of three scripts. What else is drawn does not depend on
/// it.
fn prioritize(seed: u64, steps: &mut [Step]) {
    let mut random = Random::new(!seed);
    if !random.percent(33) {
        return;
    }
    for step in steps {
        if let Step::Publish { messages, .. } = step {
            for message in messages {
                message.priority =
                    random.pick(&[None, Some(0), Some(4), Some(5), Some(9), Some(255)]);
            }
        }
    }
}

struct Draw {
    random: Random,
    queues: usize,
    /// Their types.
    exchanges: Vec<&'static str>,
    arguments: Vec<Table>,
    next_message: u32,
    next_tag: u32,
    has_soft_limit: bool,
}

impl Draw {
    fn new(random: Random) -> Self {
        Self {
            random,
            queues: 1,
            exchanges: Vec::new(),
            arguments: Vec::new(),
            next_message: 1,
            next_tag: 1,
            has_soft_limit: false,
        }
    }

    fn topology(&mut self) -> Vec<Step> {
        let channel = 0;
        let mut steps = Vec::new();
        for exchange in 0..self.random.pick(&[0, 1, 1, 2]) {
            let kind = self.random.pick(KINDS);
            self.exchanges.push(kind);
            let mut arguments = Table::new();
            if self.random.percent(25) {
                let alternate = self.random.pick(&[1 - exchange, 1 - exchange, MISSING]);
                arguments.push(("alternate-exchange", Value::Exchange(Some(alternate))));
            }
            steps.push(Step::DeclareExchange { channel, exchange, kind, arguments });
        }
        for queue in 0..self.queues {
            let arguments = self.queue_arguments(queue);
            self.arguments.push(arguments.clone());
            steps.push(Step::DeclareQueue { channel, queue, arguments });
        }
        for exchange in 0..self.exchanges.len() {
            for _ in 0..1 + self.random.below(3) {
                let (queue, key, arguments) = self.binding(exchange);
                steps.push(Step::Bind { channel, queue, exchange, key, arguments });
            }
        }
        if self.exchanges.len() == 2 && self.random.percent(20) {
            let key = Key::Word(self.random.pick(PATTERNS));
            steps.push(Step::BindExchange {
                channel,
                destination: 1,
                source: 0,
                key,
                arguments: Table::new(),
            });
        }
        steps
    }

    fn queue_arguments(&mut self, queue: Index) -> Table {
        let mut arguments = vec![("x-queue-type", Value::Text("quorum"))];
        if self.random.percent(45) {
            let limit = self.random.pick(&[0, 1, 1, 2, 2, 3, -1, 2_147_483_648]);
            arguments.push(("x-delivery-limit", Value::Number(limit)));
        }
        if self.random.percent(25) {
            arguments.push(("x-message-ttl", Value::Time(self.random.pick(&[0, 200, 300, 400]))));
        }
        if self.random.percent(65) {
            self.dead_lettering(queue, &mut arguments);
        }
        if self.random.percent(15) {
            arguments.push(("x-single-active-consumer", Value::Flag(true)));
        }
        if self.random.percent(20) {
            arguments.push(("x-delayed-retry-type", Value::Text(self.random.pick(RETRY_TYPES))));
            arguments.push(("x-delayed-retry-min", Value::Time(200)));
            if self.random.percent(60) {
                arguments
                    .push(("x-delayed-retry-max", Value::Time(self.random.pick(&[200, 300, 500]))));
            }
        }
        if !has_delays(&arguments) && !is_at_least_once(&arguments) && self.random.percent(12) {
            arguments.push(("x-max-length", Value::Number(1 + self.random.below(3) as i64)));
        }
        let has = |name: &str| arguments.iter().any(|(key, _)| *key == name);
        // A policy may set the length.
        self.has_soft_limit |= has("x-overflow");
        arguments
    }

    fn dead_lettering(&mut self, queue: Index, arguments: &mut Table) {
        let other = Key::Queue((queue + 1 + self.random.below(2)) % self.queues);
        let exchange = match self.random.below(100) {
            0..65 => None,
            65..95 if !self.exchanges.is_empty() => Some(self.random.below(self.exchanges.len())),
            65..95 => None,
            _ => Some(MISSING),
        };
        arguments.push(("x-dead-letter-exchange", Value::Exchange(exchange)));
        match (exchange, other) {
            (None, Key::Queue(other)) if self.random.percent(85) => {
                arguments.push(("x-dead-letter-routing-key", Value::Queue(other)));
            }
            (Some(_), _) if self.random.percent(40) => {
                arguments.push(("x-dead-letter-routing-key", Value::Text(self.random.pick(WORDS))));
            }
            _ => {}
        }
        match self.random.below(100) {
            0..30 => {
                arguments.push(("x-dead-letter-strategy", Value::Text("at-least-once")));
                arguments.push(("x-overflow", Value::Text("reject-publish")));
            }
            30..35 => arguments.push(("x-dead-letter-strategy", Value::Text("at-least-once"))),
            35..40 => arguments.push(("x-overflow", Value::Text("reject-publish"))),
            40..45 => arguments.push(("x-overflow", Value::Text("drop-head"))),
            _ => {}
        }
    }

    fn binding(&mut self, exchange: Index) -> (Index, Key, Table) {
        let queue = self.random.below(self.queues);
        match self.exchanges[exchange] {
            "headers" => {
                let mut arguments =
                    vec![("x-match", Value::Text(self.random.pick(&["all", "any"])))];
                arguments.push(("kind", Value::Text(self.random.pick(&["one", "two"]))));
                if self.random.percent(30) {
                    arguments.push(("x-kind", Value::Text(self.random.pick(&["one", "two"]))));
                }
                if self.random.percent(30) {
                    arguments.push(("size", Value::Number(self.random.below(2) as i64)));
                }
                (queue, Key::Word(""), arguments)
            }
            "topic" => (queue, Key::Word(self.random.pick(PATTERNS)), Table::new()),
            _ => (queue, Key::Word(self.random.pick(WORDS)), Table::new()),
        }
    }

    fn step(&mut self) -> Step {
        let channel = self.random.pick(&[0, 0, 1, 2]);
        let queue = self.random.below(self.queues);
        match self.random.below(100) {
            0..27 => self.publish(channel),
            27..37 => self.subscribe(channel, queue),
            37..47 => Step::Get { channel, queue, is_no_ack: self.random.percent(15) },
            47..72 => self.settle(channel),
            72..75 => Step::Cancel { channel, pick: self.random.below(3) },
            75..79 => Step::CloseChannel { channel },
            79..81 => Step::CloseConnection { connection: self.random.below(2) },
            81..83 => Step::CutConnection { connection: self.random.below(2) },
            83..90 => Step::PassTime,
            90..92 if is_at_least_once(&self.arguments[queue]) => Step::PassTime,
            90..92 => Step::Purge { channel, queue },
            92 => Step::DeleteQueue { channel, queue, if_empty: self.random.percent(30) },
            93..95 => self.policy(queue),
            95..97 => self.redeclare(channel, queue),
            97 => Step::LookAtQueue { channel, queue },
            98 => match self.random.below(8) {
                0 => Step::DeleteExchange { channel, exchange: self.random.below(2) },
                _ => self.rebind(channel),
            },
            _ => Step::SettleUnknown { channel },
        }
    }

    fn publish(&mut self, channel: Index) -> Step {
        let count = if self.has_soft_limit { 1 } else { self.random.pick(&[1, 1, 2, 3]) };
        let (exchange, key) = self.destination();
        let routed = self.routed_by_headers(exchange);
        let mut message = || self.message(exchange, key.clone(), routed.clone());
        let mut messages = (0..count).map(|_| message()).collect::<Vec<_>>();
        if count == 1 && self.random.percent(6) {
            let name = self.random.pick(&["CC", "CC", "BCC"]);
            messages[0].headers.push((name, Value::Queues(vec![self.random.below(self.queues)])));
        }
        Step::Publish { channel, messages }
    }

    fn destination(&mut self) -> (Option<Index>, Key) {
        if self.exchanges.is_empty() || self.random.percent(60) {
            let is_missing_one_drawn = self.random.percent(8);
            let queue = self.random.below(self.queues + usize::from(is_missing_one_drawn));
            (None, Key::Queue(queue))
        } else {
            (Some(self.random.below(self.exchanges.len())), Key::Word(self.random.pick(WORDS)))
        }
    }

    fn routed_by_headers(&mut self, exchange: Option<Index>) -> Table {
        let is_routed = exchange.is_some_and(|exchange| self.exchanges[exchange] == "headers");
        if !is_routed && !self.random.percent(10) {
            return Table::new();
        }
        let kind = Value::Text(self.random.pick(&["one", "two"]));
        vec![("kind", kind), ("size", Value::Number(self.random.below(2) as i64))]
    }

    fn message(&mut self, exchange: Option<Index>, key: Key, mut headers: Table) -> Message {
        let number = self.next_message;
        self.next_message += 1;
        match self.random.below(100) {
            0..5 => {
                headers.push(("x-delivery-count", Value::Number(7)));
                headers.push(("x-acquired-count", Value::Number(9)));
            }
            5..10 => {
                let queue = self.random.below(self.queues);
                headers.push((
                    "x-death",
                    Value::Deaths { queue, reason: self.random.pick(&["expired", "rejected"]) },
                ));
            }
            _ => {}
        }
        let expiration = match self.random.below(100) {
            0..12 => Some(Value::Time(self.random.pick(&[0, 150, 250, 350]))),
            12 => Some(Value::Text(self.random.pick(&["abc", "-1", ""]))),
            _ => None,
        };
        Message {
            number,
            exchange,
            key,
            is_mandatory: self.random.percent(20),
            headers,
            expiration,
            priority: None,
            user: None,
        }
    }

    fn subscribe(&mut self, channel: Index, queue: Index) -> Step {
        let tag = self.next_tag;
        self.next_tag += 1;
        let is_no_ack = self.random.percent(8);
        let prefetch = if is_no_ack { 0 } else { self.random.pick(&[1, 1, 2, 3, 10]) };
        let mut arguments = Table::new();
        let is_single =
            self.arguments[queue].iter().any(|(key, _)| *key == "x-single-active-consumer");
        if !is_single && self.random.percent(8) {
            arguments.push(("x-priority", Value::Number(self.random.below(3) as i64 - 1)));
        }
        Step::Subscribe { channel, queue, tag, prefetch, is_no_ack, arguments }
    }

    fn settle(&mut self, channel: Index) -> Step {
        let how = match self.random.below(100) {
            0..25 => Settlement::Ack,
            25..50 => Settlement::Reject { is_requeued: true },
            50..65 => Settlement::Reject { is_requeued: false },
            65..85 => Settlement::Nack { is_requeued: true },
            _ => Settlement::Nack { is_requeued: false },
        };
        Step::Settle {
            channel,
            pick: self.random.below(4),
            is_multiple: self.random.percent(25),
            how,
        }
    }

    fn policy(&mut self, queue: Index) -> Step {
        if self.random.percent(40) {
            return Step::ClearPolicy { queue };
        }
        let mut definition = Table::new();
        match self.random.below(4) {
            0 => definition.push(("delivery-limit", Value::Number(self.random.below(3) as i64))),
            1 => definition.push(("message-ttl", Value::Time(200))),
            2 if !has_delays(&self.arguments[queue])
                && !is_at_least_once(&self.arguments[queue]) =>
            {
                definition.push(("max-length", Value::Number(1 + self.random.below(3) as i64)));
            }
            _ => {
                definition.push(("dead-letter-exchange", Value::Exchange(None)));
                definition.push((
                    "dead-letter-routing-key",
                    Value::Queue(self.random.below(self.queues)),
                ));
            }
        }
        Step::SetPolicy { queue, definition }
    }

    /// As it is, or with one argument that differs.
    fn redeclare(&mut self, channel: Index, queue: Index) -> Step {
        let mut arguments = self.arguments[queue].clone();
        match self.random.below(4) {
            0 => {}
            1 => drop(arguments.pop()),
            2 => match arguments.iter_mut().find(|(key, _)| *key == "x-delivery-limit") {
                Some((_, value)) => *value = Value::Number(5),
                None => arguments.push(("x-delivery-limit", Value::Number(5))),
            },
            _ => match arguments.iter_mut().find(|(key, _)| *key == "x-message-ttl") {
                Some((_, value)) => *value = Value::Time(5000),
                None => arguments.push(("x-message-ttl", Value::Time(5000))),
            },
        }
        Step::DeclareQueue { channel, queue, arguments }
    }

    fn rebind(&mut self, channel: Index) -> Step {
        if self.exchanges.is_empty() {
            return Step::PassTime;
        }
        let exchange = self.random.below(self.exchanges.len());
        let (queue, key, arguments) = self.binding(exchange);
        if self.random.percent(50) {
            Step::Bind { channel, queue, exchange, key, arguments }
        } else {
            Step::Unbind { channel, queue, exchange, key, arguments }
        }
    }
}

fn has_delays(arguments: &Table) -> bool {
    arguments.iter().any(|(key, _)| *key == "x-delayed-retry-type")
}

fn is_at_least_once(arguments: &Table) -> bool {
    arguments.iter().any(|(key, _)| *key == "x-dead-letter-strategy")
}
