//! Whether the namespace is the right one to move messages: whether they could be brought back.

use crate::parked::error::ParkedError;
use crate::parked::found::Found;
use crate::parked::operator::Parked;
use crate::parked::session::Session;
use rehop::Error;
use rehop::Topology;
use rehop::internals::{Names, build};
use rehop::settings::TopologyMode;

impl Parked {
    /// Checks that moved messages would find their way back: that the parked queue belongs to this namespace, and that the namespace
    /// exists. What may not be looked at is taken to exist.
    ///
    /// # Errors
    ///
    /// [`ParkedError::OtherNamespace`] and [`ParkedError::NoSuchNamespace`].
    pub(super) async fn check_way_back(&self, session: &Session) -> Result<(), ParkedError> {
        self.check_owner(session).await?;
        let names = &self.interpreter.names;
        for (missing, part) in ways_back(names) {
            match part.establish(&*session.connection, TopologyMode::Check, session.limit).await {
                Ok(()) | Err(Error::Permission { .. }) => {}
                Err(Error::Missing { .. }) => {
                    return Err(ParkedError::NoSuchNamespace { namespace: names.namespace().to_owned(), missing });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Checks that the queue does not belong to another namespace, as far as its dead-letter exchange tells.
    ///
    /// # Errors
    ///
    /// [`ParkedError::OtherNamespace`].
    pub(super) async fn check_owner(&self, session: &Session) -> Result<(), ParkedError> {
        let Found { namespace: owner, .. } = self.found(session).await?;
        let namespace = self.interpreter.names.namespace();
        match owner.filter(|owner| owner != namespace) {
            Some(other) => {
                Err(ParkedError::OtherNamespace { queue: self.queue.clone(), other, namespace: namespace.to_owned() })
            }
            None => Ok(()),
        }
    }
}

/// What brings messages back, each by itself, with its name: the exchange that restored messages go to, and the queue that keeps what
/// finds no other.
fn ways_back(names: &Names) -> [(String, Topology); 2] {
    let all = build(names, &[]);
    let (mut park, mut stray) = (Topology::default(), Topology::default());
    park.exchanges = all.exchanges.into_iter().filter(|exchange| exchange.name == names.park()).collect();
    stray.queues = all.queues.into_iter().filter(|queue| queue.name == names.stray()).collect();
    [(format!("exchange {:?}", names.park()), park), (format!("queue {:?}", names.stray()), stray)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_back_is_one_exchange_or_one_queue() {
        let [(exchange, park), (queue, stray)] = ways_back(&Names::new("billing"));
        assert_eq!([exchange.as_str(), &queue], ["exchange \"billing.park\"", "queue \"billing.stray\""]);
        assert_eq!((park.exchanges.len(), park.queues.len()), (1, 0));
        assert_eq!((stray.exchanges.len(), stray.queues.len()), (0, 1));
    }
}
