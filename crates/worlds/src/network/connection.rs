//! The client's handle of a connection.

use std::sync::Arc;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, stream};
use lapin::Event;
use rehop::internals::client::{Answer, Channel, Connection};
use rehop_simulator::ConnectionId;
use tokio::sync::mpsc;

use super::channel::SimulatedChannel;
use super::{Network, errors};

/// What lapin and RabbitMQ agree upon by default, in bytes.
const FRAME_MAX: u32 = 131_072;

pub(super) struct SimulatedConnection {
    pub(super) network: Network,
    pub(super) id: ConnectionId,
}

impl Connection for SimulatedConnection {
    fn is_open(&self) -> bool {
        self.network.lock().end(self.id).is_some_and(|end| end.is_open())
    }

    fn is_blocked(&self) -> bool {
        self.network.lock().end(self.id).is_some_and(|end| end.is_open() && end.is_blocked)
    }

    fn frame_max(&self) -> u32 {
        FRAME_MAX
    }

    fn channel_max(&self) -> u16 {
        self.network.lock().channel_max(self.id)
    }

    fn events(&self) -> BoxStream<'static, Event> {
        let (sender, receiver) = mpsc::unbounded_channel();
        if let Some(end) = self.network.lock().end(self.id) {
            end.listeners.push(sender);
        }
        stream::unfold(receiver, async |mut receiver| {
            receiver.recv().await.map(|event| (event, receiver))
        })
        .boxed()
    }

    fn open_channel(&self) -> Answer<'_, Arc<dyn Channel>> {
        async {
            let (number, key, opened) =
                self.network.change(|state, now| state.open_channel(self.id, now))?;
            let (network, connection) = (self.network.clone(), self.id);
            let channel = SimulatedChannel { network, connection, id: (number, key) };
            opened.await.map_err(|_| errors::connection_is_closed())??;
            Ok(Arc::new(channel) as Arc<dyn Channel>)
        }
        .boxed()
    }

    fn close(&self, _: &'static str) -> Answer<'_, ()> {
        async {
            let closed = self.network.change(|state, now| state.close(self.id, now))?;
            closed.await.map_err(|_| errors::connection_is_closed())?
        }
        .boxed()
    }
}
