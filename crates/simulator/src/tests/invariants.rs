//! Whatever clients, operators and time do, no confirmed message is lost, and none is in two
//! places.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::Alarm;

/// A source of numbers that are the same with each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A wait queue, a work queue with limits, a parked queue, and clients that do anything.
struct Chaos {
    world: World,
    random: Random,
    is_down: bool,
    /// While a queue does not answer, a message that it has dead-lettered is in the next queue as
    /// well, and stays there if it restarts.
    has_silence: bool,
    /// Connections, and the deliveries that each has open.
    clients: BTreeMap<ConnectionId, Vec<Delivery>>,
    published: u64,
    /// Publishes that are not confirmed, by their connection and number.
    open: BTreeMap<(ConnectionId, u64), String>,
    next_tags: BTreeMap<ConnectionId, u64>,
    confirmed: BTreeSet<String>,
    acked: BTreeSet<String>,
}

impl Chaos {
    fn new(version: Version, seed: u64) -> Self {
        let mut world = World::new(version);
        world.declare_exchange("back", "fanout");
        let exchange = |name: &str| ("x-dead-letter-exchange", text(name));
        let safe = || {
            [
                ("x-dead-letter-strategy", text("at-least-once")),
                ("x-overflow", text("reject-publish")),
            ]
        };
        let [strategy, overflow] = safe();
        let (key, limit) =
            (("x-dead-letter-routing-key", text("parked")), ("x-delivery-limit", number(3)));
        world.declare(
            "work",
            quorum([strategy, overflow, exchange(""), key, limit, ("x-max-length", number(20))]),
        );
        // Dead letters of the work queue that came back to it by themselves would be a cycle, and
        // stay where they are.
        world.declare("parked", quorum([]));
        let [strategy, overflow] = safe();
        world.declare(
            "wait",
            quorum([strategy, overflow, exchange("back"), ("x-message-ttl", number(1000))]),
        );
        world.bind("work", "back", "", FieldTable::default());
        let mut chaos = Self {
            world,
            random: Random(seed * 2 + 1),
            is_down: false,
            has_silence: seed.is_multiple_of(2),
            clients: BTreeMap::new(),
            published: 0,
            open: BTreeMap::new(),
            next_tags: BTreeMap::new(),
            confirmed: BTreeSet::new(),
            acked: BTreeSet::new(),
        };
        chaos.connect();
        chaos
    }

    fn connect(&mut self) {
        let Some(connection) = self.world.broker.connect(self.world.now, "guest") else { return };
        self.clients.insert(connection, Vec::new());
        self.next_tags.insert(connection, 1);
        let consume = Method::Consume {
            queue: "work".into(),
            consumer_tag: "c".into(),
            is_no_ack: false,
            is_exclusive: false,
            arguments: FieldTable::default(),
        };
        for method in
            [Method::OpenChannel, Method::ConfirmSelect, Method::Qos { prefetch: 3 }, consume]
        {
            self.world.broker.receive(self.world.now, connection, 1, method);
        }
    }

    fn listen(&mut self) {
        for sent in self.world.broker.sent().collect::<Vec<_>>() {
            let connection = sent.connection;
            match sent.event {
                Event::Delivered { delivery, .. } => {
                    self.clients.entry(connection).or_default().push(delivery)
                }
                Event::Acked { delivery_tag: tag, is_multiple } => {
                    self.confirm(connection, tag, is_multiple, true)
                }
                Event::Nacked { delivery_tag: tag, is_multiple } => {
                    self.confirm(connection, tag, is_multiple, false)
                }
                Event::Cut | Event::Closed { .. } => {
                    self.clients.remove(&connection);
                    self.world.broker.disconnect(self.world.now, connection);
                }
                _ => {}
            }
        }
    }

    fn confirm(&mut self, connection: ConnectionId, tag: u64, is_multiple: bool, is_taken: bool) {
        let first = if is_multiple { 0 } else { tag };
        let range = (connection, first)..=(connection, tag);
        let keys: Vec<_> = self.open.range(range).map(|(key, _)| *key).collect();
        for key in keys {
            let id = self.open.remove(&key).unwrap();
            if is_taken {
                self.confirmed.insert(id);
            }
        }
    }

