//! Keeps what copies need: the connection, the lanes and the topology.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::publishing_connection::PublishingConnection;
use super::shared::Shared;
use super::trouble::CHECK_RECOVERY_EVERY;
use crate::broker::connection::pause;
use crate::broker::lane::Cause;
use crate::error::Limit;

/// The shortest time between two repairs of the topology.
const REPAIR_EVERY: Duration = Duration::from_secs(5);

/// A connection that lasted this long does not count as failed.
const STEADY_AFTER: Duration = Duration::from_secs(10);

/// Ends only by a panic.
pub(super) async fn keep(shared: Arc<Shared>) {
    tokio::join!(keep_connected(&shared), keep_repaired(&shared), log_recoveries(&shared));
}

async fn keep_connected(shared: &Shared) {
    let Shared { link, keeper, .. } = shared;
    let (mut failures, mut logged) = (0, None);
    loop {
        let problem = match link.get().await {
            Ok(connection) => {
                logged = None;
                let (since, events) = (Instant::now(), connection.events());
                let scout = keeper.scout().clone();
                let publishing =
                    PublishingConnection::new(connection.clone(), link.answer_timeout(), scout);
                let begin = async {
                    // Copies wait, so the limit is for all parts together.
                    let repairing = keeper.repair(Some(&connection));
                    let _ = timeout(link.answer_timeout(), repairing).await;
                    // Before the first copy, because a channel that is one too many ends the
                    // connection.
                    for exchange in shared.exchanges() {
                        // If one cannot be opened, the first copy that needs it reports why.
                        let _ = exchange.lane(&publishing).await;
                    }
                    publishing.begin();
                    shared.connection.send_replace(Some(publishing.clone()));
                    std::future::pending::<Infallible>().await
                };
                let cause = tokio::select! {
                    biased;
                    cause = publishing.run(events) => cause,
                    never = begin => match never {},
                };
                shared.connection.send_replace(None);
                link.abandon(&connection);
                if publishing.has_confirmed() || since.elapsed() >= STEADY_AFTER {
                    failures = 0;
                }
                explained(&cause)
            }
            Err(error) => error.to_string(),
        };
        if logged.as_ref() != Some(&problem) {
            tracing::warn!(cause = %problem, "cannot publish; reconnecting");
            logged = Some(problem);
        }
        sleep(pause(failures)).await;
        failures += 1;
    }
}

/// What ended the connection, and what to do if that was a limit.
fn explained(cause: &Cause) -> String {
    let text = cause.problem.text();
    match cause.code.and_then(|code| Limit::of_answer(code, text)) {
        Some(limit) => format!("{limit}: {}. {text}", limit.remedy()),
        None => cause.problem.to_string(),
    }
}

/// Declares the topology again after a copy has shown that a part of it is missing.
async fn keep_repaired(shared: &Shared) {
    loop {
        shared.repair_wanted.notified().await;
        let next = Instant::now() + REPAIR_EVERY;
        let exchanges = shared.exchanges();
        exchanges.iter().for_each(|exchange| exchange.begin_repair());
        // If a limit allows no further connection, this one is at risk: without the repair, no copy
        // that it carries would be taken.
        let present = shared.connection.borrow().clone();
        let connection = present.as_ref().map(|publishing| &publishing.connection);
        // Copies wait for this, too.
        let _ = timeout(shared.link.answer_timeout(), shared.keeper.repair(connection)).await;
        exchanges.iter().for_each(|exchange| exchange.end_repair());
        sleep_until(next).await;
    }
}

async fn log_recoveries(shared: &Shared) {
    loop {
        sleep(CHECK_RECOVERY_EVERY).await;
        shared.exchanges().iter().for_each(|exchange| exchange.troubles.log_recovery());
    }
}
