//! One side does one job once, with all messages in the queue from the start.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::audit::Audit;
use crate::corner::Corner;
use crate::cpu::Spent;
use crate::job::Job;
use crate::lab::Lab;
use crate::side::Side;
use crate::way::Way;
use crate::witness::{Seen, Witness};
use crate::{Result, collect};

/// A run that takes longer is stuck; the audit then says what is missing.
const LONGEST: Duration = Duration::from_secs(120);

pub(crate) struct Run {
    pub(crate) messages: usize,
    /// From the first attempt until each message has ended, with its last attempt or its copy in
    /// the parked queue.
    pub(crate) took: Duration,
    /// The client's CPU time per message from the first attempt on, if known.
    pub(crate) cpu: Option<Duration>,
    /// The broker's.
    pub(crate) broker_cpu: Option<Duration>,
    /// How many milliseconds late each wait ended.
    pub(crate) lateness: Vec<f64>,
    pub(crate) audit: Audit,
}

impl Run {
    pub(crate) fn rate(&self) -> f64 {
        self.messages as f64 / self.took.as_secs_f64()
    }
}

pub(crate) async fn run(lab: &Lab, job: Job, side: Side) -> Result<Run> {
    let messages = job.messages(lab.effort);
    let corner = lab.corner(job, side).await?;
    lab.fill(&corner, messages).await?;
    let witness = Arc::new(Witness::new(messages));
    let before = Spent::now(lab).await;
    let end = async {
        let began = async {
            witness.begun().await;
            before.with_client_from_now()
        };
        let before = timeout(LONGEST, began).await.unwrap_or(before);
        timeout(LONGEST, ended(lab, job, &corner, &witness)).await.unwrap_or(Ok(()))?;
        Ok((witness.now(), before))
    };
    let (end, before) = side.work_until(job, lab.url(), &corner, &witness, end).await?;
    let (cpu, broker_cpu) = Spent::now(lab).await.since(before).each(messages);
    let seen = witness.seen()?;
    let audit = collect::audit(lab.url(), job, &corner, &seen).await?;
    lab.remove(corner).await?;
    let began =
        seen.iter().filter_map(|seen| seen.first).min().ok_or("no handler was ever called")?;
    let lateness = job.way().map_or_else(Vec::new, |way| lateness(&seen, way));
    Ok(Run { messages, took: end - began, cpu, broker_cpu, lateness, audit })
}

/// The event that stops the clock, whichever side does the job.
async fn ended(lab: &Lab, job: Job, corner: &Corner, witness: &Witness) -> Result<()> {
    witness.all_ended().await;
    if job == Job::Requeue {
        // Polling begins only when the last copies are on their way, so that it does not disturb
        // the broker.
        while (lab.client.depth(&corner.parked).await? as usize) < job.messages(lab.effort) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    Ok(())
}

/// Measured from the first attempt, because both sides' waits begin there.
fn lateness(seen: &[Seen], way: Way) -> Vec<f64> {
    let times = seen
        .iter()
        .enumerate()
        .filter_map(|(id, seen)| Some((seen.first? + way.wait(id), seen.last?)));
    times.map(|(due, last)| ms_after(last, due)).collect()
}

/// Negative if it was early.
pub(crate) fn ms_after(time: Duration, due: Duration) -> f64 {
    (time.as_secs_f64() - due.as_secs_f64()) * 1e3
}
