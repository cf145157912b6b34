//! Where the messages go that a queue dead-letters: through exchanges, and through queues in which
//! they expire. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};

use serde_json::Value;

use super::observed::{BindingDetails, Management, Object, QueueDetails};
use super::routing::{Keys, Share, share};
use rehop::internals::Names;

/// A way by which messages come back to the queue that dead-lettered them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WayBack {
    /// How many of the messages come back.
    pub(super) share: Share,
    /// What lies on it. The first is the dead-letter exchange.
    pub(super) through: Vec<Object>,
}

/// Where the messages go that a queue dead-letters.
#[derive(Debug)]
pub(super) struct Ways {
    /// The way that leads the most of them back, and of several such the shortest.
    pub(super) back: Option<WayBack>,
    /// Whether any of them may come to a queue that was looked at.
    pub(super) arrive: bool,
    /// What they come to that nobody has looked at, or that does not exist.
    pub(super) unknown: BTreeSet<Object>,
}

/// The ways from this queue, as far as they were looked at. `None` if it dead-letters nothing.
pub(super) fn ways(queue: &str, seen: &Management, names: &Names) -> Option<Ways> {
    let details = seen.queues.get(queue)?;
    let exchange = details.text("dead-letter-exchange")?;
    let mut walk = Walk { home: queue, seen, names, arrive: false, unknown: BTreeSet::new() };
    let mut backs = Vec::new();
    for (keys, came_by) in walk.arrivals(details) {
        let object = Object::Exchange(exchange.to_owned());
        backs.push(walk.back(Step {
            object,
            keys,
            came_by,
            share: Share::All,
            through: Vec::new(),
        }));
    }
    if details.text("dead-letter-routing-key").is_none() {
        // Anyone may publish to the queue by the default exchange, which every queue is bound to.
        // That is no sign of a way back.
        let (object, keys) = (Object::Exchange(exchange.to_owned()), Keys::One(queue.to_owned()));
        walk.back(Step { object, keys, came_by: None, share: Share::All, through: Vec::new() });
    }
    let all_come =
        backs.iter().all(|back| back.as_ref().is_some_and(|way| way.share == Share::All));
    let share = if all_come { Share::All } else { Share::Part };
    let back = best(backs.into_iter().flatten()).map(|way| WayBack { share, ..way });
    Some(Ways { back, arrive: walk.arrive, unknown: walk.unknown })
}

/// The way that the most take, and of several such the shortest.
fn best(ways: impl Iterator<Item = WayBack>) -> Option<WayBack> {
    ways.min_by_key(|way| (Reverse(way.share), way.through.len()))
}

/// Some messages at an object on their way.
#[derive(Clone)]
struct Step<'a> {
    object: Object,
    keys: Keys,
    /// The binding by which they came to the queue that dead-lettered them, while they still have
    /// the same routing key. Their headers are the same, too, so it would take all of them again.
    came_by: Option<&'a BindingDetails>,
    share: Share,
    through: Vec<Object>,
}

impl Step<'_> {
    /// The same messages at the next object, if this share of them goes there.
    fn to(&self, object: Object, share: Share) -> Self {
        let through = self.through.iter().chain([&self.object]).cloned().collect();
        Self { object, share: self.share.min(share), through, ..self.clone() }
    }
}

struct Walk<'a> {
    home: &'a str,
    seen: &'a Management,
    names: &'a Names,
    arrive: bool,
    unknown: BTreeSet<Object>,
}

impl<'a> Walk<'a> {
    /// What is known of the messages in the queue, for each binding by which they come. What rehop
    /// returns came by one of them first. Every queue is bound to the default exchange, but it
    /// counts only where nothing else brings messages.
    fn arrivals(&mut self, details: &QueueDetails) -> Vec<(Keys, Option<&'a BindingDetails>)> {
        if let Some(key) = details.text("dead-letter-routing-key") {
            return vec![(Keys::One(key.to_owned()), None)];
        }
        let own = self.names.return_();
        let bindings = self.seen.bindings.get(self.home).into_iter().flatten();
        let bindings =
            bindings.filter(|binding| !binding.source.is_empty() && binding.source != own);
        let mut arrivals = Vec::new();
        for binding in bindings {
            let keys = match self.seen.exchanges.get(&binding.source) {
                Some(exchange) => Keys::by(exchange.routing_type(), binding),
                None => {
                    self.unknown.insert(Object::Exchange(binding.source.clone()));
                    Keys::Any
                }
            };
            arrivals.push((keys, Some(binding)));
        }
        if arrivals.is_empty() {
            arrivals.push((Keys::One(self.home.to_owned()), None));
        }
        arrivals
    }

