//! The jobs by rehop, with everything that it does: ledgers, time limits, panic isolation, confirms.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use rehop::{Failure, Message, Raw};
use tokio::sync::Notify;

use crate::Result;
use crate::job::{Bench, Job};
use crate::report::Run;

pub(crate) async fn run(bench: &Bench, job: Job, variant: &str, _round: usize) -> Result<Run> {
    let run = bench.prepare(job, variant).await?;
    let (handled, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let deliveries = match job {
        Job::Success => run.count,
        Job::Wait => 2 * run.count,
        Job::Requeue => run.count * crate::job::DELIVERY_LIMIT as usize,
    };
    let service = rehop::connect(&run.settings).await?;
    let (counter, finished) = (handled.clone(), done.clone());
    let service = service.consumer_with(run.queue.clone(), Raw, move |message: Message<Bytes>| {
        if counter.fetch_add(1, Ordering::Relaxed) + 1 >= deliveries {
            finished.notify_one();
        }
        std::future::ready(match job {
            Job::Success => Ok(()),
            Job::Wait if message.hop() > 0 => Ok(()),
            Job::Wait => Err(Failure::transient("not yet")),
            Job::Requeue => Err(Failure::requeue("contended")),
        })
    });
    let started = Instant::now();
    let ended = done.clone();
    let (took, taken) = tokio::sync::oneshot::channel();
    let service = service.with_graceful_shutdown(async move {
        ended.notified().await;
        // The receiver waits for the service itself and is there.
        let _ = took.send(started.elapsed());
    });
    let summary = service.await?;
    let handled = if job == Job::Requeue { 0 } else { summary.handled as usize };
    Ok(Run { messages: run.count, took: taken.await?, lost: bench.lost(job, &run, handled).await? })
}
