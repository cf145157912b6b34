//! Exports messages.

use std::ops::ControlFlow;

use crate::parked::error::ParkedError;
use crate::parked::filter::{Content, Filter};
use crate::parked::headers::headers_json;
use crate::parked::json_line::Exported;
use crate::parked::operator::Parked;
use rehop::internals::Room;
use rehop::internals::at_rest::Original;

impl Parked {
    /// Hands each message that passes the filter to `sink`, which ends the export by returning `false`. The messages stay in the queue.
    /// `scan` limits how many are looked at, as for a list. Returns how many were exported.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list), and [`ParkedError::Incomplete`] if fewer could be looked at. `sink` may have been given some
    /// messages before an error.
    pub async fn export(
        &self,
        filter: &Filter,
        scan: Option<u64>,
        mut sink: impl FnMut(Exported) -> bool,
    ) -> Result<u64, ParkedError> {
        let session = self.session().await?;
        let mut exported = 0;
        let scanned = self
            .scan(&session, scan, &mut self.stop.clone(), |message, held| {
                let (properties, body) = (&held.delivery.properties, &held.delivery.data[..]);
                let headers = || headers_json(properties);
                if filter.limit.is_some_and(|limit| exported >= limit) {
                    return ControlFlow::Break(());
                }
                if !filter.passes(&message, &Content::new(body, &headers)) {
                    return ControlFlow::Continue(());
                }
                let original = Original { properties, body_bytes: body.len() };
                let copy = self.interpreter.imported(&message, original, Room::UNLIMITED);
                exported += 1;
                match sink(Exported::of(&message, &copy.properties, body, &self.mask)) {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            })
            .await;
        session.close().await;
        scanned?.complete(&self.queue)?;
        Ok(exported)
    }
}