    /// The best way by which these messages come back.
    fn back(&mut self, first: Step<'a>) -> Option<WayBack> {
        let (mut pending, mut been, mut found) =
            (VecDeque::from([first]), BTreeSet::new(), Vec::new());
        while let Some(step) = pending.pop_front() {
            if let Some(way) = self.way_back(&step) {
                // What comes back only by its queue's name says nothing about the other messages.
                self.arrive |= !matches!(&step.object, Object::Queue(name) if name == self.home);
                found.push(way);
            } else if been.insert((step.object.clone(), step.keys.clone(), step.share)) {
                pending.extend(self.onward(&step));
            }
        }
        best(found.into_iter())
    }

    /// A way that ends here: at the queue itself, or where rehop brings copies home.
    fn way_back(&self, step: &Step<'a>) -> Option<WayBack> {
        let is_rehops = match &step.object {
            Object::Queue(name) if name == self.home => {
                return Some(WayBack { share: step.share, through: step.through.clone() });
            }
            Object::Queue(name) => is_wait_queue(name, self.names),
            Object::Exchange(name) => leads_home(name, self.names),
        };
        // Of those that have waited the headers say where to. The others become stray.
        is_rehops.then(|| WayBack {
            share: Share::Part,
            through: step.through.iter().chain([&step.object]).cloned().collect(),
        })
    }

