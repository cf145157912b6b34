//! An operator of a world: replays parked messages beside the services, by the code that the tool
//! runs.

use std::pin::pin;
use std::sync::Arc;

use rehop::internals::dial::dialing;
use tokio::time::{sleep, sleep_until};

use crate::network::Process;
use crate::process::Shared;
use crate::record::Happened;
use crate::scenario::{Disturbance, ReplayPlan};

/// Waits until the replay is due, and lives through it and its disturbance.
pub(crate) async fn operate(shared: Arc<Shared>, process: Process, plan: ReplayPlan) {
    sleep(plan.at.saturating_sub(shared.now())).await;
    shared.record(Happened::ReplayBegan(process, plan.queue));
    let began = tokio::time::Instant::now();
    let mut replaying = pin!(dialing(shared.dialer(process), replay(&shared, &plan)));
    let mut disturbed = plan.disturbed;
    let ended = loop {
        let disturbance = async {
            match disturbed {
                Some((after, disturbance)) => {
                    sleep_until(began + after).await;
                    disturbance
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = &mut replaying => break ended,
            disturbance = disturbance => {
                disturbed = None;
                match disturbance {
                    Disturbance::Killed => {
                        shared.network.kill(process);
                        break Err("it was killed".to_owned());
                    }
                    Disturbance::Cut { connection } => {
                        let connections = shared.network.connections(process);
                        if let Some(connection) = connections.get(connection).or(connections.last()) {
                            shared.network.cut(*connection);
                        }
                    }
                }
            }
        }
    };
    shared.record(Happened::ReplayEnded(process, ended));
}

#[cfg(feature = "replays")]
async fn replay(shared: &Shared, plan: &ReplayPlan) -> Result<String, String> {
    use rehop_operator::parked::{Filter, Parked, Place, RampSettings, ReplayRequest};

    let ReplayPlan { queue, most, batches, in_flight, .. } = plan;
    let settings = crate::process::settings(&shared.scenario);
    let mut filter = Filter::default();
    filter.limit = *most;
    let mut ramp = RampSettings::default();
    ramp.batches.clone_from(batches);
    let mut request = ReplayRequest::default();
    (request.filter, request.ramp, request.in_flight) = (filter, ramp, Some(*in_flight));
    let queue = shared.scenario.queues[*queue].name.clone();
    let replaying = async {
        let parked = Parked::open(&settings, Place::queue(queue))?;
        parked.replay(&request, |_| {}, std::future::pending()).await
    };
    let replayed = replaying.await.map_err(|error| error.to_string())?;
    let (tally, fates) = (&replayed.tally, &replayed.fates);
    Ok(format!(
        "{} of {} were sent; {} handled, {} parked again, {} unknown",
        tally.moved, tally.snapshot, fates.handled, fates.parked_again, replayed.unknown
    ))
}

#[cfg(not(feature = "replays"))]
#[allow(clippy::unused_async, reason = "the other one waits")]
async fn replay(_: &Shared, _: &ReplayPlan) -> Result<String, String> {
    Err("this package is built without its feature \"replays\"".to_owned())
}
