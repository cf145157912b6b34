//! The end of a case: every message is looked for and compared with its expected fate.

use std::time::{Duration, Instant};

use rehop::topology::Role;
use rehop_testing::{Client, ClientError, Received};

use super::Lab;
use crate::expectation::{Cause, Fate};
use crate::ground::SOON;
use crate::ledger::{self, Account, Allowed, Found};
use crate::service::QueueConfig;

impl Lab {
    /// Finds every message, and compares it with its expected fate. The broker may still be taking
    /// back what a lost connection held, so every message that exists appears within some seconds
    /// after the last service has ended.
    pub(crate) async fn close(&self, allowed: Allowed) -> Account {
        self.close_and_look(allowed).await.0
    }

    /// The same, with the messages that were found in queues.
    pub(crate) async fn close_and_look(&self, allowed: Allowed) -> (Account, Vec<Received>) {
        let client = self.client().await;
        let (mut found, mut messages) = (Found::default(), Vec::new());
        let begun = Instant::now();
        loop {
            let unread = self.collect(&client, &mut found, &mut messages).await;
            let mut account = self.account(&found, &allowed);
            if account.lost.is_empty() && unread.is_empty() || begun.elapsed() > SOON {
                account.breaches.extend(unread);
                if !account.is_right() {
                    account.breaches.push(format!("logs are in {}", self.directory.display()));
                }
                return (account, messages);
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    fn account(&self, found: &Found, allowed: &Allowed) -> Account {
        let mut book = self.book();
        let record = book.record.record().clone();
        let mut account = ledger::account(&book.expected, found, &record, &book.policies, allowed);
        account.recovery = book.recovery;
        account.breaches.splice(0..0, book.complaints.iter().cloned());
        account
    }

    /// Returns what kept it from reading a queue to its end. A queue that was deleted holds
    /// nothing.
    async fn collect(
        &self,
        client: &Client,
        found: &mut Found,
        messages: &mut Vec<Received>,
    ) -> Vec<String> {
        let queues = self.book().queues.clone();
        let mut unread = Vec::new();
        for (name, role) in queues {
            let received = match client.get_all(&name).await {
                Ok(received) => received,
                Err(ClientError::Broker { reason, .. })
                    if reason.contains("NOT_FOUND - no queue") =>
                {
                    continue;
                }
                // Nobody may get a message from an ordered queue. What is left there and nowhere
                // else counts as lost.
                Err(ClientError::Broker { reason, .. })
                    if reason.contains("with single active consumer") =>
                {
                    continue;
                }
                Err(error) => {
                    unread.push(error.to_string());
                    continue;
                }
            };
            let index =
                |is_it: &dyn Fn(&QueueConfig) -> bool| self.config.queues.iter().position(is_it);
            match role {
                Role::Parked => {
                    let queue = index(&|queue| queue.parked() == name);
                    found.received(&received, queue, |message| Fate::Parked(Cause::of(message)));
                }
                Role::Discarded => found.received(&received, None, |_| Fate::Discarded),
                Role::Stray => found.received(&received, None, |_| Fate::Stray),
                Role::Work => {
                    found.received(&received, index(&|queue| queue.name == name), |_| Fate::Queued)
                }
                _ => found.received(&received, None, |_| Fate::Queued),
            }
            messages.extend(received);
        }
        unread
    }
}
