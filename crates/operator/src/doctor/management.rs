//! What the doctor asks the management API.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::dead_letters::ways;
use super::observed::{
    BindingDetails, ConsumerDetails, ExchangeDetails, Flag, LimitsSeen, Management, Node, Object,
    QueueDetails,
};
use super::subject::Subject;
use crate::management::{Api, Refusal};
use rehop::internals::Names;
use rehop::settings::Declare;

/// Asks for counts of now.
const LIVE: [(&str, &str); 2] = [("disable_stats", "true"), ("enable_queue_totals", "true")];
/// How many of somebody else's exchanges and queues are looked at on the way of dead-lettered
/// messages.
const MOST_PLACES: usize = 200;
const TOO_FAR: &str =
    "where dead-lettered messages go: more than 200 exchanges and queues are on their way";

impl Api {
    /// Everything that the checks need. What may not be seen is in the second value.
    ///
    /// # Errors
    ///
    /// When the API cannot be used at all.
    pub(super) async fn look(
        &self,
        subject: &Subject,
    ) -> Result<(Management, Vec<String>), String> {
        let (mut seen, mut unseen) = (Management::default(), Vec::new());
        // The first question also shows whether the API can be used.
        seen.wait_queues = self.wait_queues(&subject.names).await?;
        seen.wait_exchanges = self.wait_exchanges(&subject.names).await?;
        seen.consumers = self.consumers(&subject.names, &mut unseen).await?;
        for exchange in &subject.topology.exchanges {
            self.look_at_exchange(&exchange.name, &mut seen, &mut unseen).await?;
        }
        for queue in &subject.topology.queues {
            self.look_at_queue(&queue.name, &mut seen, &mut unseen).await?;
        }
        for exchange in other_dead_letter_exchanges(subject, &seen) {
            self.look_at_exchange(&exchange, &mut seen, &mut unseen).await?;
        }
        self.follow_dead_letters(subject, &mut seen, &mut unseen).await?;
        for binding in &subject.topology.exchange_bindings {
            let path = ["exchanges", &self.vhost, &binding.destination, "bindings", "destination"];
            let what = format!("bindings of exchange {:?}", binding.destination);
            let sources = self.get(&path).await;
            let sources = or_unseen(sources, &what, &mut unseen)?;
            seen.sources.extend(sources.map(|sources| (binding.destination.clone(), sources)));
        }
        let nodes = self.get::<Vec<Node>>(&["nodes"]).await;
        // Whoever may not see nodes is shown only connections of its own.
        let sees_all = nodes.is_ok();
        match nodes {
            Ok(nodes) => seen.nodes = nodes.unwrap_or_default(),
            Err(refusal) => unseen.push(refusal.of("nodes, their versions and alarms")),
        }
        match self.get::<Vec<Flag>>(&["feature-flags"]).await {
            Ok(flags) => seen.flags = flags.unwrap_or_default(),
            Err(refusal) => unseen.push(refusal.of("feature flags")),
        }
        seen.limits = self.limits(&mut unseen).await;
        if !sees_all && seen.limits.connections.take().is_some() {
            unseen.push("the connections of others".to_owned());
        }
        if seen.version().is_none() {
            seen.overview = self.get(&["overview"]).await.ok().flatten();
        }
        Ok((seen, unseen))
    }

    /// The limits of the user and the virtual host, and what there is of each. Whoever may not see
    /// one may see the others.
    async fn limits(&self, unseen: &mut Vec<String>) -> LimitsSeen {
        let (user, vhost) = (self.amqp_user.clone(), self.vhost.clone());
        let mut note = |refusal: Refusal, what: String| unseen.push(refusal.of(&what));
        let of_user = self.get(&["user-limits", &user]).await.map(Option::unwrap_or_default);
        let of_user = of_user.map_err(|it| note(it, format!("limits of user {user:?}"))).ok();
        let of_vhost = self.get(&["vhost-limits", &vhost]).await.map(Option::unwrap_or_default);
        let of_vhost =
            of_vhost.map_err(|it| note(it, format!("limits of virtual host {vhost:?}"))).ok();
        let mut url = self.address(&["connections"]);
        url.query_pairs_mut().append_pair("columns", "user,vhost,node,channels,channel_max");
        let connections = self.fetch(url).await.map(Option::unwrap_or_default);
        let connections = connections.map_err(|it| note(it, "connections".to_owned())).ok();
        let mut url = self.address(&["queues", &vhost]);
        url.query_pairs_mut().append_pair("page", "1").append_pair("page_size", "1");
        let queues = self.fetch::<Totals>(url).await;
        let queues = queues.map_err(|it| note(it, format!("queues of virtual host {vhost:?}")));
        let queues = queues.ok().flatten().and_then(|totals| totals.total_count);
        LimitsSeen { user, vhost, of_user, of_vhost, connections, queues }
    }

