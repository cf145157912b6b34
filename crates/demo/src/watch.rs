//! Watches the queues until every order has ended, and reports progress on standard error.

use std::collections::BTreeSet;
use std::time::Duration;

use rehop::topology::Role;
use rehop_operator::parked::{ListRequest, Listing, Parked, Place};
use tokio::time::{Instant, sleep};

use super::account::Found;
use super::client::{Client, Taken};
use super::lock::lock;
use super::parked;
use super::play::Play;
use super::policy::{ORDERS, REFUNDS, STRAY};
use super::progress::Progress;
use super::script::{Fate, id_of};

/// How long nothing may happen before the demo reports what it has found, although orders are
/// missing.
const MISSING: Duration = Duration::from_secs(40);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What was found when every order had ended. The parked messages are still in their queues.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) found: Vec<Found>,
    /// The parked messages of the queue `orders`, in groups, whose examples are orders.
    pub(crate) listing: Listing,
    /// The same, as the tool prints it.
    pub(crate) listed: String,
}

impl<C: Client> Play<C> {
    /// Waits until every order has ended.
    pub(crate) async fn watch(&self, progress: &mut Progress) -> anyhow::Result<Seen> {
        let (mut strays, mut out, mut crashes) = (Vec::new(), false, 0);
        let (mut before, mut changed_at) = (None, Instant::now());
        loop {
            if self.shop.is_out() != out {
                out = !out;
                progress.event(if out {
                    "the HTTP service goes down: it answers every request with an error"
                } else {
                    "the HTTP service is back"
                });
            }
            let crashed: Vec<_> =
                lock(&self.crashes).iter().skip(crashes).map(|crash| crash.order).collect();
            for order in crashed {
                crashes += 1;
                progress.event(&format!(
                    "order {order} kills the process that handles it (crash {crashes}), which is restarted"
                ));
            }
            strays.extend(self.strays().await?);
            let parked = self.depth(Role::Parked).await?;
            let kept = strays.len() + parked;
            let waiting = self.depth(Role::Wait).await?;
            let (published, handled) = (lock(&self.sent).len(), self.shop.handled());
            progress.update(&format!(
                "{published} of {} published, {} handled, {waiting} waiting, {kept} parked or stray, {crashes} crashes",
                self.orders.len(),
                handled.len()
            ));
            if published == self.orders.len() {
                let now = Some((kept, waiting, handled.len(), crashes, self.shop.log().len()));
                if before != now {
                    (before, changed_at) = (now, Instant::now());
                }
                let is_late = changed_at.elapsed() > MISSING;
                // A look takes the messages from their queue for a moment, so counting comes first.
                if is_late || handled.len() + kept >= published && self.is_still(parked).await? {
                    let seen = self.look(&strays).await?;
                    let ended: BTreeSet<u32> =
                        seen.found.iter().filter_map(|(order, _)| *order).collect();
                    // A duplicate may have been with its handler, where nobody sees it, at the
                    // first count but not at both.
                    if is_late
                        || (&ended | &handled).len() == published && self.is_still(parked).await?
                    {
                        return Ok(seen);
                    }
                }
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Whether nothing waits or is ready to be consumed, and this many messages are parked.
    async fn is_still(&self, parked: usize) -> anyhow::Result<bool> {
        let moving = self.depth(Role::Wait).await? + self.depth(Role::Work).await?;
        Ok(moving == 0 && self.depth(Role::Parked).await? == parked)
    }

    /// Looks at the parked messages as an operator does, which leaves them where they are.
    async fn look(&self, strays: &[Found]) -> anyhow::Result<Seen> {
        let (mut orders, refunds) = (self.list(ORDERS).await?, self.list(REFUNDS).await?);
        name_orders(&mut orders);
        let messages = std::mem::take(&mut orders.messages).into_iter().chain(refunds.messages);
        let parked = messages.map(|message| {
            (
                message.message_id.as_deref().and_then(id_of),
                Fate::parked(Some(message.reason.as_str())),
            )
        });
        let found = parked.chain(strays.iter().cloned()).collect();
        Ok(Seen { found, listed: parked::listing(&orders), listing: orders })
    }

    async fn list(&self, queue: &str) -> anyhow::Result<Listing> {
        let mut request = ListRequest::default();
        (request.scan, request.rows) = (None, usize::MAX);
        let parked = Parked::open(&self.settings, Place::queue(queue))?;
        Ok(parked.list(&request).await?)
    }

    /// Takes the strays out of their queue.
    async fn strays(&self) -> anyhow::Result<Vec<Found>> {
        Ok(self
            .client
            .take_all(STRAY)
            .await?
            .iter()
            .map(|message| message.with(Fate::Stray))
            .collect())
    }

    /// Takes everything out of all queues, after consuming has stopped.
    pub(crate) async fn empty(&self) -> anyhow::Result<Vec<Found>> {
        let mut found = self.strays().await?;
        for queue in self.queues(Role::Parked) {
            found.extend(self.client.take_all(queue).await?.iter().map(Taken::parked));
        }
        for queue in [self.queues(Role::Wait), self.queues(Role::Work)].concat() {
            found.extend(
                self.client.take_all(queue).await?.iter().map(|message| message.with(Fate::Left)),
            );
        }
        Ok(found)
    }
}

/// The chain of a message with a trace has an id too long for a narrow terminal, so the orders' own
/// ids stand for their chains.
fn name_orders(listing: &mut Listing) {
    for sample in listing.groups.iter_mut().flat_map(|group| &mut group.samples) {
        let message = listing.messages.iter().find(|message| message.chain == *sample);
        if let Some(order) = message.and_then(|message| message.message_id.clone()) {
            *sample = order;
        }
    }
}
