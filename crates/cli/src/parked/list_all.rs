//! `rehop parked list` without a queue: all queues of the namespace in which messages rest.

use std::process::ExitCode;

use rehop::Error;
use rehop_operator::parked::{ListRequest, Listing, Parked, ParkedError, Place, add_unlisted_queues};

use super::look::look;
use super::select::with_resolved_chains;
use super::{answers, text};
use crate::options::Options;
use crate::{exit, limits, output, signals};

/// Lists one queue after the other. One that cannot be looked at is named, and does not keep the others from being listed.
pub(super) async fn list(request: &ListRequest, is_json: bool, options: &Options) -> anyhow::Result<ExitCode> {
    let stop = signals::watch()?;
    let mut settings = options.settings()?;
    let mut unseen: Vec<_> = add_unlisted_queues(&mut settings).await.err().into_iter().collect();
    // Without the management API nobody expects them.
    let mut failed = if settings.broker.management_url.is_some() { unseen.len() } else { 0 };
    let work = settings.queues.iter().map(|queue| Place::queue(&queue.queue));
    let places = work.chain([Place::Stray, Place::Discarded]);
    let all = places.map(|place| Ok(Parked::open(&settings, place)?.stopped_by(stop.clone().cancelled_owned())));
    let all: Vec<Parked> = all.collect::<Result<_, ParkedError>>()?;
    let queues: Vec<_> = all.iter().map(|parked| parked.queue().to_owned()).collect();
    tokio::select! {
        () = limits::warn(&settings, &queues) => {}
        () = stop.cancelled() => return Err(ParkedError::Stopped.into()),
    }
    let mut listings = Vec::new();
    for parked in all {
        match list_one(&parked, request.clone()).await {
            Ok(listing) => listings.extend(listing),
            Err(error) if concerns_one_queue(&error) => {
                failed += 1;
                unseen.push(format!("{}: {error}", parked.queue()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if is_json {
        output::print(&text::json(&listings)?)?;
        unseen.iter().for_each(|unseen| output::notice(&format!("not seen: {unseen}")));
    } else {
        output::print(&shown(&listings, &unseen))?;
    }
    Ok(if failed > 0 { ExitCode::from(exit::UNFINISHED) } else { ExitCode::SUCCESS })
}

/// `None` if the queue does not exist: one that was never declared has no messages.
async fn list_one(parked: &Parked, mut request: ListRequest) -> Result<Option<Listing>, ParkedError> {
    let listed = async {
        request.filter = with_resolved_chains(parked, request.filter).await?;
        look(parked, &request).await
    };
    match listed.await {
        Err(ParkedError::Broker(Error::Missing { .. })) => Ok(None),
        listed => listed.map(Some),
    }
}

/// Whether other queues may be listed all the same.
fn concerns_one_queue(error: &ParkedError) -> bool {
    match error {
        ParkedError::Broker(error) => matches!(error, Error::Unavailable { .. } | Error::Permission { .. }),
        ParkedError::Stopped => false,
        _ => true,
    }
}

/// The queues that have messages, then those that have none, then what could not be seen.
fn shown(listings: &[Listing], unseen: &[String]) -> String {
    let (empty, full): (Vec<_>, Vec<_>) = listings.iter().partition(|listing| listing.depth == 0);
    let mut parts: Vec<_> = full.into_iter().map(answers::listing).collect();
    let names: Vec<_> = empty.iter().map(|listing| text::line(&listing.queue)).collect();
    let mut last = Vec::new();
    if !names.is_empty() {
        last.push(format!("empty: {}", names.join(", ")));
    } else if listings.is_empty() {
        last.push("none of these queues exists".to_owned());
    }
    last.extend(unseen.iter().map(|unseen| format!("not seen: {}", text::line(unseen))));
    if !last.is_empty() {
        parts.push(last.join("\n"));
    }
    parts.join("\n\n")
}
