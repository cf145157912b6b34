//! An operator who moves parked messages: a separate process that can be killed. It is this same
//! program, started again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rehop_operator::parked::{
    DiscardRequest, EditRequest, Exported, Filter, ImportRequest, ListRequest, Parked, ParkedError,
    Place, RampSettings, ReplayRequest, RestoreRequest,
};
use serde::{Deserialize, Serialize};

use crate::service::{Config, Service, listen, run_process, terminations};

/// Holds the orders, and tells this program to run as the operator.
const ORDERS: &str = "REHOP_TEST_FAULTS_OPERATOR";

/// What the operator does with the parked messages of the first queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Action {
    Replay(Manner),
    /// Sends back what was discarded.
    ReplayDiscarded(Manner),
    Discard {
        in_flight: Option<u16>,
    },
    /// Undoes all discards.
    Restore,
    Edit {
        chain: String,
        body: String,
    },
    /// Lists all of them.
    List,
    /// Lists all stray messages instead.
    ListStray,
    /// Brings back what this file has.
    Import {
        lines: PathBuf,
    },
}

/// How messages are sent back. By default all at once, with the default number in flight.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manner {
    pub(crate) in_flight: Option<u16>,
    /// Waits for the verdict on a canary of five.
    pub(crate) canary: bool,
    /// How many must match. They are counted first.
    pub(crate) expect: Option<u64>,
    /// The condition for messages to match.
    pub(crate) only: Option<String>,
}

impl Manner {
    fn request(&self) -> ReplayRequest {
        let mut request = everything();
        (request.in_flight, request.expect) = (self.in_flight, self.expect);
        request.filter.conditions =
            self.only.iter().map(|condition| condition.parse().unwrap()).collect();
        if self.canary {
            request.ramp = RampSettings::default();
        }
        request
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Orders {
    config: Config,
    action: Action,
}

/// Starts the operator. It ends by itself, with status 0 if everything succeeded, and logs by how
/// many kilobytes it grew at most.
pub(crate) fn start(config: &Config, action: &Action, log: &Path) -> Service {
    let orders = Orders { config: config.clone(), action: action.clone() };
    Service::spawn((ORDERS, serde_json::to_string(&orders).unwrap()), config, log)
}

/// Runs the operator and never returns, if that is what this process was started for.
pub(crate) fn run_if_asked() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let Orders { config, action } = serde_json::from_str(&orders).unwrap();
    run_process(async move {
        let _told = listen();
        let before = kilobytes("VmRSS:");
        let ended = act(&config, action).await;
        tracing::info!("memory grew by {} kB", kilobytes("VmHWM:").saturating_sub(before));
        match ended {
            Ok(()) => true,
            Err(error) => {
                tracing::error!("operator failed: {error}");
                false
            }
        }
    })
}

/// A size that the kernel tells of this process.
fn kilobytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let rest = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    rest.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn act(config: &Config, action: Action) -> Result<(), ParkedError> {
    let parked = open(config)?;
    let mut terminated = terminations();
    let stop = async move {
        let _ = terminated.recv().await;
    };
    match action {
        Action::Replay(manner) => parked.replay(&manner.request(), |_| {}, stop).await.map(drop),
        Action::ReplayDiscarded(manner) => {
            discarded(config)?.replay(&manner.request(), |_| {}, stop).await.map(drop)
        }
        Action::Discard { in_flight } => {
            let mut request = DiscardRequest::default();
            request.in_flight = in_flight;
            parked.discard(&request, |_| {}, stop).await.map(drop)
        }
        Action::Restore => {
            discarded(config)?.restore(&RestoreRequest::default(), |_| {}, stop).await.map(drop)
        }
        Action::Edit { chain, body } => {
            let mut request = EditRequest::new(chain, body);
            request.follow = Duration::from_secs(1);
            parked.edit(&request).await.map(drop)
        }
        Action::List => list(&parked).await,
        Action::ListStray => list(&Parked::open(&config.settings(), Place::Stray)?).await,
        Action::Import { lines } => {
            let lines = std::fs::read_to_string(lines).unwrap();
            let messages =
                lines.lines().map(|line| Ok(serde_json::from_str::<Exported>(line).unwrap()));
            parked.import(&ImportRequest::default(), messages, stop).await.map(drop)
        }
    }
}

async fn list(parked: &Parked) -> Result<(), ParkedError> {
    let listing = parked.list(&ListRequest::all(Filter::default())).await?;
    tracing::info!("{} kinds and {} queues", listing.groups.len(), listing.destinations.len());
    tracing::info!("looked at {}", listing.looked_at);
    Ok(())
}

/// The parked messages of the first queue.
pub(crate) fn open(config: &Config) -> Result<Parked, ParkedError> {
    Parked::open(&config.settings(), Place::queue(config.work().name.clone()))
}

/// The discarded messages.
fn discarded(config: &Config) -> Result<Parked, ParkedError> {
    Parked::open(&config.settings(), Place::Discarded)
}

/// All messages at once, without waiting for their fate.
pub(crate) fn everything() -> ReplayRequest {
    let mut request = ReplayRequest::default();
    (request.ramp, request.follow) = (RampSettings::none(), Duration::ZERO);
    request
}
