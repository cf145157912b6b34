//! Whether the ways exist that moved messages take: the queues that they are to go to, and what
//! would bring them back.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::parked::arguments::Found;
use crate::parked::error::ParkedError;
use crate::parked::operator::Parked;
use crate::parked::session::OperatorSession;
use rehop::Error;
use rehop::Topology;
use rehop::internals::{Names, build};
use rehop::settings::TopologyMode;

/// How many existing queues are remembered, and how many missing ones. Messages may name any
/// number; others are looked up each time.
const REMEMBERED: usize = 1_000;

/// The longest name with other characters than ASCII's that the broker is asked about. Its answer
/// repeats the name, and one that does not fit into AMQP's 255 bytes ends the connection: 3.10 cuts
/// it, perhaps within a character, and 4.0 and 4.3 cannot send it (read in their code).
const LONGEST_BEYOND_ASCII: usize = 100;

/// How long a queue that cannot be served counts as one. Its node may be back soon, and many
/// messages may name it.
const UNAVAILABLE_FOR: Duration = Duration::from_secs(10);

/// What is known of queues.
#[derive(Debug, Default)]
pub(super) struct Queues {
    existing: HashSet<String>,
    missing: HashSet<String>,
    /// Since when these could not be served.
    unavailable: HashMap<String, Instant>,
}

impl Queues {
    /// The queues that exist.
    pub(super) fn existing(&self) -> &HashSet<String> {
        &self.existing
    }

    /// Checks that a queue exists.
    ///
    /// # Errors
    ///
    /// When it does not.
    pub(super) async fn require(
        &mut self,
        session: &OperatorSession,
        queue: &str,
    ) -> Result<(), Error> {
        if !self.existing.contains(queue) {
            require(session, queue).await?;
            remember(&mut self.existing, queue);
        }
        Ok(())
    }

    /// Whether a queue that a message names exists, and can be served.
    pub(super) async fn has(
        &mut self,
        session: &OperatorSession,
        queue: &str,
    ) -> Result<bool, Error> {
        if self.existing.contains(queue) {
            return Ok(true);
        }
        let is_unavailable = |since: &Instant| since.elapsed() < UNAVAILABLE_FOR;
        if self.missing.contains(queue) || self.unavailable.get(queue).is_some_and(is_unavailable) {
            return Ok(false);
        }
        let is_there = match require(session, queue).await {
            Err(Error::Unavailable { .. }) => {
                self.unavailable.retain(|_, since| is_unavailable(since));
                if self.unavailable.len() < REMEMBERED {
                    self.unavailable.insert(queue.to_owned(), Instant::now());
                }
                return Ok(false);
            }
            looked => is_there(looked)?,
        };
        remember(if is_there { &mut self.existing } else { &mut self.missing }, queue);
        Ok(is_there)
    }
}

/// Whether a queue that a message names exists, and can be served. Yes if the permission to look is
/// missing. Anyone may have written the name.
pub(super) async fn exists(session: &OperatorSession, queue: &str) -> Result<bool, Error> {
    is_there(require(session, queue).await)
}