    fn step(&mut self) {
        let now = self.world.now;
        let choice = self.random.below(100);
        let some = self.random.below(self.clients.len().max(1) as u64) as usize;
        let client = self.clients.keys().nth(some).copied();
        match (choice, client) {
            (0..30, Some(client)) => self.publish(client),
            (30..75, Some(client)) => {
                if !self.settle(client) {
                    return;
                }
            }
            (75..78, Some(client)) => {
                self.clients.remove(&client);
                self.world.broker.disconnect(now, client);
            }
            (78..84, _) => self.connect(),
            (84..94, _) => self.world.now += ms(self.random.below(400)),
            (94, _) if self.has_silence => {
                let queue = if self.random.below(2) == 0 { "work" } else { "wait" };
                let until = now + ms(self.random.below(2000));
                self.world.broker.silence(now, queue, until);
            }
            (95, _) => {
                let alarm = (self.random.below(2) == 0).then_some(Alarm::Memory);
                self.world.broker.set_alarm(now, alarm);
            }
            (96, _) => {
                let definition = table([("delivery-limit", number(self.random.below(5) as i64))]);
                self.world.broker.set_policy(now, "work", Some(definition));
            }
            (97, _) => {
                if self.is_down {
                    self.world.broker.start(now);
                } else {
                    self.world.broker.stop(now);
                }
                self.is_down = !self.is_down;
            }
            _ => self.world.now += ms(self.random.below(200_000)),
        }
        self.world.broker.pass_time(self.world.now);
        self.listen();
    }

    fn publish(&mut self, client: ConnectionId) {
        self.published += 1;
        let id = self.published.to_string();
        let tag = self.next_tags.get_mut(&client).unwrap();
        self.open.insert((client, *tag), id.clone());
        *tag += 1;
        let publish = Method::Publish {
            exchange: "".into(),
            routing_key: if self.random.below(2) == 0 { "work".into() } else { "wait".into() },
            is_mandatory: true,
            properties: Box::new(properties(&id)),
            body: Vec::new(),
        };
        self.world.broker.receive(self.world.now, client, 1, publish);
    }

    /// Settles one of the messages that the client holds. False if it holds none.
    fn settle(&mut self, client: ConnectionId) -> bool {
        let Some(held) = self.clients.get_mut(&client).filter(|held| !held.is_empty()) else {
            return false;
        };
        let position = self.random.below(held.len() as u64) as usize;
        let delivery = held.remove(position);
        let tag = delivery.tag;
        let is_requeued = self.random.below(2) == 0;
        let method = match self.random.below(4) {
            0 | 1 => {
                self.acked.insert(id(&delivery));
                Method::Ack { delivery_tag: tag, is_multiple: false }
            }
            2 => Method::Reject { delivery_tag: tag, is_requeued },
            _ => Method::Nack { delivery_tag: tag, is_multiple: false, is_requeued },
        };
        self.world.broker.receive(self.world.now, client, 1, method);
        true
    }

    fn check(&self, what: &str) {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for (_, view) in self.world.broker.queues() {
            for ids in [view.ready, view.unacked, view.dead_lettering, view.delayed] {
                for id in ids {
                    *places.entry(id).or_default() += 1;
                }
            }
        }
        for (id, count) in &places {
            assert!(*count == 1 || self.has_silence, "{id} is in {count} places {what}");
        }
        for id in &self.confirmed {
            assert!(places.contains_key(id) || self.acked.contains(id), "{id} is lost {what}");
        }
    }

    /// Everything is well again: in time all that is left is acked, or parked.
    fn end(&mut self) {
        self.world.broker.start(self.world.now);
        self.world.broker.set_alarm(self.world.now, None);
        self.connect();
        for _ in 0..40 {
            self.world.now += ms(60_000);
            self.world.broker.pass_time(self.world.now);
            self.listen();
            while let Some((client, delivery)) =
                self.clients.iter_mut().find_map(|(client, held)| Some((*client, held.pop()?)))
            {
                self.acked.insert(id(&delivery));
                let ack = Method::Ack { delivery_tag: delivery.tag, is_multiple: false };
                self.world.broker.receive(self.world.now, client, 1, ack);
                self.listen();
            }
        }
        for queue in ["wait", "work"] {
            assert_eq!(
                self.world.broker.queue(queue),
                Some(crate::QueueView::default()),
                "{queue}"
            );
        }
    }
}

#[test]
fn no_confirmed_message_is_lost_or_in_two_places_and_all_come_to_rest() {
    for version in VERSIONS {
        for seed in 1..=60 {
            let mut chaos = Chaos::new(version, seed);
            for step in 0..300 {
                chaos.step();
                chaos.check(&format!("after step {step} of seed {seed} on {version:?}"));
            }
            chaos.end();
        }
    }
}
