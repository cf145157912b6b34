//! The way to a broker: by the network or, in a simulated world, by what the world provides.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::client::Connection;
use crate::error::Error;
use crate::settings::BrokerSettings;

/// Opens connections in place of lapin.
pub trait Dial: Send + Sync {
    /// Opens a connection to this address, under this name, within this time.
    fn dial(
        &self,
        broker: &BrokerSettings,
        address: &str,
        name: &str,
        limit: Duration,
    ) -> BoxFuture<'_, Result<Arc<dyn Connection>, Error>>;
}

tokio::task_local! {
    static DIALER: Arc<dyn Dial>;
}

/// Runs a future whose services, publishers and tools reach their brokers by `dialer`.
pub async fn dialing<F: Future>(dialer: Arc<dyn Dial>, future: F) -> F::Output {
    DIALER.scope(dialer, future).await
}

/// What the current future reaches brokers by, if that is not the network.
pub(super) fn dialer() -> Option<Arc<dyn Dial>> {
    DIALER.try_with(Arc::clone).ok()
}
