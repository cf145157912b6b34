//! Closes a channel whose opening was given up.
//!
//! lapin (4.12) keeps such a channel, as after a time limit or at a stop. Near a limit of channels,
//! it would take the place of one that is needed.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::BoxStream;
use lapin::{ChannelState, ErrorKind, Event};
use tokio::sync::oneshot;

use super::client::{Answer, Channel, Connection};

/// A connection that opens its channels to the end, and keeps none that nobody waits for.
pub(super) struct ClosesGivenUp(Arc<dyn Connection>);

impl ClosesGivenUp {
    pub(super) fn on(connection: Arc<dyn Connection>) -> Arc<dyn Connection> {
        Arc::new(Self(connection))
    }
}

impl Connection for ClosesGivenUp {
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