    pub(super) async fn queue(&self, name: &str) -> Result<Option<QueueDetails>, Refusal> {
        self.get(&["queues", &self.vhost, name]).await
    }

    /// Looks at a queue of the topology, and at its bindings.
    async fn look_at_queue(
        &self,
        name: &str,
        seen: &mut Management,
        unseen: &mut Vec<String>,
    ) -> Result<(), String> {
        match self.queue(name).await {
            Ok(None) => return Ok(()),
            Ok(Some(details)) => drop(seen.queues.insert(name.to_owned(), details)),
            Err(refusal) => {
                refusal.noted(&format!("queue {name:?}"), unseen)?;
                seen.refused.insert(Object::Queue(name.to_owned()));
                return Ok(());
            }
        }
        let what = format!("bindings of queue {name:?}");
        let bindings = or_unseen(self.bindings(name).await.map(Some), &what, unseen)?;
        seen.bindings.extend(bindings.map(|bindings| (name.to_owned(), bindings)));
        Ok(())
    }

    /// Looks at an exchange and at what it leads to. Returns whether it exists, as far as known.
    async fn look_at_exchange(
        &self,
        name: &str,
        seen: &mut Management,
        unseen: &mut Vec<String>,
    ) -> Result<bool, String> {
        let looked = async {
            let Some(details) = self.exchange(name).await? else { return Ok(None) };
            Ok(Some((details, self.destinations(name).await?)))
        };
        match looked.await {
            Ok(None) => return Ok(false),
            Ok(Some((details, destinations))) => {
                seen.destinations.insert(name.to_owned(), destinations);
                seen.exchanges.insert(name.to_owned(), details);
            }
            Err(refusal) => {
                Refusal::noted(refusal, &format!("exchange {name:?}"), unseen)?;
                seen.refused.insert(Object::Exchange(name.to_owned()));
            }
        }
        Ok(true)
    }

    /// The same for a queue that the settings do not name.
    async fn look_at_passed_queue(
        &self,
        name: &str,
        seen: &mut Management,
        unseen: &mut Vec<String>,
    ) -> Result<bool, String> {
        match self.queue(name).await {
            Ok(None) => return Ok(false),
            Ok(Some(details)) => drop(seen.passed.insert(name.to_owned(), details)),
            Err(refusal) => {
                refusal.noted(&format!("queue {name:?}"), unseen)?;
                seen.refused.insert(Object::Queue(name.to_owned()));
            }
        }
        Ok(true)
    }

    /// Follows what somebody else's work queues dead-letter, object by object.
    async fn follow_dead_letters(
        &self,
        subject: &Subject,
        seen: &mut Management,
        unseen: &mut Vec<String>,
    ) -> Result<(), String> {
        let mut looked = 0;
        loop {
            let existing =
                subject.configs.iter().filter(|config| config.declare == Declare::Existing);
            let all = existing.filter_map(|config| ways(&config.queue, seen, &subject.names));
            let is_new =
                |object: &Object| !seen.absent.contains(object) && !seen.refused.contains(object);
            let unknown: BTreeSet<_> = all.flat_map(|ways| ways.unknown).filter(is_new).collect();
            if unknown.is_empty() {
                return Ok(());
            }
            looked += unknown.len();
            if looked > MOST_PLACES {
                unseen.push(TOO_FAR.to_owned());
                return Ok(());
            }
            for object in unknown {
                let exists = match &object {
                    // An address with such a name would be that of the list of all.
                    Object::Queue(name) if name.is_empty() => false,
                    Object::Exchange(name) => self.look_at_exchange(name, seen, unseen).await?,
                    Object::Queue(name) => self.look_at_passed_queue(name, seen, unseen).await?,
                };
                if !exists {
                    seen.absent.insert(object);
                }
            }
        }
    }