fn is_there(looked: Result<(), Error>) -> Result<bool, Error> {
    match looked {
        Ok(()) => Ok(true),
        Err(Error::Unavailable { .. }) => Ok(false),
        // The broker refuses only a look at another connection's exclusive queue, which is nobody's
        // work queue.
        Err(Error::Missing { .. } | Error::Refused { .. } | Error::UnsuitableQueue { .. }) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Checks that a queue exists. Without the permission to look it counts as existing: the alternate
/// exchange keeps what finds no queue.
///
/// # Errors
///
/// When it does not.
pub(super) async fn require(session: &OperatorSession, queue: &str) -> Result<(), Error> {
    if !may_be_asked(queue) {
        let problem = "the broker cannot be asked about such a name".to_owned().into();
        return Err(Error::Missing { what: format!("looking at queue {queue:?}"), problem });
    }
    match session.depth(queue).await {
        Ok(_) | Err(Error::Permission { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The broker leaves line ends out of the name that it is asked about, so it would answer for
/// another queue.
fn may_be_asked(queue: &str) -> bool {
    (queue.is_ascii() || queue.len() <= LONGEST_BEYOND_ASCII) && !queue.contains(['\r', '\n'])
}

fn remember(queues: &mut HashSet<String>, queue: &str) {
    if queues.len() < REMEMBERED {
        queues.insert(queue.to_owned());
    }
}

impl Parked {
    /// Checks that moved messages would find their way back: that the parked queue belongs to this
    /// namespace, and that the namespace exists. What may not be looked at is taken to exist.
    ///
    /// # Errors
    ///
    /// [`ParkedError::OtherNamespace`] and [`ParkedError::NoSuchNamespace`].
    pub(super) async fn check_way_back(
        &self,
        session: &OperatorSession,
    ) -> Result<(), ParkedError> {
        self.check_owner(session).await?;
        let names = &self.interpreter.names;
        for (missing, part) in ways_back(names) {
            match part.establish(&*session.connection, TopologyMode::Check, session.limit).await {
                Ok(()) | Err(Error::Permission { .. }) => {}
                Err(Error::Missing { .. }) => {
                    return Err(ParkedError::NoSuchNamespace {
                        namespace: names.namespace().to_owned(),
                        missing,
                    });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Checks that the queue does not belong to another namespace, as far as its dead-letter
    /// exchange tells.
    ///
    /// # Errors
    ///
    /// [`ParkedError::OtherNamespace`].
    pub(super) async fn check_owner(&self, session: &OperatorSession) -> Result<(), ParkedError> {
        let Found { namespace: owner, .. } = self.found(session).await?;
        let namespace = self.interpreter.names.namespace();
        match owner.filter(|owner| owner != namespace) {
            Some(other) => Err(ParkedError::OtherNamespace {
                queue: self.queue.clone(),
                other,
                namespace: namespace.to_owned(),
            }),
            None => Ok(()),
        }
    }
}

/// What brings messages back, each by itself, with its name: the exchange that restored messages go
/// to, and the queue that keeps what finds no other.
fn ways_back(names: &Names) -> [(String, Topology); 2] {
    let all = build(names, &[]);
    let (mut park, mut stray) = (Topology::default(), Topology::default());
    park.exchanges =
        all.exchanges.into_iter().filter(|exchange| exchange.name == names.park()).collect();
    stray.queues = all.queues.into_iter().filter(|queue| queue.name == names.stray()).collect();
    [(format!("exchange {:?}", names.park()), park), (format!("queue {:?}", names.stray()), stray)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rehop::Problem;

    #[test]
    fn a_queue_that_is_missing_or_cannot_be_served_is_not_there_and_a_lost_connection_tells_nothing()
     {
        let (what, problem) = (|| "looking".to_owned(), || Problem::from("no".to_owned()));
        assert!(matches!(is_there(Ok(())), Ok(true)));
        for error in [
            Error::Missing { what: what(), problem: problem() },
            Error::Refused { what: what(), problem: problem() },
            Error::UnsuitableQueue {
                queue: what(),
                kind: rehop::QueueKind::Exclusive,
                problem: problem(),
            },
            Error::Unavailable { what: what(), problem: problem() },
        ] {
            assert!(matches!(is_there(Err(error.clone())), Ok(false)), "{error}");
        }
        let lost = is_there(Err(Error::Lost { what: what(), problem: problem() }));
        assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
    }

    #[test]
    fn no_more_queues_are_remembered_than_fit() {
        let mut queues = HashSet::new();
        (0..2 * REMEMBERED).for_each(|number| remember(&mut queues, &format!("queue-{number}")));
        assert!(queues.len() == REMEMBERED && queues.contains("queue-0"));
    }

    #[test]
    fn the_broker_is_asked_about_no_name_that_it_cannot_answer_for() {
        for (name, expected) in [
            ("orders".to_owned(), true),
            ("q".repeat(255), true),
            ("注文".to_owned(), true),
            ("語".repeat(85), false),
            ("orders\n".to_owned(), false),
            ("or\rders".to_owned(), false),
        ] {
            assert_eq!(may_be_asked(&name), expected, "{name:?}");
        }
    }

    #[test]
    fn each_way_back_is_one_exchange_or_one_queue() {
        let [(exchange, park), (queue, stray)] = ways_back(&Names::new("billing"));
        assert_eq!(
            [exchange.as_str(), &queue],
            ["exchange \"billing.park\"", "queue \"billing.stray\""]
        );
        assert_eq!((park.exchanges.len(), park.queues.len()), (1, 0));
        assert_eq!((stray.exchanges.len(), stray.queues.len()), (0, 1));
    }
}
