//! Decoders that look at more than the body: Protobuf by `type`, schemas by id, CloudEvents,
//! compressed bodies, and several types in one queue.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use std::collections::BTreeMap;
use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use prost::Message as _;
use rehop::bytes::{Buf as _, Bytes};
use rehop::{Consumer, Decode, DecodeError, Encoded, Failure, Gzip, Json, Message};
use rehop::{Publish, Publisher, Settings, Topology};

/// What Protobuf's compiler makes of `message Order { uint64 id = 1; }`.
#[derive(prost::Message, serde::Deserialize)]
struct Order {
    #[prost(uint64, tag = "1")]
    id: u64,
}

/// One of several types in a queue: a handler matches on it.
enum Event {
    Ordered(Order),
    Cancelled(Order),
}

/// Protobuf, and the `type` property names the message.
struct Protobuf;

impl Decode<Event> for Protobuf {
    fn decode(&self, encoded: &Encoded<'_>) -> Result<Event, DecodeError> {
        let order = Order::decode(encoded.body().clone()).map_err(DecodeError::new);
        match encoded.message_type() {
            Some("shop.Ordered") => order.map(Event::Ordered),
            Some("shop.Cancelled") => order.map(Event::Cancelled),
            _ => Err(DecodeError::new("the type is neither shop.Ordered nor shop.Cancelled")),
        }
    }
}

/// JSON, and the `type` property names the variant.
struct ByType;

impl Decode<Event> for ByType {
    fn decode(&self, encoded: &Encoded<'_>) -> Result<Event, DecodeError> {
        match encoded.message_type() {
            Some("ordered") => Json.decode(encoded).map(Event::Ordered),
            Some("cancelled") => Json.decode(encoded).map(Event::Cancelled),
            _ => Err(DecodeError::new("the type is neither ordered nor cancelled")),
        }
    }
}

/// A zero, the schema's id in four bytes, and then the value: the format of Confluent's registry.
/// For Avro each decoder is a reader with the schema of this id; here the schemas are formats.
struct BySchemaId(BTreeMap<u32, Box<dyn Decode<Order>>>);

impl Decode<Order> for BySchemaId {
    fn decode(&self, encoded: &Encoded<'_>) -> Result<Order, DecodeError> {
        let mut value = encoded.body().clone();
        let prefix = (value.try_get_u8(), value.try_get_u32());
        let (Ok(0), Ok(id)) = prefix else { return Err(DecodeError::new("no schema id")) };
        let unknown = || DecodeError::new(format_args!("no schema has the id {id}"));
        self.0.get(&id).ok_or_else(unknown)?.decode(&encoded.with_body(&value))
    }
}

/// The second schema.
struct ProtobufOrder;

impl Decode<Order> for ProtobufOrder {
    fn decode(&self, encoded: &Encoded<'_>) -> Result<Order, DecodeError> {
        Order::decode(encoded.body().clone()).map_err(DecodeError::new)
    }
}

/// A CloudEvent, as far as this service needs it.
#[derive(serde::Deserialize)]
struct CloudEvent {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    data: Order,
}

/// CloudEvents in both modes: all of it in JSON, or the attributes in headers.
struct CloudEvents;

impl Decode<CloudEvent> for CloudEvents {
    fn decode(&self, encoded: &Encoded<'_>) -> Result<CloudEvent, DecodeError> {
        if encoded.content_type().is_some_and(|it| it.starts_with("application/cloudevents+json")) {
            return Json.decode(encoded);
        }
        let attribute = |name: &str| {
            let header = encoded.header(&format!("cloudEvents:{name}"))?;
            header.as_text().map(str::to_owned)
        };
        let missing = || DecodeError::new("not a CloudEvent: it has no cloudEvents:id or :type");
        let (id, kind) = attribute("id").zip(attribute("type")).ok_or_else(missing)?;
        Ok(CloudEvent { id, kind, data: Json.decode(encoded)? })
    }
}

async fn on_event(event: Message<Event>) -> Result<(), Failure> {
    match &event.body {
        Event::Ordered(order) => println!("{}: ordered {}", event.queue(), order.id),
        Event::Cancelled(order) => println!("{}: cancelled {}", event.queue(), order.id),
    }
    Ok(())
}

async fn on_order(order: Message<Order>) -> Result<(), Failure> {
    println!("{}: order {}", order.queue(), order.body.id);
    Ok(())
}

async fn on_cloud_event(event: Message<CloudEvent>) -> Result<(), Failure> {
    let CloudEvent { id, kind, data } = &event.body;
    println!("{}: {kind} {id} of order {}", event.queue(), data.id);
    Ok(())
}

const JSON: &str = r#"{"id": 7}"#;
const QUEUES: [&str; 5] =
    ["formats.protobuf", "formats.types", "formats.schemas", "formats.cloud", "formats.gzip"];

/// A message for each decoder, and one that none can read.
async fn publish(publisher: &Publisher) -> Result<(), Box<dyn std::error::Error>> {
    let [protobuf, types, schemas, cloud, gzip] =
        QUEUES.map(|queue| move || Publish::to_queue(queue));
    let order = Order { id: 7 }.encode_to_vec();
    publisher.publish(protobuf().bytes(order.clone()).message_type("shop.Cancelled")).await?;
    publisher.publish(types().bytes(JSON).message_type("ordered")).await?;
    publisher.publish(types().bytes(JSON).message_type("lost")).await?; // parked: its type is unknown
    let by_id = |id: u8, value: &[u8]| Bytes::from([&[0, 0, 0, 0, id], value].concat());
    publisher.publish(schemas().bytes(by_id(1, JSON.as_bytes()))).await?;
    publisher.publish(schemas().bytes(by_id(2, &order))).await?;

    let event =
        r#"{"specversion": "1.0", "source": "shop", "id": "a", "type": "paid", "data": {"id": 7}}"#;
    let structured = cloud().bytes(event).content_type("application/cloudevents+json");
    publisher.publish(structured).await?;
    let binary =
        cloud().bytes(JSON).header("cloudEvents:id", "b").header("cloudEvents:type", "sent");
    publisher.publish(binary).await?;

    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(JSON.as_bytes())?;
    publisher.publish(gzip().bytes(packed.finish()?).content_encoding("gzip")).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = rehop::shutdown_signal();
    let mut settings = Settings::load()?;
    settings.namespace = "formats".to_owned();
    for queue in QUEUES {
        settings.queue_mut(queue);
    }
    Topology::of(&settings)?.declare(&settings).await?;
    publish(&Publisher::connect(&settings).await?).await?;

    let [protobuf, types, schemas, cloud, gzip] = QUEUES;
    let by_id: [(u32, Box<dyn Decode<Order>>); 2] =
        [(1, Box::new(Json)), (2, Box::new(ProtobufOrder))];
    let summary = rehop::Service::new(&settings)
        .with_consumer(Consumer::new(protobuf, on_event).decode(Protobuf))
        .with_consumer(Consumer::new(types, on_event).decode(ByType))
        .with_consumer(Consumer::new(schemas, on_order).decode(BySchemaId(by_id.into())))
        .with_consumer(Consumer::new(cloud, on_cloud_event).decode(CloudEvents))
        .with_consumer(Consumer::new(gzip, on_order).decode(Gzip::new(Json)))
        .with_graceful_shutdown(shutdown)
        .await?;
    println!("{summary}");
    Ok(())
}