    async fn exchange(&self, name: &str) -> Result<Option<ExchangeDetails>, Refusal> {
        self.get(&["exchanges", &self.vhost, name]).await
    }

    pub(super) async fn bindings(&self, queue: &str) -> Result<Vec<BindingDetails>, Refusal> {
        Ok(self.get(&["queues", &self.vhost, queue, "bindings"]).await?.unwrap_or_default())
    }

    /// The bindings that lead out of this exchange.
    async fn destinations(&self, exchange: &str) -> Result<Vec<BindingDetails>, Refusal> {
        let path = ["exchanges", &self.vhost, exchange, "bindings", "source"];
        Ok(self.get(&path).await?.unwrap_or_default())
    }

    /// How many messages a queue has, those included that the broker is dead-lettering. Unlike its
    /// statistics, which may be minutes old, these numbers come from the queue itself, each five
    /// seconds (3.10, 4.0 and 4.3).
    pub(super) async fn messages(&self, queue: &str) -> Result<Option<u64>, String> {
        let found: Vec<QueueDetails> = self.list("queues", queue, &LIVE).await?;
        Ok(found.into_iter().find(|found| found.name == queue).and_then(|found| found.messages))
    }

    /// The wait queues of the namespace, those of single queues included.
    async fn wait_queues(&self, names: &Names) -> Result<Vec<QueueDetails>, String> {
        let mut found: Vec<QueueDetails> = Vec::new();
        for prefix in [names.tier_prefix(), names.rung_prefix()] {
            let mut sampled: Vec<QueueDetails> = self.list("queues", &prefix, &[]).await?;
            // Without them, a prune still counts again before it deletes.
            let live: Vec<QueueDetails> =
                self.list("queues", &prefix, &LIVE).await.unwrap_or_default();
            let live: BTreeMap<_, _> = live.into_iter().map(|it| (it.name, it.messages)).collect();
            for queue in &mut sampled {
                // A sample may be from before a message came, and the other count leaves out what
                // a queue without a leader has. What the sample does not tell stays unknown.
                let now = live.get(&queue.name).copied().flatten();
                queue.messages = queue.messages.map(|then| then.max(now.unwrap_or_default()));
            }
            found.extend(sampled);
        }
        found.retain(|queue| names.of_wait_queue(&queue.name).is_some());
        Ok(found)
    }

    /// The exchanges that lead to wait queues. The one that leads to shared tiers is left out:
    /// every namespace has it.
    async fn wait_exchanges(&self, names: &Names) -> Result<Vec<ExchangeDetails>, String> {
        let mut found: Vec<ExchangeDetails> = Vec::new();
        for prefix in [names.after_prefix(), names.ladder(), names.tier_prefix()] {
            found.extend(self.list("exchanges", &prefix, &[]).await?);
        }
        found.retain(|exchange| {
            let name = exchange.name.as_str();
            names.of_after(name).is_some() || names.of_wait_exchange(name).is_some()
        });
        Ok(found)
    }

    /// The consumers of each work queue of the namespace. These are the queues that the return
    /// exchange leads to, so those are among them that other settings name.
    pub(super) async fn consumers(
        &self,
        names: &Names,
        unseen: &mut Vec<String>,
    ) -> Result<BTreeMap<String, Option<Vec<ConsumerDetails>>>, String> {
        let bound = self.destinations(&names.return_()).await.map_err(|it| it.of("bindings"))?;
        let mut found = BTreeMap::new();
        for binding in bound.into_iter().filter(|binding| binding.destination_type == "queue") {
            let queue = binding.destination;
            let subscriptions = match self.queue(&queue).await {
                // It was deleted meanwhile.
                Ok(None) => Some(Vec::new()),
                Ok(Some(details)) => details.subscriptions,
                Err(refusal) => {
                    refusal.noted(&format!("consumers of queue {queue:?}"), unseen)?;
                    None
                }
            };
            found.insert(queue, subscriptions);
        }
        Ok(found)
    }

