//! The operator: repairs what was broken, and sends back the orders that met it.

use rehop_operator::parked::{Filter, Listing, Parked, Place, ReplayRequest, Replayed};

use super::client::Client;
use super::play::Play;
use super::policy::ORDERS;
use super::progress::Progress;
use super::script::BUG;
use super::traces::now_nanos;

/// A replay, and when it began.
#[derive(Debug)]
pub(crate) struct Replay {
    /// In nanoseconds since the epoch. The HTTP service was repaired then.
    pub(crate) began: u64,
    /// How many messages it was to send.
    pub(crate) expected: u64,
    pub(crate) ended: Replayed,
}

impl<C: Client> Play<C> {
    /// Repairs the HTTP service, and sends back what its bug has parked. Everything else stays
    /// parked.
    pub(crate) async fn replay(
        &self,
        listing: &Listing,
        progress: &mut Progress,
    ) -> anyhow::Result<Replay> {
        let met_bug =
            listing.groups.iter().filter(|group| group.kind.class.as_deref() == Some(BUG));
        let expected = met_bug.map(|group| group.count).sum();
        progress.event(&format!(
            "every order has ended, and {} are parked; the HTTP service's bug is repaired, and {expected} are sent back",
            listing.depth
        ));
        let (mut filter, mut request) = (Filter::default(), ReplayRequest::default());
        filter.class = Some(BUG.to_owned());
        (request.filter, request.expect) = (filter, Some(expected));
        let parked = Parked::open(&self.settings, Place::queue(ORDERS))?;
        let began = now_nanos();
        self.shop.repair();
        let ended = parked.replay(&request, |_| {}, std::future::pending()).await?;
        Ok(Replay { began, expected, ended })
    }
}
