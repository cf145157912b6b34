//! Which of the work queues that messages belong to exist.

use std::collections::HashSet;

use crate::error::Error;
use crate::parked::session::Session;

/// How many existing queues are remembered, and how many missing ones. Messages may name any number; others are looked up each time.
const REMEMBERED: usize = 1_000;

/// The longest name with other characters than ASCII's that the broker is asked about. Its answer repeats the name, and one that does not
/// fit into AMQP's 255 bytes ends the connection: 3.10 cuts it, perhaps within a character, and 4.0 and 4.3 cannot send it (read in
/// their code).
const LONGEST_BEYOND_ASCII: usize = 100;

/// What is known of work queues.
#[derive(Debug, Default)]
pub(super) struct WorkQueues {
    existing: HashSet<String>,
    missing: HashSet<String>,
}

impl WorkQueues {
    /// The queues that exist.
    pub(super) fn existing(&self) -> &HashSet<String> {
        &self.existing
    }

    /// Makes sure that a queue exists.
    ///
    /// # Errors
    ///
    /// When it does not.
    pub(super) async fn require(&mut self, session: &Session, queue: &str) -> Result<(), Error> {
        if !self.existing.contains(queue) {
            look(session, queue).await?;
            remember(&mut self.existing, queue);
        }
        Ok(())
    }

    /// Whether a queue that a message names exists.
    pub(super) async fn has(&mut self, session: &Session, queue: &str) -> Result<bool, Error> {
        if self.existing.contains(queue) {
            return Ok(true);
        }
        if self.missing.contains(queue) {
            return Ok(false);
        }
        let is_there = exists(session, queue).await?;
        remember(if is_there { &mut self.existing } else { &mut self.missing }, queue);
        Ok(is_there)
    }
}

/// Whether a queue that a message names exists; yes, if the permission to look is missing. Anyone may have written the name.
pub(super) async fn exists(session: &Session, queue: &str) -> Result<bool, Error> {
    if !may_be_asked(queue) {
        return Ok(false);
    }
    match look(session, queue).await {
        Ok(()) => Ok(true),
        // The broker refuses only a look at another connection's exclusive queue, which is nobody's work queue.
        Err(Error::Missing { .. } | Error::Refused { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Fails if the queue does not exist. Without the permission to look it counts as existing: the alternate exchange keeps what finds no
/// queue.
async fn look(session: &Session, queue: &str) -> Result<(), Error> {
    match session.depth(queue).await {
        Ok(_) | Err(Error::Permission { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The broker leaves line ends out of the name that it is asked about, so it would answer for another queue.
fn may_be_asked(queue: &str) -> bool {
    (queue.is_ascii() || queue.len() <= LONGEST_BEYOND_ASCII) && !queue.contains(['\r', '\n'])
}

fn remember(queues: &mut HashSet<String>, queue: &str) {
    if queues.len() < REMEMBERED {
        queues.insert(queue.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