    /// The queues or exchanges whose names contain this.
    async fn list<T: DeserializeOwned>(
        &self,
        kind: &'static str,
        part: &str,
        more: &[(&str, &str)],
    ) -> Result<Vec<T>, String> {
        #[derive(Deserialize)]
        struct Page<T> {
            items: Vec<T>,
            page_count: u32,
        }
        let (mut found, mut page) = (Vec::new(), 1);
        loop {
            let mut url = self.address(&[kind, &self.vhost]);
            // Without `use_regex` the name is matched anywhere.
            url.query_pairs_mut()
                .append_pair("name", part)
                .append_pair("page", &page.to_string())
                .append_pair("page_size", "100")
                .extend_pairs(more);
            let Some(Page { items, page_count }) =
                self.fetch(url).await.map_err(|refusal| refusal.of(kind))?
            else {
                return Err(format!("virtual host {:?} does not exist", self.vhost));
            };
            found.extend::<Vec<T>>(items);
            if page >= page_count {
                return Ok(found);
            }
            page += 1;
        }
    }
}

/// How many there are on all pages.
#[derive(Deserialize)]
struct Totals {
    total_count: Option<u64>,
}

/// The answer to one question. If only this has none, that is noted.
fn or_unseen<T>(
    answer: Result<Option<T>, Refusal>,
    what: &str,
    unseen: &mut Vec<String>,
) -> Result<Option<T>, String> {
    match answer {
        Ok(answer) => Ok(answer),
        Err(refusal) => refusal.noted(what, unseen).map(|()| None),
    }
}

/// The exchanges that the queues dead-letter to, but for those that the settings ask for. Most
/// often there are none.
fn other_dead_letter_exchanges(subject: &Subject, seen: &Management) -> BTreeSet<String> {
    let named = seen.queues.values().filter_map(QueueDetails::dead_letter_exchange);
    named.filter(|exchange| !subject.is_own_exchange(exchange)).map(str::to_owned).collect()
}

/// Which of two samples has fewer stuck messages: a busy queue always has some on their way, and a
/// stuck one keeps them.
pub(super) fn lasting(
    first: &mut BTreeMap<String, QueueDetails>,
    second: &BTreeMap<String, QueueDetails>,
) {
    for (name, details) in first {
        if let Some(later) = second.get(name) {
            details.messages_dlx = details.messages_dlx.min(later.messages_dlx);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use rehop::Settings;

    #[test]
    fn of_the_dead_letter_exchanges_those_are_looked_at_that_the_settings_do_not_ask_for() {
        let mut settings = Settings::default();
        settings.namespace = "ns".to_owned();
        let mut seen = Management::default();
        for exchange in ["ns.park", "", "theirs"] {
            let details = json!({ "arguments": { "x-dead-letter-exchange": exchange } });
            seen.queues.insert(format!("to {exchange}"), serde_json::from_value(details).unwrap());
        }
        let others = other_dead_letter_exchanges(&Subject::of(&settings).unwrap(), &seen);
        assert_eq!(others, BTreeSet::from(["theirs".to_owned()]));
    }

    #[test]
    fn only_what_is_stuck_in_both_samples_is_stuck() {
        let sample = |stuck: [u64; 2]| -> BTreeMap<String, QueueDetails> {
            let of = |stuck| QueueDetails { messages_dlx: Some(stuck), ..QueueDetails::default() };
            ["a", "b"]
                .into_iter()
                .zip(stuck)
                .map(|(name, stuck)| (name.to_owned(), of(stuck)))
                .collect()
        };
        let mut first = sample([3, 2]);
        lasting(&mut first, &sample([0, 5]));
        let stuck: Vec<_> = first.values().map(|details| details.messages_dlx).collect();
        assert_eq!(stuck, [Some(0), Some(2)]);
    }
}
