//! Lists: what is in a queue, in groups.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::parked::error::ParkedError;
use crate::parked::filter::{Content, Filter};
use crate::parked::group::{Group, Groups};
use crate::parked::mask::headers_json;
use crate::parked::message::ParkedMessage;
use crate::parked::operator::{Parked, Scanned};
use crate::parked::progress::StopSignal;
use crate::parked::queue_head::Held;
use crate::parked::ramp::{Ramp, Stop};
use crate::parked::session::OperatorSession;
use crate::parked::ways::exists;

/// What to list.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ListRequest {
    /// Which messages.
    pub filter: Filter,
    /// How many messages to look at, at most, from the head of the queue. `None`: all. Default
    /// 1,000.
    pub scan: Option<u64>,
    /// How many messages to return one by one at most. All that match are in the groups. Default 0.
    pub rows: usize,
    /// The operation that this list plans. Each queue that its messages would go to is looked up;
    /// the broker logs an error for each that does not exist. In a wrong namespace, the plan of a
    /// discard or restore fails as the operation would. Default `None`.
    pub planned: Option<Planned>,
}

/// An operation that moves messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Planned {
    /// [`Parked::replay`](crate::parked::Parked::replay): messages go to their work queues.
    Replay,
    /// [`Parked::restore`](crate::parked::Parked::restore): messages go back to the queues that
    /// they were discarded from.
    Restore,
    /// [`Parked::discard`](crate::parked::Parked::discard): messages go to the discarded queue,
    /// which needs no looking up.
    Discard,
}

impl Default for ListRequest {
    fn default() -> Self {
        Self { filter: Filter::default(), scan: Some(1_000), rows: 0, planned: None }
    }
}

impl ListRequest {
    /// All messages that pass, in groups.
    pub fn all(filter: Filter) -> Self {
        Self { filter, scan: None, ..Self::default() }
    }
}

/// What is in a queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Listing {
    /// The queue in which the messages rest.
    pub queue: String,
    /// The work queue whose parked queue it is; `None` for stray and discarded messages.
    pub work_queue: Option<String>,
    /// How many there are.
    pub depth: u64,
    /// How many of them were looked at: fewer if [`scan`](ListRequest::scan) or the filter's limit
    /// was reached, if messages were held for half of `broker.consumer_timeout`, or if others took
    /// some.
    pub looked_at: u64,
    /// How many of those match.
    pub matched: u64,
    /// The matching messages in groups, the largest first.
    pub groups: Vec<Group>,
    /// How many would go to each queue by the [planned operation](ListRequest::planned), or else by
    /// a replay.
    pub destinations: BTreeMap<String, u64>,
    /// How many would go to other queues than the [first](Self::MOST_DESTINATIONS). Whether those
    /// exist is not checked.
    pub other_destinations: u64,
    /// How many would go to each queue that does not exist, if an operation is
    /// [planned](ListRequest::planned). It leaves them where they are, except that a replay fails
    /// if it is the queue that the operator named.
    pub missing_destinations: BTreeMap<String, u64>,
    /// How many do not say which queue they would go to. The operation leaves them where they are,
    /// too.
    pub without_destination: u64,
    /// The first of them, one by one.
    pub messages: Vec<ParkedMessage>,
}

impl Listing {
    /// At most this many queues are counted separately, because stray messages may name any number.
    pub const MOST_DESTINATIONS: usize = 1_000;
}

/// After so many messages what was seen is shown for the first time.
const FIRST_SHOWN: u64 = 1_000;
/// How often it is shown after that.
const SHOWN_EVERY: Duration = Duration::from_millis(500);

type ObserveListing<'a> = &'a mut (dyn FnMut(&Listing) + Send);

