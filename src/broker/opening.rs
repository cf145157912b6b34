//! Closes a channel if nobody waits for it any more by the time it is open.
//!
//! lapin (4.12) keeps a channel whose opening was given up, as at a time limit or a stop. Near a
//! limit of channels, it would take the place of one that is needed.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::BoxStream;
use lapin::{ChannelState, ErrorKind, Event};
use tokio::sync::oneshot;

use super::client::{Answer, Channel, Connection};

/// A connection that opens its channels to the end.
pub(super) struct Opening(Arc<dyn Connection>);

impl Opening {
    pub(super) fn on(connection: Arc<dyn Connection>) -> Arc<dyn Connection> {
        Arc::new(Self(connection))
    }
}

impl Connection for Opening {
    fn is_open(&self) -> bool {
        self.0.is_open()
    }

    fn is_blocked(&self) -> bool {
        self.0.is_blocked()
    }

    fn frame_max(&self) -> u32 {
        self.0.frame_max()
    }

    fn channel_max(&self) -> u16 {
        self.0.channel_max()
    }

    fn events(&self) -> BoxStream<'static, Event> {
        self.0.events()
    }

    fn open_channel(&self) -> Answer<'_, Arc<dyn Channel>> {
        async {
            let (connection, (opened, opening)) = (self.0.clone(), oneshot::channel());
            // If nobody waits, the channel is dropped, which closes it. The task ends with the
            // connection.
            tokio::spawn(async move { opened.send(connection.open_channel().await) });
            opening.await.unwrap_or_else(|_| {
                let error = ErrorKind::InvalidChannelState(ChannelState::Error, "it did not open");
                Err(error.into())
            })
        }
        .boxed()
    }

    fn close(&self, why: &'static str) -> Answer<'_, ()> {
        self.0.close(why)
    }
}