    fn onward(&mut self, step: &Step<'a>) -> Vec<Step<'a>> {
        match &step.object {
            Object::Exchange(name) if name.is_empty() => match &step.keys {
                Keys::One(key) => vec![step.to(Object::Queue(key.clone()), Share::All)],
                // They may be the names of any queues.
                Keys::Like(_) | Keys::Any => {
                    self.arrive = true;
                    Vec::new()
                }
            },
            Object::Exchange(name) => self.routed(name, step),
            Object::Queue(name) => self.expired(name, step).into_iter().collect(),
        }
    }

    /// Where an exchange leads. What none of its bindings takes goes to its alternate exchange.
    fn routed(&mut self, name: &str, step: &Step<'a>) -> Vec<Step<'a>> {
        let (Some(exchange), Some(bindings)) =
            (self.seen.exchanges.get(name), self.seen.destinations.get(name))
        else {
            self.unknown.insert(step.object.clone());
            return Vec::new();
        };
        let kind = exchange.routing_type();
        let (mut next, mut most) = (Vec::new(), Share::Nothing);
        for binding in bindings {
            let came_by_it = step.came_by.is_some_and(|came_by| self.is_same(came_by, binding));
            let share = if came_by_it { Share::All } else { share(kind, binding, &step.keys) };
            if share == Share::Nothing {
                continue;
            }
            most = most.max(share);
            let destination = binding.destination.clone();
            let object = match binding.destination_type.as_str() {
                "exchange" => Object::Exchange(destination),
                _ => Object::Queue(destination),
            };
            next.push(Step {
                keys: step.keys.taken(kind, binding, share),
                ..step.to(object, share)
            });
        }
        let alternate = exchange.arguments.get("alternate-exchange").and_then(Value::as_str);
        if let Some(alternate) = alternate.filter(|_| most < Share::All) {
            let share = if most == Share::Nothing { Share::All } else { Share::Part };
            next.push(step.to(Object::Exchange(alternate.to_owned()), share));
        }
        // A policy may name an alternate exchange, and policies of exchanges are not read.
        self.arrive |= exchange.policy.is_some();
        next
    }

    /// Where a queue leads, if messages expire in it. Its consumers may take them before.
    fn expired(&mut self, name: &str, step: &Step<'a>) -> Option<Step<'a>> {
        let Some(details) = self.seen.queues.get(name).or_else(|| self.seen.passed.get(name))
        else {
            self.unknown.insert(step.object.clone());
            return None;
        };
        self.arrive = true;
        details.smaller_number("message-ttl")?;
        let exchange = Object::Exchange(details.text("dead-letter-exchange")?.to_owned());
        let share = if details.consumers == Some(0) { Share::All } else { Share::Part };
        let next = step.to(exchange, share);
        Some(match details.text("dead-letter-routing-key") {
            Some(key) => Step { keys: Keys::One(key.to_owned()), came_by: None, ..next },
            None => next,
        })
    }

    /// Whether this is the binding by which messages came to the queue, seen from its exchange.
    fn is_same(&self, came_by: &BindingDetails, binding: &BindingDetails) -> bool {
        binding.destination == self.home
            && binding.destination_type != "exchange"
            && binding.source == came_by.source
            && binding.routing_key == came_by.routing_key
            && binding.arguments == came_by.arguments
    }
}

/// Whether copies come home by this exchange, or by one that follows it. Parked and stray messages
/// stay where they are.
fn leads_home(exchange: &str, names: &Names) -> bool {
    [names.delay(), names.return_()].iter().any(|own| own == exchange)
        || names.of_wait_exchange(exchange).is_some()
        || names.of_after(exchange).is_some()
}

fn is_wait_queue(queue: &str, names: &Names) -> bool {
    names.of_wait_queue(queue).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A broker with the queue "orders", which dead-letters as these arguments say.
    struct Broker(Management);

    impl Broker {
        fn new(arguments: Value) -> Self {
            let mut seen = Management::default();
            seen.queues.insert(
                "orders".to_owned(),
                serde_json::from_value(json!({ "arguments": arguments })).unwrap(),
            );
            Self(seen)
        }

        fn exchange(mut self, name: &str, kind: &str, arguments: Value) -> Self {
            let details =
                serde_json::from_value(json!({ "type": kind, "arguments": arguments })).unwrap();
            self.0.exchanges.insert(name.to_owned(), details);
            self.0.destinations.entry(name.to_owned()).or_default();
            self
        }

        /// Nobody consumes from it, unless the details say otherwise.
        fn queue(mut self, name: &str, mut details: Value) -> Self {
            let fields = details.as_object_mut().unwrap();
            fields.entry("consumers").or_insert(0.into());
            self.0.passed.insert(name.to_owned(), serde_json::from_value(details).unwrap());
            self
        }

        fn bound(mut self, source: &str, destination: Object, key: &str, arguments: Value) -> Self {
            let (kind, name) = match destination {
                Object::Exchange(name) => ("exchange", name),
                Object::Queue(name) => ("queue", name),
            };
            let binding = json!({
                "source": source, "destination": name, "destination_type": kind, "routing_key": key, "arguments": arguments,
            });
            let binding: BindingDetails = serde_json::from_value(binding).unwrap();
            if kind == "queue" {
                self.0.bindings.entry(name).or_default().push(binding.clone());
            }
            self.0.destinations.entry(source.to_owned()).or_default().push(binding);
            self
        }

        fn ways(&self) -> Ways {
            ways("orders", &self.0, &Names::new("ns")).unwrap()
        }

        /// A way back that this share of messages takes, through these places.
        fn leads_back(&self, share: Share, through: &[&str]) {
            let back = self.ways().back.map(|way| {
                (way.share, way.through.iter().map(Object::to_string).collect::<Vec<_>>())
            });
            assert_eq!(
                back,
                Some((share, through.iter().copied().map(str::to_owned).collect())),
                "{:?}",
                self.0
            );
        }

        fn leads_elsewhere(&self) {
            assert_eq!(self.ways().back, None, "{:?}", self.0);
        }
    }

    fn queue(name: &str) -> Object {
        Object::Queue(name.to_owned())
    }

    fn exchange(name: &str) -> Object {
        Object::Exchange(name.to_owned())
    }

    /// The queue dead-letters to this exchange, and messages keep their routing key.
    fn dead_lettering_to(exchange: &str) -> Broker {
        Broker::new(json!({ "x-dead-letter-exchange": exchange }))
    }

    #[test]
    fn all_messages_come_back_by_the_exchange_by_which_they_came() {
        for (kind, key, arguments) in [
            ("direct", "orders", json!({})),
            ("topic", "order.*", json!({})),
            ("fanout", "", json!({})),
            ("headers", "", json!({ "x-match": "all", "kind": "order" })),
        ] {
            let broker = dead_lettering_to("shop").exchange("shop", kind, json!({}));
            let broker = broker.bound("shop", queue("audit"), "", json!({ "x-match": "any" }));
            broker
                .bound("shop", queue("orders"), key, arguments)
                .leads_back(Share::All, &["exchange \"shop\""]);
        }
        let delayed = dead_lettering_to("later").exchange(
            "later",
            "x-delayed-message",
            json!({ "x-delayed-type": "direct" }),
        );
        delayed
            .bound("later", queue("orders"), "a", json!({}))
            .leads_back(Share::All, &["exchange \"later\""]);
    }

    #[test]
    fn through_bindings_of_exchanges_those_come_back_that_were_published_there() {
        let broker = || {
            dead_lettering_to("shop")
                .exchange("shop", "topic", json!({}))
                .exchange("relay", "fanout", json!({}))
                .bound("relay", queue("orders"), "", json!({}))
        };
        let by_relay = broker().bound("shop", exchange("relay"), "order.*", json!({}));
        by_relay.leads_back(Share::Part, &["exchange \"shop\"", "exchange \"relay\""]);
        let both = by_relay.bound("shop", queue("orders"), "#", json!({}));
        both.leads_back(Share::All, &["exchange \"shop\""]);
        let circle = broker().bound("shop", exchange("other"), "#", json!({})).exchange(
            "other",
            "fanout",
            json!({}),
        );
        circle.bound("other", exchange("shop"), "", json!({})).leads_elsewhere();
    }

    #[test]
    fn another_exchange_leads_back_if_its_bindings_take_the_keys_that_messages_have() {
        let broker = |kind: &str, key: &str| {
            dead_lettering_to("dead")
                .exchange("shop", "topic", json!({}))
                .exchange("dead", kind, json!({}))
                .bound("shop", queue("orders"), "order.*", json!({}))
                .bound("dead", exchange("home"), key, json!({}))
                .exchange("home", "fanout", json!({}))
                .bound("home", queue("orders"), "", json!({}))
        };
        let through = ["exchange \"dead\"", "exchange \"home\""];
        broker("fanout", "").leads_back(Share::All, &through);
        // What is published to the exchange that leads home may have any key.
        broker("topic", "order.*").leads_back(Share::Part, &through);
        broker("topic", "order.created").leads_back(Share::Part, &through);
        broker("direct", "order.created").leads_back(Share::Part, &through);
        let bound = |name: &str| {
            dead_lettering_to("dead")
                .exchange("shop", "topic", json!({}))
                .exchange("dead", "direct", json!({}))
                .bound("shop", queue("orders"), "order.*", json!({}))
                .bound("dead", queue(name), "order.created", json!({}))
        };
        bound("orders").leads_back(Share::Part, &["exchange \"dead\""]);
        bound("orders.dead").leads_elsewhere();
    }

    #[test]
    fn a_routing_key_for_dead_letters_takes_the_place_of_the_messages_own() {
        let broker = |exchange: &str, key: &str| {
            Broker::new(
                json!({ "x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": key }),
            )
            .exchange("shop", "topic", json!({}))
            .bound("shop", queue("orders"), "order.#", json!({}))
            .bound("shop", queue("dead"), "*.dead", json!({}))
        };
        broker("shop", "order.dead").leads_back(Share::All, &["exchange \"shop\""]);
        broker("shop", "orders.dead").leads_elsewhere();
        broker("", "orders").leads_back(Share::All, &["the default exchange"]);
        broker("", "dead").leads_elsewhere();
    }

    #[test]
    fn by_the_default_exchange_those_come_back_whose_key_is_the_name_of_the_queue() {
        let broker = || dead_lettering_to("").exchange("shop", "direct", json!({}));
        broker().leads_back(Share::All, &["the default exchange"]);
        // By these the queue is bound as every queue is, and as rehop binds it.
        let usual = broker().bound("", queue("orders"), "orders", json!({}));
        let usual = usual.bound(
            "ns.return",
            queue("orders"),
            "",
            json!({ "x-match": "all", "rehop-return-to": "orders" }),
        );
        usual.leads_back(Share::All, &["the default exchange"]);
        broker()
            .bound("shop", queue("orders"), "orders", json!({}))
            .leads_back(Share::All, &["the default exchange"]);
        broker().bound("shop", queue("orders"), "order", json!({})).leads_elsewhere();
    }

    #[test]
    fn a_queue_in_which_messages_expire_is_on_the_way() {
        let broker = |details: Value| {
            dead_lettering_to("retry")
                .exchange("shop", "topic", json!({}))
                .exchange("retry", "fanout", json!({}))
                .bound("shop", queue("orders"), "order.*", json!({}))
                .bound("retry", queue("retry"), "", json!({}))
                .queue("retry", details)
        };
        let to_shop = json!({ "x-message-ttl": 1000, "x-dead-letter-exchange": "shop" });
        let through = ["exchange \"retry\"", "queue \"retry\"", "exchange \"shop\""];
        broker(json!({ "arguments": to_shop })).leads_back(Share::All, &through);
        broker(json!({ "arguments": to_shop, "consumers": 1 })).leads_back(Share::Part, &through);
        let to_queue =
            json!({ "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders" });
        broker(json!({ "arguments": to_queue })).leads_elsewhere();
        let expiring = json!({ "arguments": to_queue, "effective_policy_definition": { "message-ttl": 1000 } });
        broker(expiring).leads_back(
            Share::All,
            &["exchange \"retry\"", "queue \"retry\"", "the default exchange"],
        );
        broker(json!({ "arguments": { "x-message-ttl": 1000 } })).leads_elsewhere();
    }

    #[test]
    fn what_no_binding_takes_goes_to_the_alternate_exchange() {
        let broker = |kind: &str, key: &str| {
            dead_lettering_to("dead")
                .exchange("dead", kind, json!({ "alternate-exchange": "shop" }))
                .exchange("shop", "topic", json!({}))
                .bound("shop", queue("orders"), "order.*", json!({}))
                .bound("dead", queue("dead"), key, json!({}))
        };
        let through = ["exchange \"dead\"", "exchange \"shop\""];
        broker("direct", "invoice").leads_back(Share::All, &through);
        broker("direct", "order.created").leads_back(Share::Part, &through);
        broker("fanout", "").leads_elsewhere();
    }

    #[test]
    fn where_rehop_brings_copies_home_those_come_back_that_have_waited() {
        for name in ["ns.wait", "ns.ladder", "ns.delay", "ns.return", "ns.after.1000"] {
            dead_lettering_to(name).leads_back(Share::Part, &[&exchange(name).to_string()]);
        }
        let by_wait_queue =
            json!({ "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "ns.wait.1000" });
        Broker::new(by_wait_queue)
            .leads_back(Share::Part, &["the default exchange", "queue \"ns.wait.1000\""]);
        dead_lettering_to("ns.park").leads_elsewhere();
    }

    #[test]
    fn what_nobody_has_looked_at_is_named_until_nothing_is_left() {
        let broker = dead_lettering_to("dead").bound("shop", queue("orders"), "orders", json!({}));
        assert_eq!(broker.ways().unknown, BTreeSet::from([exchange("dead"), exchange("shop")]));
        let broker =
            broker.exchange("shop", "direct", json!({})).exchange("dead", "fanout", json!({}));
        let broker = broker.bound("dead", queue("far"), "", json!({}));
        assert_eq!(broker.ways().unknown, BTreeSet::from([queue("far")]));
        assert_eq!(broker.queue("far", json!({})).ways().unknown, BTreeSet::new());
        let broker = dead_lettering_to("shop").exchange("shop", "direct", json!({}));
        let broker = broker.bound("shop", queue("orders"), "orders", json!({}));
        let beside = broker.bound("shop", queue("bills"), "bills", json!({}));
        assert_eq!(
            beside.ways().unknown,
            BTreeSet::new(),
            "it takes nothing of what came by the other binding"
        );
        assert!(ways("orders", &Broker::new(json!({})).0, &Names::new("ns")).is_none());
    }

    #[test]
    fn messages_arrive_if_a_binding_may_take_them_to_a_queue_that_exists() {
        let broker = || dead_lettering_to("dead").exchange("dead", "direct", json!({}));
        let keyed = |key: &str| {
            broker().bound("dead", queue("far"), key, json!({})).queue("far", json!({}))
        };
        assert!(!broker().ways().arrive, "no binding");
        assert!(
            !broker().bound("dead", queue("far"), "orders", json!({})).ways().arrive,
            "no such queue"
        );
        assert!(
            keyed("orders").ways().arrive,
            "messages that come by the default exchange have this key"
        );
        assert!(!keyed("other").ways().arrive);
        let topic = |key: &str| keyed(key).exchange("shop", "topic", json!({}));
        assert!(
            topic("order.created")
                .bound("shop", queue("orders"), "order.*", json!({}))
                .ways()
                .arrive
        );
        let by_policy = json!({ "type": "direct", "policy": "theirs" });
        let mut with_policy = broker();
        with_policy
            .0
            .exchanges
            .insert("dead".to_owned(), serde_json::from_value(by_policy).unwrap());
        assert!(with_policy.ways().arrive, "it may have an alternate exchange");
        let by_name = keyed("orders").exchange("tools", "direct", json!({})).bound(
            "tools",
            queue("orders"),
            "replay",
            json!({}),
        );
        assert!(by_name.ways().arrive, "messages may come by the default exchange, too");
        let to_nobody = dead_lettering_to("").exchange("shop", "direct", json!({}));
        assert!(
            !to_nobody.bound("shop", queue("orders"), "created", json!({})).ways().arrive,
            "no queue has this name"
        );
        let own_keys = dead_lettering_to("").exchange("shop", "topic", json!({}));
        assert!(
            own_keys.bound("shop", queue("orders"), "order.*", json!({})).ways().arrive,
            "by any name"
        );
        assert!(dead_lettering_to("ns.return").ways().arrive);
    }
}
