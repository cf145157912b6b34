//! The log of a process that runs for long. It never holds up work: if nobody reads standard error,
//! or it is a file on a full disk, lines are lost, counted, and the log says how many once it can
//! be written again.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

/// How many lines wait for the reader. A line has about 300 bytes.
const WAITING: usize = 10_000;
/// How often it is looked whether lines were lost.
const INTERVAL: Duration = Duration::from_secs(5);

pub(super) struct LogLines {
    /// Writes what is left when it is dropped, for about a second.
    guard: WorkerGuard,
    lost: Lost,
}

impl LogLines {
    /// The writer of the log, and the handle of its thread.
    pub(super) fn start(to: impl Write + Send + 'static) -> (NonBlocking, Self) {
        Self::with_room(WAITING, to)
    }

    fn with_room(lines: usize, to: impl Write + Send + 'static) -> (NonBlocking, Self) {
        let unwritten = Arc::new(Unwritten::default());
        let to = Counting { to, unwritten: unwritten.clone() };
        let builder = NonBlockingBuilder::default().buffered_lines_limit(lines).lossy(true);
        let (writer, guard) = builder.thread_name("rehop-log").finish(to);
        let lost = Lost { writer: writer.clone(), said: Arc::default(), unwritten };
        (writer, Self { guard, lost })
    }

    /// Says how many lines were lost, as long as the process runs.
    pub(super) fn watch(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut lost = self.lost.clone();
        async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                lost.say();
            }
        }
    }

    /// Writes what is left, if somebody reads.
    pub(super) fn finish(mut self) {
        self.lost.say();
        if !self.lost.has_room() {
            // Its guard would complain on standard output.
            std::mem::forget(self.guard);
        }
    }
}

/// How many lines were lost, and of how many the log has said so.
#[derive(Debug, Clone)]
struct Lost {
    writer: NonBlocking,
    said: Arc<AtomicUsize>,
    unwritten: Arc<Unwritten>,
}

/// How many lines could not be written since this was last said, and whether the last one could.
#[derive(Debug, Default)]
struct Unwritten {
    lines: AtomicUsize,
    is_last: AtomicBool,
}

impl Unwritten {
    /// How many lines were lost, if lines can be written again.
    fn take(&self) -> Option<usize> {
        let can_be_said = !self.is_last.load(Ordering::Relaxed);
        let lines = can_be_said.then(|| self.lines.swap(0, Ordering::Relaxed));
        lines.filter(|lines| *lines > 0)
    }
}

/// Counts the lines that cannot be written, in place of failing.
struct Counting<W> {
    to: W,
    unwritten: Arc<Unwritten>,
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let written = self.to.write_all(line);
        if !line.is_empty() {
            self.unwritten.is_last.store(written.is_err(), Ordering::Relaxed);
            self.unwritten.lines.fetch_add(usize::from(written.is_err()), Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // A line that was not written was counted.
        let _ = self.to.flush();
        Ok(())
    }
}

impl Lost {
    fn say(&mut self) {
        if let Some(lost) = self.unsaid() {
            tracing::warn!("{lost} log lines were lost, because standard error was not read");
        }
        if let Some(lost) = self.unwritten.take() {
            tracing::warn!(
                "{lost} log lines were lost, because standard error could not be written: is its disk full?"
            );
        }
    }

    /// How many lines were lost since this was last said, if there is room to say it.
    fn unsaid(&mut self) -> Option<usize> {
        let lost = self.count();
        let said = self.said.load(Ordering::Relaxed);
        if lost <= said || !self.has_room() {
            return None;
        }
        self.said.store(lost, Ordering::Relaxed);
        Some(lost - said)
    }

    fn has_room(&mut self) -> bool {
        let before = self.count();
        // No line, but it takes the place of one.
        let _ = self.writer.write(b"");
        let has_room = self.count() == before;
        if !has_room {
            self.said.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    fn count(&self) -> usize {
        self.writer.error_counter().dropped_lines()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A pipe whose reader takes a line only when it is told to.
    struct Pipe {
        written: Sender<String>,
        read: Receiver<()>,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.written.send(String::from_utf8_lossy(bytes).into_owned()).unwrap();
            // The end of the test reads everything.
            let _ = self.read.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_nobody_reads_are_lost_and_counted_once_they_are_read_again() {
        let (written, writes) = channel();
        let (reads, read) = channel();
        let (mut writer, lines) = LogLines::with_room(2, Pipe { written, read });
        let mut lost = lines.lost.clone();
        writer.write_all(b"first").unwrap();
        assert_eq!(writes.recv().unwrap(), "first");
        for line in ["second", "third", "lost", "lost", "lost"] {
            writer.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(lost.unsaid(), None, "there is no room to say it");
        reads.send(()).unwrap();
        assert_eq!(writes.recv().unwrap(), "second");
        assert_eq!(lost.unsaid(), Some(3));
        assert_eq!(lost.unsaid(), None);
        drop(reads);
        assert_eq!(writes.recv().unwrap(), "third");
        lines.finish();
        assert_eq!(writes.iter().count(), 0);
    }

    /// A file whose disk is full for a time.
    struct Disk {
        is_full: Arc<AtomicBool>,
        written: Sender<String>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let is_full = self.is_full.load(Ordering::Relaxed);
            self.written.send(String::from_utf8_lossy(bytes).into_owned()).unwrap();
            if is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(bytes.len()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_find_the_disk_full_are_lost_and_counted_once_there_is_room_again() {
        let (written, writes) = channel();
        let is_full = Arc::new(AtomicBool::new(true));
        let disk = Disk { is_full: is_full.clone(), written };
        let (mut writer, lines) = LogLines::with_room(10, disk);
        let mut line = |text: &str| {
            writer.write_all(text.as_bytes()).unwrap();
            assert_eq!(writes.recv().unwrap(), text);
        };
        line("lost");
        line("lost, too");
        // Lines are written one after the other.
        line("lost, and the ones before were counted");
        assert_eq!(lines.lost.unwritten.take(), None, "it could not be written");
        is_full.store(false, Ordering::Relaxed);
        line("written");
        line("written, and the one before was noted");
        assert_eq!(lines.lost.unwritten.take(), Some(3));
        assert_eq!(lines.lost.unwritten.take(), None);
        lines.finish();
    }
}
