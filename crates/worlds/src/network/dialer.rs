//! The way from a process to the broker.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rehop::Error;
use rehop::internals::client::Connection;
use rehop::internals::dial::Dial;
use rehop::settings::BrokerSettings;

use super::connection::SimulatedConnection;
use super::{Network, Process, errors};

/// Opens the connections of one process.
pub(crate) struct Dialer {
    pub(crate) network: Network,
    pub(crate) process: Process,
    pub(crate) user: String,
}

impl Dial for Dialer {
    fn dial(
        &self,
        _: &BrokerSettings,
        address: &str,
        _: &str,
        limit: Duration,
    ) -> BoxFuture<'_, Result<Arc<dyn Connection>, Error>> {
        let address = address.to_owned();
        async move {
            let latency = self.network.change(|state, _| state.latency());
            tokio::time::sleep(latency.min(limit)).await;
            let opened = self.network.change(|state, now| {
                if state.is_killed(self.process) {
                    return None;
                }
                let Some(id) = state.broker.connect(now, &self.user) else {
                    return Some(Err(state.broker.refuses_connection(&self.user)));
                };
                state.opened(id, self.process);
                Some(Ok(id))
            });
            match opened {
                // What is left of a process that was killed does nothing any more.
                None => std::future::pending().await,
                Some(Err(None)) => Err(Error::Connect {
                    broker: address,
                    problem: "connection refused".to_owned().into(),
                }),
                Some(Err(Some((code, text)))) => {
                    let what = format!("connecting to {address}");
                    Err(Error::of_operation(what, &errors::closed(code, &text)))
                }
                Some(Ok(id)) => {
                    let connection = SimulatedConnection { network: self.network.clone(), id };
                    Ok(Arc::new(connection) as Arc<dyn Connection>)
                }
            }
        }
        .boxed()
    }
}
