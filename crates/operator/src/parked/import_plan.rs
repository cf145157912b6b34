//! What an import would do: the import itself, without what it publishes and declares.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Serialize;

use crate::parked::error::ParkedError;
use crate::parked::export::Exported;
use crate::parked::operator::Parked;
use crate::parked::place::Place;
use crate::parked::present::{Present, identity};
use crate::parked::session::Session;
use rehop::Error;
use rehop::internals::Room;

/// What an import would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ImportPlan {
    /// How many messages would be published to the queue.
    pub to_import: u64,
    /// How many would be left out because the queue has them, by chain and body.
    pub already_there: u64,
}

/// What counts of one message of a file.
struct Line {
    identity: u64,
    /// The work queue for which it is parked.
    work_queue: Option<Arc<str>>,
}

impl Parked {
    /// What an import of these messages would do now. Each is checked before the queue is looked at, and then everything that the import
    /// needs: the queue, unless it is the discarded one, which the import declares; and for parked messages that the queue does not have, the
    /// work queue of each. The messages in the queue stay in it, as for a list. Whether the broker will take the messages is not checked.
    ///
    /// # Errors
    ///
    /// As [`import`](Self::import), which would end with the same, and [`ParkedError::Stopped`] if it was
    /// [told to stop](Self::stopped_by).
    pub async fn check_import(
        &self,
        messages: impl IntoIterator<Item = Result<Exported, ParkedError>>,
    ) -> Result<ImportPlan, ParkedError> {
        let (mut lines, mut names) = (Vec::new(), HashSet::new());
        for (number, message) in (1..).zip(messages) {
            let next = self.prepared(&message?, number, Room::UNLIMITED)?;
            let work_queue = next.work_queue.map(|name| shared(&mut names, name));
            lines.push(Line { identity: identity(&next.chain, &next.body), work_queue });
        }
        let session = self.session().await?;
        let planned = self.plan_import(&session, lines).await;
        session.close().await;
        planned
    }

    async fn plan_import(&self, session: &Session, lines: Vec<Line>) -> Result<ImportPlan, ParkedError> {
        let mut present = match session.depth(&self.queue).await {
            Ok(_) => {
                self.check_owner(session).await?;
                self.present_in_queue(session, &mut self.stop.clone()).await?
            }
            // The import declares it.
            Err(Error::Missing { .. }) if self.interpreter.place == Place::Discarded => Present::default(),
            Err(error) => return Err(error.into()),
        };
        let mut plan = ImportPlan::default();
        // Work queues that are known to exist. The parked queue is bound for each of them.
        let mut existing: HashSet<Arc<str>> = HashSet::new();
        for Line { identity, work_queue } in lines {
            if present.take(identity) {
                plan.already_there += 1;
                continue;
            }
            if let Some(work) = work_queue.filter(|work| !existing.contains(work)) {
                session.exists(&work).await?;
                existing.insert(work);
            }
            plan.to_import += 1;
        }
        Ok(plan)
    }
}

/// Each name is kept once, because a file may have millions of lines.
fn shared(names: &mut HashSet<Arc<str>>, name: String) -> Arc<str> {
    if let Some(known) = names.get(name.as_str()) {
        return known.clone();
    }
    let name = Arc::<str>::from(name);
    names.insert(name.clone());
    name
}
