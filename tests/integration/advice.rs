//! What a service says once for each queue.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rehop::Failure;
use rehop_testing::eventually;
use tracing::subscriber::DefaultGuard;

use crate::support::{Fixture, Log, SOON, millis};

/// What this thread logs: tasks of the test run nowhere else.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Logged {
    /// Takes the place of the thread's log, until the guard is dropped.
    fn by_this_thread() -> (Self, DefaultGuard) {
        let logged = Self::default();
        let writer = logged.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (logged, tracing::subscriber::set_default(subscriber))
    }

    fn lines_with(&self, words: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
    }

    /// Waits for the first line with these words.
    async fn line_with(&self, words: &str) -> String {
        let is_there = eventually(SOON, words, async || !self.lines_with(words).is_empty());
        is_there.await.unwrap();
        self.lines_with(words).remove(0)
    }
}

impl Write for Logged {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_handler_that_blocks_its_thread_past_its_limit_is_named_once() {
    const BLOCKED: &str = "it or another task blocked the thread";
    let mut fixture = Fixture::new("blocked").await;
    fixture.consume().handler_timeout = Some(Duration::from_millis(100));
    let (logged, _guard) = Logged::by_this_thread();
    let handled = Log::default();
    let done = handled.clone();
    let run = fixture
        .serve(move |_| {
            let done = done.clone();
            async move {
                std::thread::sleep(Duration::from_millis(1_200));
                done.push(());
                Ok::<_, Failure>(())
            }
        })
        .await;
    fixture.publish("a").await;
    let line = logged.line_with(BLOCKED).await;
    assert!(
        line.contains(&fixture.queue) && line.contains("although handler_timeout is 100.0ms"),
        "{line}"
    );
    fixture.publish("b").await;
    handled.reaches(2).await;
    run.stop().await;
    assert_eq!(logged.lines_with(BLOCKED).len(), 1);
}

#[tokio::test]
async fn a_wait_that_is_much_longer_than_a_handler_asked_for_is_named_once() {
    const LONGER: &str = "a handler asked for a wait of 12s, and the message waits for 1m";
    let mut fixture = Fixture::new("longer").await;
    (fixture.retry().immediate, fixture.retry().delays) = (Some(0), millis([60_000]));
    let (logged, _guard) = Logged::by_this_thread();
    let asks = Failure::transient("busy").after(Duration::from_secs(12));
    let (run, seen) = fixture.serve_noting(|_| (), Err(asks)).await;
    fixture.publish("a").await;
    let line = logged.line_with(LONGER).await;
    assert!(line.contains("retry.after = \"ladder\""), "{line}");
    fixture.publish("b").await;
    seen.reaches(2).await;
    assert_eq!(run.stop().await.waited, 2);
    assert_eq!(logged.lines_with(LONGER).len(), 1);
}
