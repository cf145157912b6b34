//! An operator who moves parked messages: a separate process that can be killed. It is this same program, started again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rehop::parked::{
    DiscardRequest, EditRequest, Exported, Filter, ListRequest, Parked, ParkedError, Place, RampSettings, ReplayRequest,
};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use crate::service::{Config, Service, listen, run_process};

/// Holds the orders, and tells this program to run as the operator.
const ORDERS: &str = "REHOP_TEST_FAULTS_OPERATOR";

/// What the operator does with the parked messages of the first queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Action {
    /// Sends all back at once.
    Replay {
        strict: bool,
    },
    Discard,
    Edit {
        chain: String,
        body: String,
    },
    /// Lists all of them, and logs the most memory that this took.
    List,
    /// Brings back what this file has.
    Import {
        lines: PathBuf,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct Orders {
    config: Config,
    action: Action,
}

/// Starts the operator. It ends by itself, with status 0 if everything succeeded.
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
        match act(&config, action).await {
            Ok(()) => true,
            Err(error) => {
                tracing::error!("operator failed: {error}");
                false
            }
        }
    })
}

async fn act(config: &Config, action: Action) -> Result<(), ParkedError> {
    let parked = open(config)?;
    let mut terminated = signal(SignalKind::terminate()).unwrap();
    let stop = async move {
        let _ = terminated.recv().await;
    };
    match action {
        Action::Replay { strict } => {
            let mut request = everything();
            request.in_flight = strict.then_some(1);
            parked.replay(&request, |_| {}, stop).await.map(drop)
        }
        Action::Discard => parked.discard(&DiscardRequest::default(), |_| {}, stop).await.map(drop),
        Action::Edit { chain, body } => {
            let mut request = EditRequest::new(chain, body);
            request.follow = Duration::from_secs(1);
            parked.edit(&request).await.map(drop)
        }
        Action::List => {
            let listing = parked.list(&ListRequest::all(Filter::default())).await?;
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default().trim();
            tracing::info!("looked at {}; peak memory {peak}", listing.looked_at);
            Ok(())
        }
        Action::Import { lines } => {
            let lines = std::fs::read_to_string(lines).unwrap();
            let messages = lines.lines().map(|line| Ok(serde_json::from_str::<Exported>(line).unwrap()));
            parked.import(messages, stop).await.map(drop)
        }
    }
}

/// The parked messages of the first queue.
pub(crate) fn open(config: &Config) -> Result<Parked, ParkedError> {
    Parked::open(&config.settings(), Place::queue(config.work().name.clone()))
}

/// All messages at once, without waiting for their fate.
pub(crate) fn everything() -> ReplayRequest {
    let mut request = ReplayRequest::default();
    (request.ramp, request.follow) = (RampSettings::none(), Duration::ZERO);
    request
}
