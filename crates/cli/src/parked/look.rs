//! A look at a queue that shows how far it is.

use rehop_operator::parked::{ListRequest, Listing, Parked, ParkedError};

use super::progress::Printer;

/// Lists the messages, and prints its progress.
pub(super) async fn look(parked: &Parked, request: &ListRequest) -> Result<Listing, ParkedError> {
    let mut printer = Printer::new();
    let wanted = |depth: u64| request.scan.map_or(depth, |scan| scan.min(depth));
    let listing = parked
        .list_observed(request, |seen| printer.looked(seen.looked_at, wanted(seen.depth)))
        .await;
    printer.end();
    listing
}
