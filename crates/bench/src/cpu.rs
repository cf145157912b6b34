//! CPU time: what a message costs the client and the broker, whatever else the machine is doing.

use std::time::Duration;

use crate::lab::Lab;

/// The CPU time that was spent so far, user and system together. `None` where it is not known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    client: Option<Duration>,
    broker: Option<Duration>,
}

impl Spent {
    pub(crate) async fn now(lab: &Lab) -> Self {
        Self { client: client(), broker: lab.broker_cpu().await }
    }

    /// The same, but the client's from now on.
    pub(crate) fn with_client_from_now(self) -> Self {
        Self { client: client(), ..self }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        let between = |after: Option<Duration>, before: Option<Duration>| {
            Some(after?.saturating_sub(before?))
        };
        Self {
            client: between(self.client, before.client),
            broker: between(self.broker, before.broker),
        }
    }

    /// Per message: the client's, and the broker's.
    pub(crate) fn each(self, messages: usize) -> (Option<Duration>, Option<Duration>) {
        let each = |spent: Option<Duration>| spent.map(|spent| spent / messages as u32);
        (each(self.client), each(self.broker))
    }
}

/// This process's. `None` if this is not Linux.
fn client() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name is in parentheses and may contain spaces.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field)?.parse::<u32>().ok();
    Some(TICK * (ticks(11)? + ticks(12)?))
}

/// Linux reports hundredths of a second here, whatever its timer frequency.
const TICK: Duration = Duration::from_millis(10);
