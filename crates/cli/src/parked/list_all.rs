//! `rehop parked list` without a queue: all queues of the namespace in which messages rest.

use std::collections::HashSet;
use std::process::ExitCode;

use rehop::{Error, Settings};
use rehop_operator::doctor::{Finding, harm_of_looking};
use rehop_operator::parked::{
    ListRequest, Listing, Parked, ParkedError, Place, add_unlisted_queues,
};
use tokio_util::sync::CancellationToken;

use super::progress::list_with_progress;
use super::{answers, text};
use crate::options::Options;
use crate::{exit, output, signals};

/// Lists one queue after the other. One that cannot be looked at is named, and does not keep the
/// others from being listed.
pub(super) async fn list(
    request: &ListRequest,
    is_json: bool,
    options: &Options,
) -> anyhow::Result<ExitCode> {
    let stop = signals::watch()?;
    let mut settings = options.settings()?;
    let mut all = All::default();
    tokio::select! {
        added = add_unlisted_queues(&mut settings) => match added {
            Ok(left_out) => all.unseen.extend(left_out),
            // Without the management API nobody expects it to be used.
            Err(unseen) if settings.broker.management_url.is_none() => all.unseen.push(unseen),
            Err(unseen) => all.fail(unseen),
        },
        () = stop.cancelled() => return Err(ParkedError::Stopped.into()),
    }
    let work = settings.queues.iter().map(|queue| Place::queue(&queue.queue));
    let mut listed = HashSet::new();
    for place in work.chain([Place::Stray, Place::Discarded]) {
        let parked = Parked::open(&settings, place)?.stopped_by(stop.clone().cancelled_owned());
        // Work queues may share a parked queue.
        if listed.insert(parked.queue().to_owned())
            && let Err(error) = all.add(&parked, &settings, request, &stop).await
        {
            if !is_json && !all.listings.is_empty() {
                output::print(&all.shown())?;
            }
            return Err(error.into());
        }
    }
    if is_json {
        output::print(&text::json(&all.listings)?)?;
        all.unseen.iter().for_each(|unseen| output::notice(&format!("not seen: {unseen}")));
    } else {
        output::print(&all.shown())?;
    }
    Ok(if all.has_failed { ExitCode::from(exit::UNFINISHED) } else { ExitCode::SUCCESS })
}

/// What is seen of all queues.
#[derive(Default)]
struct All {
    listings: Vec<Listing>,
    /// What could not be seen, and why.
    unseen: Vec<String>,
    /// Whether something could not be seen that was asked for.
    has_failed: bool,
    /// Whether the management API could not say what policies set. It is not asked again, because
    /// that would fail in the same way.
    is_blind: bool,
}

impl All {
    fn fail(&mut self, unseen: String) {
        self.unseen.push(unseen);
        self.has_failed = true;
    }

    /// Lists a queue. One that does not exist was never declared, and has no messages. A list that
    /// nobody has asked for by the queue's name does not look where a look does harm.
    async fn add(
        &mut self,
        parked: &Parked,
        settings: &Settings,
        request: &ListRequest,
        stop: &CancellationToken,
    ) -> Result<(), ParkedError> {
        let harm = match self.is_blind {
            true => Ok(None),
            false => tokio::select! {
                harm = harm_of_looking(settings, parked.queue()) => harm,
                () = stop.cancelled() => return Err(ParkedError::Stopped),
            },
        };
        match harm {
            Ok(None) => {}
            Ok(Some(Finding { object, seen, remedy, .. })) => {
                self.fail(format!("{object}, because looking may do harm: {seen}; {remedy}"));
                return Ok(());
            }
            Err(error) => {
                self.is_blind = true;
                self.fail(format!("policies under which a look does harm: {error}"));
            }
        }
        match list_with_progress(parked, request).await {
            Ok(listing) => self.listings.push(listing),
            Err(ParkedError::Broker(Error::Missing { .. })) => {}
            Err(error) if concerns_all_queues(&error) => return Err(error),
            Err(error) => self.fail(format!("{}: {error}", parked.queue())),
        }
        Ok(())
    }

    /// The queues that have messages, then those that have none, then what could not be seen.
    fn shown(&self) -> String {
        let (empty, full): (Vec<_>, Vec<_>) =
            self.listings.iter().partition(|listing| listing.depth == 0);
        let mut parts: Vec<_> = full.into_iter().map(answers::listing).collect();
        let names: Vec<_> = empty.iter().map(|listing| text::line(&listing.queue)).collect();
        let mut last = Vec::new();
        if !names.is_empty() {
            last.push(format!("empty: {}", names.join(", ")));
        } else if self.listings.is_empty() && !self.has_failed {
            last.push("none of these queues exists".to_owned());
        }
        last.extend(self.unseen.iter().map(|unseen| format!("not seen: {}", text::line(unseen))));
        if !last.is_empty() {
            parts.push(last.join("\n"));
        }
        parts.join("\n\n")
    }
}

/// Whether no other queue could be listed either.
fn concerns_all_queues(error: &ParkedError) -> bool {
    match error {
        ParkedError::Stopped => true,
        ParkedError::Broker(error) => matches!(
            error,
            Error::Settings(_)
                | Error::Connect { .. }
                | Error::ConnectAny { .. }
                | Error::Login { .. }
                | Error::Limit { .. }
                | Error::Tls { .. }
        ),
        _ => false,
    }
}
