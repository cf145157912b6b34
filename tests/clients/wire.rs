//! A message as it is on the wire.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::comparison::is_producers;
use crate::support::raw_amqp::RawClient;

/// The properties in the order of their flags. Of the types only these differ: headers are a table,
/// and these three numbers.
const PROPERTIES: [&str; 14] = [
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
];

/// A message's bytes, in hexadecimal digits.
pub(crate) struct Wire {
    routing_key: String,
    pub(crate) properties: BTreeMap<&'static str, String>,
    /// Each value begins with the letter of its type.
    pub(crate) headers: BTreeMap<String, String>,
    body: String,
    /// Of the producer's own headers.
    types: BTreeSet<char>,
}

impl Wire {
    /// Looks at the message at the head of the queue, and gives it back.
    pub(crate) async fn look(amqp_url: &str, queue: &str) -> Self {
        let message = RawClient::connect(amqp_url).await.look(queue).await;
        let mut bytes = Bytes::new(&message.properties);
        let flags = bytes.number(2);
        let (mut properties, mut headers) = (BTreeMap::new(), BTreeMap::new());
        for (index, name) in PROPERTIES.into_iter().enumerate() {
            if flags & (0x8000 >> index) == 0 {
                continue;
            }
            match name {
                "headers" => headers = bytes.table(),
                "delivery_mode" | "priority" => drop(properties.insert(name, hex(bytes.take(1)))),
                "timestamp" => drop(properties.insert(name, hex(bytes.take(8)))),
                _ => drop(properties.insert(name, hex(bytes.short()))),
            }
        }
        assert!(bytes.rest.is_empty(), "every property was read");
        let (routing_key, body) = (hex(&message.routing_key), hex(&message.body));
        Self { routing_key, properties, headers, body, types: bytes.types }
    }

    /// In the form of what the clients' programs print.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "routing_key": self.routing_key, "properties": self.properties, "headers": self.headers, "body": self.body,
        })
    }

    /// The letters of all types in the headers.
    pub(crate) fn types(&self) -> String {
        self.types.iter().collect()
    }
}

/// What is left to read.
struct Bytes<'a> {
    rest: &'a [u8],
    types: BTreeSet<char>,
}

impl<'a> Bytes<'a> {
    fn new(rest: &'a [u8]) -> Self {
        Self { rest, types: BTreeSet::new() }
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        taken
    }

    fn number(&mut self, bytes: usize) -> usize {
        self.take(bytes).iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
    }

    fn short(&mut self) -> &'a [u8] {
        let length = self.number(1);
        self.take(length)
    }

    fn long(&mut self) -> &'a [u8] {
        let length = self.number(4);
        self.take(length)
    }

    /// The fields of a table. Their order means nothing, and is not kept.
    fn table(&mut self) -> BTreeMap<String, String> {
        let mut inside = Bytes::new(self.long());
        let mut fields = BTreeMap::new();
        while !inside.rest.is_empty() {
            let name = String::from_utf8_lossy(inside.short()).into_owned();
            let types = inside.types.clone();
            let value = inside.value();
            if !is_producers(&name) {
                inside.types = types;
            }
            fields.insert(name, value);
        }
        self.types.append(&mut inside.types);
        fields
    }

    fn array(&mut self) -> Vec<String> {
        let mut inside = Bytes::new(self.long());
        let mut items = Vec::new();
        while !inside.rest.is_empty() {
            items.push(inside.value());
        }
        self.types.append(&mut inside.types);
        items
    }

    fn value(&mut self) -> String {
        let kind = char::from(self.take(1)[0]);
        self.types.insert(kind);
        let bytes = match kind {
            'A' => return format!("A {:?}", self.array()),
            'F' => return format!("F {:?}", self.table()),
            'S' | 'x' => self.long(),
            'V' => &[],
            'b' | 'B' | 't' => self.take(1),
            's' | 'u' => self.take(2),
            'I' | 'i' | 'f' => self.take(4),
            'D' => self.take(5),
            'd' | 'l' | 'T' => self.take(8),
            _ => panic!("RabbitMQ sends no type {kind:?}"),
        };
        format!("{kind} {}", hex(bytes))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
