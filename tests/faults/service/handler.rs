//! What messages make their handlers do.

use std::fs::File;
use std::time::Duration;

use rehop::{Failure, HeaderValue, Message};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::record::{Entry, Step, now};

/// A message's body.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) does: Does,
}

/// What the handler does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Does {
    Succeed,
    /// Succeeds after this many milliseconds.
    Slow(u64),
    /// Fails until the message has waited this often.
    Fail(u32),
    /// Fails until the message has waited [`ASKS`] times, and asks for this many milliseconds each
    /// time.
    Ask(u64),
    Permanent,
    Discard,
    /// Does not decode.
    Undecodable,
    /// Has already expired when it is sent.
    Expired,
    /// Always fails, and its deadline comes before the end of its last wait.
    Expiring,
    /// Waits at the gate, unless it was delivered before; then succeeds.
    Gate,
    /// The same, then fails once.
    GateFail,
    /// The same, then fails for good.
    GatePark,
    /// Always kills the process after this many milliseconds.
    Poison(u64),
    /// Fails until the message has waited this often, then always kills the process.
    LatePoison(u32),
    Panic,
    Hang,
    /// Hangs on the first delivery only.
    HangOnce,
    /// Blocks its thread for this many milliseconds, then fails.
    Block(u64),
    /// Allocates and writes this many megabytes, then fails.
    Allocate(usize),
}

/// How often a handler asks for a wait.
pub(crate) const ASKS: u32 = 2;

/// What the handlers of one queue share.
pub(crate) struct Work {
    /// Which of the service's queues.
    pub(crate) queue: usize,
    pub(crate) record: File,
    pub(crate) go: watch::Receiver<bool>,
}

impl Work {
    pub(crate) async fn handle(&self, job: Message<Job>) -> Result<(), Failure> {
        self.note(Step::Started, &job);
        let result = self.act(&job).await;
        match &result {
            Ok(()) => self.note(Step::Succeeded, &job),
            Err(_) if job.body.does == Does::Discard => self.note(Step::Discarded, &job),
            Err(_) => self.note(Step::Failed, &job),
        }
        result
    }

    fn note(&self, step: Step, job: &Message<Job>) {
        let millis = |name: &str| match job.header(name) {
            Some(HeaderValue::Int(millis)) if job.hop() > 0 => Some(millis),
            _ => None,
        };
        let due = millis("rehop-due-at")
            .or_else(|| Some(millis("rehop-waiting-since")? + millis("rehop-wait-for")?));
        let deadline = job.deadline().map(|deadline| deadline.as_millis());
        Entry {
            at: now(),
            process: std::process::id(),
            queue: self.queue,
            id: job.body.id,
            step,
            attempt: job.attempt(),
            hop: job.hop(),
            due,
            deadline,
        }
        .write(&self.record);
    }

    async fn act(&self, job: &Message<Job>) -> Result<(), Failure> {
        let not_yet = || Err(Failure::transient("not yet"));
        match job.body.does {
            Does::Succeed | Does::Undecodable | Does::Expired => Ok(()),
            Does::Slow(millis) => {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                Ok(())
            }
            Does::Fail(hops) if job.hop() < hops => not_yet(),
            Does::Fail(_) => Ok(()),
            Does::Ask(millis) if job.hop() < ASKS => {
                Err(Failure::transient("not yet").after(Duration::from_millis(millis)))
            }
            Does::Ask(_) => Ok(()),
            Does::Expiring => not_yet(),
            Does::Permanent => Err(Failure::permanent("it never will")),
            Does::Discard => Err(Failure::discard("nobody needs it")),
            Does::Gate => {
                self.gate(job).await;
                Ok(())
            }
            Does::GateFail if job.hop() == 0 => {
                self.gate(job).await;
                not_yet()
            }
            Does::GateFail => Ok(()),
            Does::GatePark => {
                self.gate(job).await;
                Err(Failure::permanent("it never will"))
            }
            Does::Poison(millis) => {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                std::process::abort()
            }
            Does::LatePoison(hops) if job.hop() < hops => not_yet(),
            Does::LatePoison(_) => std::process::abort(),
            Does::Panic => panic!("this message makes its handler panic"),
            Does::Hang => std::future::pending().await,
            Does::HangOnce => {
                if !job.redelivered() && job.hop() == 0 {
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
            Does::Block(millis) => {
                std::thread::sleep(Duration::from_millis(millis));
                not_yet()
            }
            Does::Allocate(megabytes) => {
                let memory = vec![1u8; megabytes << 20];
                tokio::task::yield_now().await;
                Err(Failure::transient(format!("{} bytes did not do", memory.len())))
            }
        }
    }

    async fn gate(&self, job: &Message<Job>) {
        if !job.redelivered() {
            let _ = self.go.clone().wait_for(|go| *go).await;
        }
    }
}
