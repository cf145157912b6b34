//! The record that the services keep of each attempt, in a file that survives their death.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::clock::true_time;

/// Milliseconds since the epoch.
pub(crate) type Millis = i64;

/// The time, also in a process whose clock a case has moved.
pub(crate) fn now() -> Millis {
    true_time(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as Millis)
}

/// How far an attempt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Started,
    Failed,
    Succeeded,
    Discarded,
}

impl Step {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Started, "started"),
        (Self::Failed, "failed"),
        (Self::Succeeded, "succeeded"),
        (Self::Discarded, "discarded"),
    ];
}

/// One line of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) at: Millis,
    pub(crate) process: u32,
    /// Which of the service's queues.
    pub(crate) queue: usize,
    pub(crate) id: u64,
    pub(crate) step: Step,
    /// The number of the attempt, as the handler was told.
    pub(crate) attempt: u32,
    /// The number of waits so far, as the handler was told.
    pub(crate) hop: u32,
    /// When the last wait was to end, by the message's header.
    pub(crate) due: Option<Millis>,
    /// When it expires, as the handler was told.
    pub(crate) deadline: Option<Millis>,
}

impl Entry {
    /// Appends it with a single write, so that it is complete and survives this process's death.
    pub(crate) fn write(&self, mut file: &File) {
        let step =
            Step::ALL.iter().find(|(step, _)| *step == self.step).map_or("", |(_, word)| word);
        let moment = |moment: Option<Millis>| {
            moment.map_or_else(|| "-".to_owned(), |millis| millis.to_string())
        };
        let line = format!(
            "{} {} {} {} {step} {} {} {} {}\n",
            self.at,
            self.process,
            self.queue,
            self.id,
            self.attempt,
            self.hop,
            moment(self.due),
            moment(self.deadline),
        );
        file.write_all(line.as_bytes()).unwrap();
    }

    fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [at, process, queue, id, step, attempt, hop, due, deadline] = words.try_into().ok()?;
        let moment =
            |word: &str| if word == "-" { Some(None) } else { word.parse().ok().map(Some) };
        Some(Self {
            at: at.parse().ok()?,
            process: process.parse().ok()?,
            queue: queue.parse().ok()?,
            id: id.parse().ok()?,
            step: Step::ALL.iter().find(|(_, word)| *word == step)?.0,
            attempt: attempt.parse().ok()?,
            hop: hop.parse().ok()?,
            due: moment(due)?,
            deadline: moment(deadline)?,
        })
    }
}

/// What was recorded so far, in the order in which it was written.
#[derive(Debug, Default, Clone)]
pub(crate) struct Record {
    pub(crate) entries: Vec<Entry>,
}

impl Record {
    pub(crate) fn count(&self, step: Step) -> usize {
        self.entries.iter().filter(|entry| entry.step == step).count()
    }

    /// The messages that have come so far.
    pub(crate) fn ids(&self, step: Step) -> BTreeSet<u64> {
        self.entries.iter().filter(|entry| entry.step == step).map(|entry| entry.id).collect()
    }

    /// The messages that have ended at a handler.
    pub(crate) fn ended(&self) -> BTreeSet<u64> {
        &self.ids(Step::Succeeded) | &self.ids(Step::Discarded)
    }

    pub(crate) fn by_message(&self) -> BTreeMap<u64, Vec<Entry>> {
        let mut messages: BTreeMap<u64, Vec<Entry>> = BTreeMap::new();
        for entry in &self.entries {
            messages.entry(entry.id).or_default().push(*entry);
        }
        messages
    }
}

/// Reads the record as it grows.
#[derive(Debug)]
pub(crate) struct Reader {
    path: PathBuf,
    read: u64,
    record: Record,
}

impl Reader {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), read: 0, record: Record::default() }
    }

    pub(crate) fn record(&mut self) -> &Record {
        // No service has written yet.
        let Ok(mut file) = File::open(&self.path) else { return &self.record };
        let mut text = String::new();
        file.seek(SeekFrom::Start(self.read)).unwrap();
        file.read_to_string(&mut text).unwrap();
        // A write may be partly visible.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        for line in text[..whole].lines() {
            let entry = Entry::read(line)
                .unwrap_or_else(|| panic!("the record has a broken line: {line:?}"));
            self.record.entries.push(entry);
        }
        self.read += whole as u64;
        &self.record
    }
}