impl Parked {
    /// Groups the messages of the queue. They stay in it, in their order. RabbitMQ 3.10 and 4.0
    /// count each look as a delivery.
    ///
    /// # Errors
    ///
    /// When the broker is unreachable, the queue does not exist, somebody else works on it, looking
    /// could do harm, or it was [told to stop](Self::stopped_by).
    pub async fn list(&self, request: &ListRequest) -> Result<Listing, ParkedError> {
        self.list_with(request, None).await
    }

    /// As [`list`](Self::list). `observe` is shown what was seen so far: after the first 1,000
    /// messages, and then twice a second.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub async fn list_observed(
        &self,
        request: &ListRequest,
        mut observe: impl FnMut(&Listing) + Send,
    ) -> Result<Listing, ParkedError> {
        self.list_with(request, Some(&mut observe)).await
    }

    async fn list_with(
        &self,
        request: &ListRequest,
        observe: Option<ObserveListing<'_>>,
    ) -> Result<Listing, ParkedError> {
        let session = self.session().await?;
        let listed = self.plan_in(&session, request, observe).await;
        session.close().await;
        listed
    }

    /// A list, with the checks that the operation that it plans would make.
    async fn plan_in(
        &self,
        session: &OperatorSession,
        request: &ListRequest,
        observe: Option<ObserveListing<'_>>,
    ) -> Result<Listing, ParkedError> {
        if let Some(Planned::Discard | Planned::Restore) = request.planned {
            // A missing queue must not be declared.
            session.depth(&self.queue).await?;
            self.check_way_back(session).await?;
        }
        let (listing, _) = self.list_in(session, request, &mut self.stop.clone(), observe).await?;
        match request.planned {
            Some(Planned::Replay | Planned::Restore) => {
                self.check_destinations(session, listing).await
            }
            Some(Planned::Discard) | None => Ok(listing),
        }
    }

    /// Tells the queues that do not exist, or cannot be served, from those that do.
    async fn check_destinations(
        &self,
        session: &OperatorSession,
        mut listing: Listing,
    ) -> Result<Listing, ParkedError> {
        for (queue, count) in std::mem::take(&mut listing.destinations) {
            let looked = tokio::select! {
                biased;
                () = self.stop.clone() => return Err(ParkedError::Stopped),
                looked = exists(session, &queue) => looked,
            };
            if looked? {
                listing.destinations.insert(queue, count);
            } else {
                listing.missing_destinations.insert(queue, count);
            }
        }
        Ok(listing)
    }

    pub(super) async fn list_in(
        &self,
        session: &OperatorSession,
        request: &ListRequest,
        stop: StopSignal<'_>,
        mut observe: Option<ObserveListing<'_>>,
    ) -> Result<(Listing, Scanned), ParkedError> {
        let mut builder = ListingBuilder::new(&self.queue, self.work_queue(), request);
        let depth = if observe.is_some() { session.depth(&self.queue).await? } else { 0 };
        let mut shown_at = None::<Instant>;
        let scanned = self
            .scan(session, request.scan, stop, |message, held| {
                let position = message.position;
                builder.add(message, held);
                let is_due =
                    shown_at.map_or(position >= FIRST_SHOWN, |at| at.elapsed() >= SHOWN_EVERY);
                if let Some(observe) = observe.as_mut().filter(|_| is_due) {
                    shown_at = Some(Instant::now());
                    observe(&builder.listing(depth.max(position), position));
                }
                if builder.is_enough() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .await?;
        Ok((builder.listing(scanned.depth, scanned.looked_at), scanned))
    }

    /// Stops a ramp before it begins if the number of messages that match is not the expected one,
    /// or if the count is told to stop.
    pub(super) async fn check_expected(
        &self,
        session: &OperatorSession,
        (filter, expected): (&Filter, Option<u64>),
        ramp: &mut Ramp,
        stop: StopSignal<'_>,
    ) -> Result<(), ParkedError> {
        let Some(expected) = expected else { return Ok(()) };
        match self.list_in(session, &ListRequest::all(filter.clone()), stop, None).await {
            Ok((Listing { matched, .. }, scanned)) if matched == expected => {
                scanned.complete(&self.queue)?
            }
            Ok((Listing { matched: found, .. }, _)) => ramp.stop(Stop::Unexpected { found }),
            Err(ParkedError::Stopped) => ramp.stop(Stop::Requested),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Builds a listing from the messages as they come.
struct ListingBuilder<'a> {
    queue: &'a str,
    work_queue: Option<&'a str>,
    request: &'a ListRequest,
    matched: u64,
    groups: Groups,
    destinations: Destinations,
    messages: Vec<ParkedMessage>,
}

impl<'a> ListingBuilder<'a> {
    fn new(queue: &'a str, work_queue: Option<&'a str>, request: &'a ListRequest) -> Self {
        Self {
            queue,
            work_queue,
            request,
            matched: 0,
            groups: Groups::default(),
            destinations: Destinations::default(),
            messages: Vec::new(),
        }
    }

    fn is_enough(&self) -> bool {
        self.request.filter.limit.is_some_and(|limit| self.matched >= limit)
    }

    fn add(&mut self, message: ParkedMessage, held: &Held) {
        let headers = || headers_json(&held.delivery.properties);
        let content = Content::new(&held.delivery.data, &headers);
        if self.is_enough() || !self.request.filter.passes(&message, &content) {
            return;
        }
        self.matched += 1;
        self.groups.add(&message);
        self.destinations.add(match self.request.planned {
            Some(Planned::Restore) => message.discarded_from.as_deref(),
            Some(Planned::Replay | Planned::Discard) | None => message.destination.as_deref(),
        });
        if self.messages.len() < self.request.rows {
            self.messages.push(message);
        }
    }

    fn listing(&self, depth: u64, looked_at: u64) -> Listing {
        Listing {
            queue: self.queue.to_owned(),
            work_queue: self.work_queue.map(str::to_owned),
            depth,
            looked_at,
            matched: self.matched,
            groups: self.groups.clone().into_sorted(),
            destinations: self.destinations.told_apart.clone(),
            other_destinations: self.destinations.others,
            missing_destinations: BTreeMap::new(),
            without_destination: self.destinations.none,
            messages: self.messages.clone(),
        }
    }
}

/// How many messages would go to each queue.
#[derive(Debug, Clone, Default)]
struct Destinations {
    /// By queue: the first that were named.
    told_apart: BTreeMap<String, u64>,
    /// How many would go to further queues.
    others: u64,
    /// How many do not say which queue they would go to.
    none: u64,
}

impl Destinations {
    fn add(&mut self, queue: Option<&str>) {
        let Some(queue) = queue else {
            self.none += 1;
            return;
        };
        if let Some(count) = self.told_apart.get_mut(queue) {
            *count += 1;
        } else if self.told_apart.len() < Listing::MOST_DESTINATIONS {
            self.told_apart.insert(queue.to_owned(), 1);
        } else {
            self.others += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_all_is_bounded_by_its_filter_alone() {
        let filter = Filter { limit: Some(7), ..Filter::chain("chain-7") };
        assert_eq!(
            ListRequest::all(filter.clone()),
            ListRequest { filter, scan: None, rows: 0, planned: None }
        );
    }

    #[test]
    fn the_number_of_destinations_is_bounded_and_no_message_goes_uncounted() {
        let mut destinations = Destinations::default();
        for number in 0..2 * Listing::MOST_DESTINATIONS {
            destinations.add(Some(&format!("queue-{number}")));
            destinations.add(Some("queue-0"));
            destinations.add(None);
        }
        let Destinations { told_apart, others, none } = destinations;
        assert_eq!(
            (told_apart.len(), told_apart["queue-0"], told_apart["queue-999"]),
            (1_000, 2_001, 1)
        );
        assert_eq!((told_apart.values().sum::<u64>(), others, none), (2_000 + 1_000, 1_000, 2_000));
    }
}
