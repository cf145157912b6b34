//! Everything that was seen of the run, for the report to read.

use std::collections::BTreeMap;

use rehop::testing::{Client, Received};

use super::account::Evidence;
use super::script::{Fate, Order, PARKED, QUEUE, STRAY, id_of, wait_queues};
use super::shop::Request;
use super::spans::Span;
use super::supervisor::Crash;

/// An order that the broker has confirmed.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) order: Order,
    /// When it was published, in nanoseconds since the epoch.
    pub(super) at: u64,
    pub(super) trace_id: String,
}

/// A message that was read from a queue in which messages end.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) order: Option<u32>,
    pub(super) fate: Fate,
}

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Witness {
    pub(super) sent: BTreeMap<u32, Sent>,
    pub(super) requests: Vec<Request>,
    pub(super) found: Vec<Found>,
    pub(super) left: Vec<Option<u32>>,
    pub(super) crashes: Vec<Crash>,
    pub(super) spans: Vec<Span>,
}

impl Witness {
    pub(super) fn evidence(&self) -> Evidence {
        Evidence {
            published: self.sent.iter().map(|(id, sent)| (*id, sent.order.kind.fate())).collect(),
            handled: self.requests.iter().filter(|request| request.is_success()).map(|request| request.order).collect(),
            found: self.found.iter().map(|found| (found.order, found.fate.clone())).collect(),
            left: self.left.clone(),
        }
    }

    /// An order's requests, in order.
    pub(super) fn requests_of(&self, order: u32) -> Vec<&Request> {
        let mut requests: Vec<_> = self.requests.iter().filter(|request| request.order == order).collect();
        requests.sort_by_key(|request| request.at);
        requests
    }

    /// The spans of an order's trace, by their start.
    pub(super) fn spans_of(&self, order: u32) -> Vec<&Span> {
        let Some(sent) = self.sent.get(&order) else { return Vec::new() };
        let mut spans: Vec<_> = self.spans.iter().filter(|span| span.trace_id == sent.trace_id).collect();
        spans.sort_by_key(|span| (span.start, span.end));
        spans
    }
}

/// Takes what has ended out of the parked queue and the stray queue.
pub(super) async fn collect(client: &Client, found: &mut Vec<Found>) -> anyhow::Result<()> {
    found.extend(
        client
            .get_all(PARKED)
            .await?
            .iter()
            .map(|message| Found { order: order_of(message), fate: parked_fate(message) }),
    );
    found.extend(
        client.get_all(STRAY).await?.iter().map(|message| Found { order: order_of(message), fate: Fate::Stray }),
    );
    Ok(())
}

/// Takes what has not ended, once nobody consumes any more.
pub(super) async fn leftovers(client: &Client) -> anyhow::Result<Vec<Option<u32>>> {
    let mut left = Vec::new();
    for queue in wait_queues().chain([QUEUE.to_owned()]) {
        left.extend(client.get_all(&queue).await?.iter().map(order_of));
    }
    Ok(left)
}

/// How many messages wait now.
pub(super) async fn waiting(client: &Client) -> anyhow::Result<u32> {
    let mut waiting = 0;
    for queue in wait_queues() {
        waiting += client.depth(&queue).await?;
    }
    Ok(waiting)
}

fn order_of(message: &Received) -> Option<u32> {
    id_of(message.properties.message_id.as_deref()?)
}

/// rehop gives its reason in a header of its own; what the broker parked has only the broker's `x-death`.
fn parked_fate(message: &Received) -> Fate {
    let death = || message.headers.get("x-death")?.get(0)?.get("reason")?.as_str();
    match message.headers.get("rehop-reason").and_then(serde_json::Value::as_str).or_else(death) {
        Some("expired") => Fate::Expired,
        Some(reason) => Fate::Parked(reason.to_owned()),
        None => Fate::Parked("no reason given".to_owned()),
    }
}
