//! What is particular to one run of a script: the names of its queues and exchanges, and how long
//! its times are.

use std::time::Duration;

use lapin::types::{AMQPValue, FieldArray, FieldTable, ShortString};

use crate::script::{Index, Key, Table, Value};

/// Names and times of one run.
#[derive(Debug, Clone)]
pub(crate) struct Naming {
    /// Keeps runs on one broker apart.
    prefix: String,
    /// By how much times are stretched, in percent.
    stretch: u64,
    /// By how much the times in a queue's arguments are stretched, in percent, so that a rehearsal
    /// shows what depends on them.
    queue_stretch: Vec<u64>,
}

impl Naming {
    pub(crate) fn new(prefix: String, stretch: u64) -> Self {
        Self { prefix, stretch, queue_stretch: Vec::new() }
    }

    pub(crate) fn with_queue_stretch(self, queue_stretch: Vec<u64>) -> Self {
        Self { queue_stretch, ..self }
    }

    pub(crate) fn queue(&self, index: Index) -> ShortString {
        format!("{}q{index}", self.prefix).into()
    }

    pub(crate) fn exchange(&self, index: Option<Index>) -> ShortString {
        index.map_or_else(|| "".into(), |index| format!("{}x{index}", self.prefix).into())
    }

    pub(crate) fn key(&self, key: &Key) -> ShortString {
        match key {
            Key::Queue(queue) => self.queue(*queue),
            Key::Word(word) => (*word).into(),
        }
    }

    /// How long a script's duration is in this run.
    pub(crate) fn duration(&self, millis: u32) -> Duration {
        Duration::from_millis(self.stretched(millis, 100))
    }

    /// Arguments or headers that belong to no queue.
    pub(crate) fn table(&self, table: &Table) -> FieldTable {
        self.stretched_table(table, 100)
    }

    /// The arguments of a queue.
    pub(crate) fn queue_table(&self, queue: Index, table: &Table) -> FieldTable {
        self.stretched_table(table, self.queue_stretch.get(queue).copied().unwrap_or(100))
    }

    fn stretched_table(&self, table: &Table, stretch: u64) -> FieldTable {
        let mut fields = FieldTable::default();
        for (key, value) in table {
            fields.insert((*key).into(), self.value(value, stretch));
        }
        fields
    }

    fn value(&self, value: &Value, stretch: u64) -> AMQPValue {
        match value {
            Value::Number(number) => AMQPValue::LongLongInt(*number),
            Value::Text(text) => long(text),
            Value::Flag(flag) => AMQPValue::Boolean(*flag),
            Value::Time(millis) => {
                AMQPValue::LongLongInt(i64::try_from(self.stretched(*millis, stretch)).unwrap())
            }
            Value::Queue(queue) => long(self.queue(*queue).as_str()),
            Value::Exchange(exchange) => long(self.exchange(*exchange).as_str()),
            Value::Queues(queues) => {
                let names = queues
                    .iter()
                    .map(|queue| long(self.queue(*queue).as_str()))
                    .collect::<Vec<_>>();
                AMQPValue::FieldArray(FieldArray::from(names))
            }
            Value::Deaths { queue, reason } => {
                let mut death = FieldTable::default();
                death.insert("count".into(), AMQPValue::LongLongInt(1));
                death.insert("reason".into(), long(reason));
                death.insert("queue".into(), long(self.queue(*queue).as_str()));
                death.insert("time".into(), AMQPValue::Timestamp(1_700_000_000));
                death.insert("exchange".into(), long(""));
                let keys = vec![long(self.queue(*queue).as_str())];
                death.insert("routing-keys".into(), AMQPValue::FieldArray(FieldArray::from(keys)));
                AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::FieldTable(death)]))
            }
        }
    }

    /// An `expiration`.
    pub(crate) fn expiration(&self, value: &Value) -> ShortString {
        match value {
            Value::Time(millis) => self.stretched(*millis, 100).to_string().into(),
            other => other.to_string().trim_matches('\'').into(),
        }
    }

    /// Text of the broker without what differs from run to run.
    pub(crate) fn normalised(&self, text: &str) -> String {
        text.replace(&self.prefix, "")
    }

    fn stretched(&self, millis: u32, stretch: u64) -> u64 {
        u64::from(millis) * self.stretch * stretch / 10_000
    }
}

fn long(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.as_bytes().into())
}
