//! What the doctor asks the management API.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::dead_letters::ways;
use super::observed::{
    BindingDetails, ExchangeDetails, Flag, Management, Node, Place, QueueDetails, Subscription,
};
use super::subject::Subject;
use crate::management::Api;
use rehop::internals::Names;
use rehop::settings::Declare;

/// How many of somebody else's exchanges and queues are looked at on the way of dead-lettered
/// messages.
const MOST_PLACES: usize = 200;
const TOO_FAR: &str =
    "where dead-lettered messages go: more than 200 exchanges and queues are on their way";

/// Whether no address of the API can name such an exchange or queue: it is left out of a path.
fn is_unaddressable(name: &str) -> bool {
    matches!(name, "." | "..")
}

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
        let mut seen = Management::default();
        let mut unseen = Vec::new();
        // The first question also shows whether the API can be used.
        seen.wait_queues = self.wait_queues(&subject.names).await?;
        seen.wait_exchanges = self.wait_exchanges(&subject.names).await?;
        seen.consumers = self.consumers(&subject.names).await?;
        for exchange in &subject.topology.exchanges {
            self.look_at_exchange(&exchange.name, &mut seen).await?;
        }
        for queue in &subject.topology.queues {
            if let Some(details) = self.queue(&queue.name).await? {
                seen.queues.insert(queue.name.clone(), details);
                seen.bindings.insert(queue.name.clone(), self.bindings(&queue.name).await?);
            }
        }
        for exchange in other_dead_letter_exchanges(subject, &seen) {
            self.look_at_exchange(&exchange, &mut seen).await?;
        }
        unseen.extend(self.follow_dead_letters(subject, &mut seen).await?);
        for binding in &subject.topology.exchange_bindings {
            let path = ["exchanges", &self.vhost, &binding.destination, "bindings", "destination"];
            let sources = self.get(&path).await.map_err(|it| it.of("bindings"))?;
            seen.sources.insert(binding.destination.clone(), sources.unwrap_or_default());
        }
        match self.get::<Vec<Node>>(&["nodes"]).await {
            Ok(nodes) => seen.nodes = nodes.unwrap_or_default(),
            Err(refusal) => unseen.push(refusal.of("nodes, their versions and alarms")),
        }
        match self.get::<Vec<Flag>>(&["feature-flags"]).await {
            Ok(flags) => seen.flags = flags.unwrap_or_default(),
            Err(refusal) => unseen.push(refusal.of("feature flags")),
        }
        Ok((seen, unseen))
    }

    pub(super) async fn queue(&self, name: &str) -> Result<Option<QueueDetails>, String> {
        self.get(&["queues", &self.vhost, name]).await.map_err(|refusal| refusal.of("queues"))
    }

    /// Looks at an exchange and at what it leads to. Returns whether it exists.
    async fn look_at_exchange(&self, name: &str, seen: &mut Management) -> Result<bool, String> {
        if is_unaddressable(name) {
            return Ok(false);
        }
        let Some(details) = self.exchange(name).await? else { return Ok(false) };
        seen.destinations.insert(name.to_owned(), self.destinations(name).await?);
        seen.exchanges.insert(name.to_owned(), details);
        Ok(true)
    }

    /// The same for a queue that the settings do not name.
    async fn look_at_passed_queue(
        &self,
        name: &str,
        seen: &mut Management,
    ) -> Result<bool, String> {
        let Some(details) = self.queue(name).await? else { return Ok(false) };
        seen.passed.insert(name.to_owned(), details);
        Ok(true)
    }

    /// Follows what somebody else's work queues dead-letter, place by place. Returns what could not
    /// be seen.
    async fn follow_dead_letters(
        &self,
        subject: &Subject,
        seen: &mut Management,
    ) -> Result<Option<String>, String> {
        let mut looked = 0;
        loop {
            let existing =
                subject.configs.iter().filter(|config| config.declare == Declare::Existing);
            let all = existing.filter_map(|config| ways(&config.queue, seen, &subject.names));
            let unknown: BTreeSet<_> = all.flat_map(|ways| ways.unknown).collect();
            let unknown: Vec<_> = unknown.difference(&seen.absent).cloned().collect();
            if unknown.is_empty() {
                return Ok(None);
            }
            looked += unknown.len();
            if looked > MOST_PLACES {
                return Ok(Some(TOO_FAR.to_owned()));
            }
            for place in unknown {
                let exists = match &place {
                    // An address with such a name would be that of the list of all.
                    Place::Queue(name) if name.is_empty() => false,
                    Place::Queue(name) if is_unaddressable(name) => {
                        seen.passed.insert(name.clone(), QueueDetails::default());
                        true
                    }
                    Place::Exchange(name) => self.look_at_exchange(name, seen).await?,
                    Place::Queue(name) => self.look_at_passed_queue(name, seen).await?,
                };
                if !exists {
                    seen.absent.insert(place);
                }
            }
        }
    }

    async fn exchange(&self, name: &str) -> Result<Option<ExchangeDetails>, String> {
        self.get(&["exchanges", &self.vhost, name]).await.map_err(|refusal| refusal.of("exchanges"))
    }

    pub(super) async fn bindings(&self, queue: &str) -> Result<Vec<BindingDetails>, String> {
        let bindings = self
            .get(&["queues", &self.vhost, queue, "bindings"])
            .await
            .map_err(|it| it.of("bindings"))?;
        Ok(bindings.unwrap_or_default())
    }

    /// The bindings that lead out of this exchange.
    async fn destinations(&self, exchange: &str) -> Result<Vec<BindingDetails>, String> {
        let path = ["exchanges", &self.vhost, exchange, "bindings", "source"];
        let bindings = self.get(&path).await.map_err(|it| it.of("bindings"))?;
        Ok(bindings.unwrap_or_default())
    }

    /// The wait queues of the namespace, those of single queues included.
    async fn wait_queues(&self, names: &Names) -> Result<Vec<QueueDetails>, String> {
        let mut found: Vec<QueueDetails> = Vec::new();
        for prefix in [names.tier_prefix(), names.rung_prefix()] {
            found.extend(self.list("queues", &prefix).await?);
        }
        found.retain(|queue| names.of_wait_queue(&queue.name).is_some());
        Ok(found)
    }

    /// The exchanges that lead to wait queues. The one that leads to shared tiers is left out: every
    /// namespace has it.
    async fn wait_exchanges(&self, names: &Names) -> Result<Vec<ExchangeDetails>, String> {
        let mut found: Vec<ExchangeDetails> = Vec::new();
        for prefix in [names.after_prefix(), names.ladder(), names.tier_prefix()] {
            found.extend(self.list("exchanges", &prefix).await?);
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
    ) -> Result<BTreeMap<String, Vec<Subscription>>, String> {
        let mut found = BTreeMap::new();
        for binding in self.destinations(&names.return_()).await? {
            if binding.destination_type == "queue" {
                let details = self.queue(&binding.destination).await?;
                found.insert(
                    binding.destination,
                    details.map(|details| details.subscriptions).unwrap_or_default(),
                );
            }
        }
        Ok(found)
    }

    /// The queues or exchanges whose names contain this.
    async fn list<T: DeserializeOwned>(
        &self,
        kind: &'static str,
        part: &str,
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
                .append_pair("page_size", "100");
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
    fn only_names_that_are_left_out_of_a_path_have_no_address() {
        for (name, expected) in
            [(".", true), ("..", true), ("...", false), ("a.", false), ("", false)]
        {
            assert_eq!(is_unaddressable(name), expected, "{name:?}");
        }
    }

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
            let of = |messages_dlx| QueueDetails { messages_dlx, ..QueueDetails::default() };
            ["a", "b"]
                .into_iter()
                .zip(stuck)
                .map(|(name, stuck)| (name.to_owned(), of(stuck)))
                .collect()
        };
        let mut first = sample([3, 2]);
        lasting(&mut first, &sample([0, 5]));
        assert_eq!(first.values().map(|details| details.messages_dlx).collect::<Vec<_>>(), [0, 2]);
    }
}
